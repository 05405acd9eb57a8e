// SPDX-License-Identifier: Apache-2.0
// Many threads and processes compete for few entries.
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <thread>
#include <vector>

#include "client.hpp"

namespace hostile {
namespace {

/// `count` copies, some in flight at a time, each checked.
void copy_many(void* portal, unsigned count, unsigned char seed) {
  constexpr unsigned kInFlight = 6;
  constexpr std::uint32_t kBytes = 512;
  static_assert(kBytes % 8 == 0);
  struct Slot {
    Record record;
    unsigned char source[kBytes];
    unsigned char target[kBytes];
  };
  std::vector<Slot> slots(kInFlight);
  for (unsigned number = 0; number < count + kInFlight; ++number) {
    Slot& slot = slots[number % kInFlight];
    if (number >= kInFlight) {
      EXPECT(wait(slot.record) == DSA_COMP_SUCCESS);
      EXPECT(std::memcmp(slot.source, slot.target, kBytes) == 0);
    }
    if (number >= count) continue;
    std::memset(slot.source, static_cast<int>(seed + number), kBytes);
    submit(portal, move(slot.record, slot.target, slot.source, kBytes));
  }
}

SCENARIO(eight_threads_on_sixteen_entries) {
  void* portal = open_portal("wq0.0");
  std::vector<std::thread> threads;
  for (unsigned char i = 0; i < 8; ++i) {
    threads.emplace_back([portal, i] { copy_many(portal, 2000, i); });
  }
  for (std::thread& thread : threads) thread.join();
  return 0;
}

SCENARIO(thread_storm) {
  void* portal = open_portal("wq0.0");
  for (int wave = 0; wave < 5; ++wave) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 100; ++i) threads.emplace_back([portal] { expect_works(portal); });
    for (std::thread& thread : threads) thread.join();
  }
  return 0;
}

SCENARIO(four_processes_one_killed) {
  // Accepted descriptors of the first process, which is killed during its work.
  auto* accepted = static_cast<unsigned*>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  EXPECT(accepted != MAP_FAILED);
  pid_t children[4] = {};
  for (int i = 0; i < 4; ++i) {
    children[i] = ::fork();
    EXPECT(children[i] >= 0);
    if (children[i] != 0) continue;
    void* portal = open_portal("wq0.0");
    if (i == 0) {
      // Submits for ever without checking completions.
      static Record records[16];
      for (unsigned n = 0;; ++n) {
        if (enqcmd(portal, noop(records[n % 16])))
          __atomic_fetch_add(accepted, 1, __ATOMIC_RELAXED);
      }
    }
    copy_many(portal, 1500, static_cast<unsigned char>(i));
    std::_Exit(0);
  }
  const double limit = seconds() + kWaitSeconds;
  while (__atomic_load_n(accepted, __ATOMIC_RELAXED) < 64) {
    ::sched_yield();
    EXPECT(seconds() < limit);
  }
  EXPECT(::kill(children[0], SIGKILL) == 0);
  for (int i = 0; i < 4; ++i) {
    int ended = 0;
    EXPECT(::waitpid(children[i], &ended, 0) == children[i]);
    EXPECT(i == 0 ? WIFSIGNALED(ended) : WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
  }
  // Its entries are released: all sixteen are available.
  void* portal = open_portal("wq0.0");
  copy_many(portal, 500, 9);
  return 0;
}

/// Fills the shared WQ. Run under the launcher, with a device so slow that nothing completes.
void* fill_queue() {
  static Record records[16];
  static unsigned char bytes[2][4096];
  void* portal = open_portal("wq0.0");
  for (Record& record : records) {
    EXPECT(enqcmd(portal, move(record, bytes[0], bytes[1], sizeof(bytes[0]))));
  }
  return portal;
}

// The first process lives on without its portal, so no file operation reveals its death.
SCENARIO(killed_when_its_portal_was_closed_before) {
  void* portal = open_portal("wq0.0");
  int told[2] = {};
  EXPECT(::pipe(told) == 0);
  const pid_t child = ::fork();
  EXPECT(child >= 0);
  if (child == 0) {
    EXPECT(::munmap(fill_queue(), 4096) == 0);
    EXPECT(::write(told[1], "x", 1) == 1);
    while (true) ::pause();
  }
  char byte = 0;
  EXPECT(::read(told[0], &byte, 1) == 1);
  const double limit = seconds() + kWaitSeconds;
  do {
    ::sched_yield();
    EXPECT(seconds() < limit);
  } while (read_file("/sys/bus/dsa/devices/wq0.0/clients") != "1\n");
  Record record{};
  EXPECT(!enqcmd(portal, noop(record)));  // It is alive and keeps all entries.
  EXPECT(::kill(child, SIGKILL) == 0);
  submit(portal, noop(record));
  EXPECT(::waitpid(child, nullptr, 0) == child);
  return 0;
}

// The process execs a program that does not use the device.
SCENARIO(becomes_a_program_that_submits_nothing) {
  void* portal = open_portal("wq0.0");
  int told[2] = {};
  int asked[2] = {};
  EXPECT(::pipe(told) == 0 && ::pipe(asked) == 0);
  char byte = 0;
  const pid_t child = ::fork();
  EXPECT(child >= 0);
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    fill_queue();
    EXPECT(::write(told[1], "x", 1) == 1 && ::read(asked[0], &byte, 1) == 1);
    ::execl("/bin/sleep", "sleep", "1000", nullptr);
    ::_exit(127);
  }
  EXPECT(::read(told[0], &byte, 1) == 1);
  Record record{};
  EXPECT(!enqcmd(portal, noop(record)));
  EXPECT(::write(asked[1], "x", 1) == 1);
  submit(portal, noop(record));
  EXPECT(::waitpid(child, nullptr, WNOHANG) == 0);
  EXPECT(::kill(child, SIGKILL) == 0);
  EXPECT(::waitpid(child, nullptr, 0) == child);
  return 0;
}

SCENARIO(fork_with_work_outstanding) {
  void* portal = open_portal("wq0.0");
  constexpr std::uint32_t kBytes = 1 << 20;
  static Record records[8];
  std::vector<unsigned char> source(kBytes, 7);
  std::vector<unsigned char> target(kBytes * 8);
  for (unsigned i = 0; i < 8; ++i) {
    submit(portal, move(records[i], target.data() + i * kBytes, source.data(), kBytes));
  }
  const pid_t child = ::fork();
  EXPECT(child >= 0);
  if (child == 0) {
    // Does not inherit the parent's portal, as with the driver; opens a new one.
    void* own = open_portal("wq0.0");
    copy_many(own, 300, 3);
    std::_Exit(0);
  }
  for (const Record& record : records) EXPECT(wait(record) == DSA_COMP_SUCCESS);
  for (const unsigned char byte : target) EXPECT(byte == 7);
  int ended = 0;
  EXPECT(::waitpid(child, &ended, 0) == child && ended == 0);
  copy_many(portal, 100, 1);
  return 0;
}

SCENARIO(fork_while_threads_submit) {
  void* portal = open_portal("wq0.0");
  bool stop = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) expect_works(portal);
    });
  }
  for (int i = 0; i < 30; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      expect_works(open_portal("wq0.0"));
      std::_Exit(0);
    }
    int ended = 0;
    EXPECT(::waitpid(child, &ended, 0) == child && ended == 0);
  }
  __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
  for (std::thread& thread : threads) thread.join();
  return 0;
}

SCENARIO(exit_with_work_outstanding) {
  void* portal = open_portal("wq0.0");
  static Record records[16];
  static unsigned char source[1 << 20];
  static unsigned char target[1 << 20];
  for (Record& record : records) {
    static_cast<void>(enqcmd(portal, move(record, target, source, sizeof(source))));
  }
  return 0;
}

SCENARIO(vfork_leaves_the_parent_alone) {
  void* portal = open_portal("wq0.0");
  expect_works(portal);
  for (int i = 0; i < 20; ++i) {
    const pid_t child = ::vfork();
    if (child == 0) {
      ::signal(SIGILL, SIG_DFL);  // Many do, before exec.
      ::signal(SIGSEGV, SIG_DFL);
      ::execl("/bin/true", "true", nullptr);
      ::_exit(127);
    }
    int ended = 0;
    EXPECT(::waitpid(child, &ended, 0) == child && ended == 0);
    expect_works(portal);
  }
  return 0;
}

SCENARIO(exec_with_work_outstanding) {
  if (std::getenv("HOSTILE_AGAIN") != nullptr) {
    copy_many(open_portal("wq0.0"), 200, 5);
    return 0;
  }
  void* portal = open_portal("wq0.0");
  static Record records[16];
  static unsigned char source[1 << 20];
  static unsigned char target[1 << 20];
  for (Record& record : records) {
    static_cast<void>(enqcmd(portal, move(record, target, source, sizeof(source))));
  }
  ::setenv("HOSTILE_AGAIN", "1", 1);
  ::execl("/proc/self/exe", "hostile", "exec_with_work_outstanding", nullptr);
  return 1;
}

}  // namespace
}  // namespace hostile
