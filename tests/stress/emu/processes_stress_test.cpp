// SPDX-License-Identifier: Apache-2.0
// Two processes share the registers; one is killed at a random instant. The other one finishes, and
// all resources of the dead one are released.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "emu/device/client.hpp"
#include "emu/device/device.hpp"
#include "emu/device/registers.hpp"
#include "headrace/base/atomic.hpp"
#include "headrace/base/random.hpp"
#include "support/emulator.hpp"
#include "support/seed.hpp"
#include "support/watchdog.hpp"

namespace headrace::emu::processes_stress_test {
namespace {

using test::Completions;
using test::one_queue;

constexpr DeviceId kDevice{0};
constexpr QueueId kQueue{0};

std::span<std::byte> shared_memory() {
  void* memory =
      ::mmap(nullptr, registers_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return {static_cast<std::byte*>(memory), registers_bytes()};
}

Control make_control(std::span<std::byte> memory, const DeviceConfig& device,
                     EmulatorConfig config = {}) {
  config.devices = {device};
  auto control = Control::create(memory, config);
  EXPECT_TRUE(control) << control.error().message();
  EXPECT_TRUE(control->enable_device(kDevice));
  EXPECT_TRUE(control->enable_queue(kDevice, kQueue));
  return *control;
}

/// Waits for a nonzero status and returns it; returns 0 after a minute.
int await_status(const dsa::CompletionRecord& record) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (dsa::load_status(record) == 0 && std::chrono::steady_clock::now() < limit) {
    std::this_thread::yield();
  }
  return dsa::load_status(record);
}

/// Submits copies for ever, several at a time.
[[noreturn]] void submit_for_ever(std::span<std::byte> memory) {
  auto client = Client::attach(memory, process_memory());
  if (!client) ::_exit(2);
  if (!(*client)->start()) ::_exit(2);
  Completions completions(8);
  std::vector<std::byte> source(8'000);
  std::vector<std::byte> target(source.size());
  while (true) {
    for (std::size_t i = 0; i < 8; ++i) {
      completions.clear(i);
      while (!(*client)->enqueue(kDevice, kQueue, completions.move(i, target, source))) {
        std::this_thread::yield();
      }
    }
    for (std::size_t i = 0; i < 8; ++i) completions.await(i);
  }
}

void kill_one_of_two(std::uint32_t engines, int rounds) {
  const std::span<std::byte> memory = shared_memory();
  Control control = make_control(memory, one_queue({.size = 16, .engines = engines}));
  Random random(test::seed());
  for (int round = 0; round < rounds; ++round) {
    const pid_t victim = ::fork();
    if (victim == 0) submit_for_ever(memory);
    {
      auto client = Client::attach(memory, process_memory());
      ASSERT_TRUE(client);
      ASSERT_TRUE((*client)->start());
      Completions completions(1);
      const std::uint64_t kill_at = random.below(60);
      for (std::uint64_t i = 0; i < 80; ++i) {
        if (i == kill_at) {
          ::kill(victim, SIGKILL);
          ::waitpid(victim, nullptr, 0);
        }
        completions.clear(0);
        while (!(*client)->enqueue(kDevice, kQueue, completions.noop(0))) {
          control.reap();
          std::this_thread::yield();
        }
        ASSERT_EQ(completions.await(0), 1) << "round " << round << ", descriptor " << i;
      }
    }
    control.reap();
    ASSERT_EQ(control.occupancy(kDevice, kQueue), 0U) << "round " << round;
  }
  ::munmap(memory.data(), memory.size());
}

TEST(ProcessesStress, a_killed_client_leaks_nothing_and_harms_nobody) {
  kill_one_of_two(2, 50);
}

TEST(ProcessesStress, a_killed_client_gives_up_the_only_engine) {
  kill_one_of_two(1, 15);
}

TEST(ProcessesStress, a_stopped_client_gives_up_the_only_engine) {
  const std::span<std::byte> memory = shared_memory();
  Control control = make_control(memory, one_queue({.size = 64, .engines = 1}));
  const pid_t other = ::fork();
  if (other == 0) submit_for_ever(memory);
  auto client = Client::attach(memory, process_memory());
  ASSERT_TRUE(client);
  ASSERT_TRUE((*client)->start());
  Completions completions(1);
  for (int i = 0; i < 20; ++i) {
    if (i % 2 == 0) ::kill(other, i % 4 == 0 ? SIGSTOP : SIGCONT);
    completions.clear(0);
    ASSERT_TRUE((*client)->enqueue(kDevice, kQueue, completions.noop(0)));
    ASSERT_EQ(completions.await(0), 1) << i;
  }
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
  client->reset();
  control.reap();
  EXPECT_EQ(control.occupancy(kDevice, kQueue), 0U);
  ::munmap(memory.data(), memory.size());
}

TEST(ProcessesStress, a_written_descriptor_runs_in_the_process_that_wrote_it) {
  const std::span<std::byte> memory = shared_memory();
  Control control = make_control(memory, one_queue());
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  auto* record = static_cast<dsa::CompletionRecord*>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const pid_t child = ::fork();
  if (child == 0) {
    auto client = Client::attach(memory, process_memory());
    if (!client) ::_exit(2);
    if (!(*client)->start()) ::_exit(2);
    if (::write(ready[1], "x", 1) != 1) ::_exit(3);
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  dsa::Descriptor descriptor{};
  descriptor.flags = dsa::flag::record_address_valid | dsa::flag::request_record;
  descriptor.completion_addr = reinterpret_cast<std::uint64_t>(record);
  for (int i = 0; i < 100; ++i) {
    record->status = 0;
    auto done = control.submit_for(child, kDevice, kQueue, descriptor, std::chrono::seconds(60));
    ASSERT_TRUE(done) << done.error().message();
    ASSERT_EQ(await_status(*record), 1);
  }
  ASSERT_TRUE(control.disable_queue(kDevice, kQueue, std::chrono::seconds(60)));
  EXPECT_FALSE(control.submit_for(child, kDevice, kQueue, descriptor, std::chrono::seconds(60)));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(control.submit_for(child, kDevice, kQueue, descriptor, std::chrono::seconds(60)));
  EXPECT_EQ(control.reap(), 1U);
  EXPECT_EQ(control.statistics().devices[0].queues[0].written_count, 100U);
  EXPECT_EQ(control.statistics().lost_client_count, 0U) << "it had nothing in use";
}

TEST(ProcessesStress, a_client_is_lost_if_it_ends_with_entries_in_use) {
  const std::span<std::byte> memory = shared_memory();
  Control control = make_control(memory, one_queue({.size = 16}));
  for (std::uint64_t in_use = 0; in_use < 3; ++in_use) {
    const pid_t child = ::fork();
    if (child == 0) {
      auto client = Client::attach(memory, process_memory());
      // Not started: its submissions stay queued.
      bool good = client.has_value();
      for (std::uint64_t i = 0; good && i < in_use; ++i) {
        good = (*client)->enqueue(kDevice, kQueue, dsa::Descriptor{});
      }
      ::_exit(good ? 0 : 1);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    ASSERT_EQ(status, 0);
    EXPECT_EQ(control.occupancy(kDevice, kQueue), in_use);
    EXPECT_EQ(control.reap(), 1U);
    EXPECT_EQ(control.occupancy(kDevice, kQueue), 0U);
    // The first had none.
    EXPECT_EQ(control.statistics().lost_client_count, in_use);
  }
  ::munmap(memory.data(), memory.size());
}

TEST(ProcessesStress, a_child_forked_while_its_parent_attaches_attaches_too) {
#if defined(__SANITIZE_ADDRESS__)
  // Its allocator's locks may stay held in a forked child of a process with threads (GCC 12).
  GTEST_SKIP() << "AddressSanitizer cannot fork while another thread allocates";
#endif
  const std::span<std::byte> memory = shared_memory();
  make_control(memory, one_queue());
  Atomic<std::uint32_t> ended;
  std::thread parent([&] {
    while (ended.load_relaxed() == 0) {  // only to end
      EXPECT_TRUE(Client::attach(memory, process_memory()));
    }
  });
  for (int i = 0; i < 50; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(200);
      ::_exit(Client::attach(memory, process_memory()) ? 0 : 2);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << "child " << i;
    if (status != 0) break;
  }
  ended.store_relaxed(1);  // as above
  parent.join();
}

/// A client while another one corrupts the registers: whatever it is answered, its memory holds
/// what it and its descriptors wrote.
int submit_until(const Atomic<std::uint32_t>& over, std::span<std::byte> memory, bool steps) {
  auto attached = Client::attach(memory, process_memory());
  if (!attached || !(*attached)->start()) return 2;
  Client& client = **attached;
  const auto submit = [&](int thread) {
    struct {
      std::array<std::byte, 4096> before{};
      std::array<std::byte, 4096> target{};
      std::array<std::byte, 4096> after{};
    } room;
    std::array<std::byte, 4096> source;
    source.fill(static_cast<std::byte>(thread + 1));
    Completions completions(3);
    alignas(64) std::array<dsa::Descriptor, 2> list;
    while (over.load_acquire() == 0) {
      for (std::size_t i = 0; i < 3; ++i) completions.clear(i);
      list[0] = completions.move(0, room.target, source);
      list[1] = completions.noop(1);
      const dsa::Descriptor batch = completions.batch(2, list);
      if (!client.enqueue(kDevice, kQueue, batch)) continue;
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(100);
      while (completions.status(2) == 0 && std::chrono::steady_clock::now() < limit) {
        if (steps) client.run_until_idle();  // No other thread does, once the device is halted.
        std::this_thread::yield();
      }
      if (completions.status(2) == 0) ::_exit(3);
      for (const std::byte byte : room.before) {
        if (byte != std::byte{0}) ::_exit(4);
      }
      for (const std::byte byte : room.after) {
        if (byte != std::byte{0}) ::_exit(5);
      }
      if (completions.status(0) == 1 && room.target != source) ::_exit(6);
    }
  };
  std::array<std::thread, 2> threads{std::thread(submit, 0), std::thread(submit, 1)};
  for (std::thread& thread : threads) thread.join();
  attached->reset();
  return 0;
}

/// Corrupts registers, mostly those in use, with random and with plausible values.
void scribble(std::span<std::byte> memory, std::uint64_t seed, int count) {
  Random random(seed);
  const auto words = std::span(reinterpret_cast<Atomic<std::uint32_t>*>(memory.data()),
                               memory.size() / sizeof(std::uint32_t));
  const std::size_t device = offsetof(Registers, devices) / sizeof(std::uint32_t);
  const std::size_t clients = offsetof(Registers, clients) / sizeof(std::uint32_t);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t where = random.below(4);
    const std::size_t at =
        where == 0   ? random.below(words.size())
        : where == 1 ? clients + random.below(3 * sizeof(ClientRegisters) / sizeof(std::uint32_t))
                     : device + random.below(sizeof(DeviceRegisters) / sizeof(std::uint32_t));
    constexpr std::array<std::uint32_t, 6> kTypical{0, 1, 2, 3, 129, ~0U};
    words[at].store_relaxed(random.chance(1, 2) ? kTypical[random.below(kTypical.size())]
                                                : static_cast<std::uint32_t>(random()));
    // Sometimes enables a WQ, or nothing would be submitted.
    if (i % 8 == 0) {
      QueueRegisters& queue =
          reinterpret_cast<Registers*>(memory.data())->devices[0].queues[kQueue.value()];
      reinterpret_cast<Registers*>(memory.data())
          ->devices[0]
          .phase.store_relaxed(PhaseWord::make(1, 1).bits);
      queue.phase.store_relaxed(PhaseWord::make(1, 1).bits);
      queue.mode.store_relaxed(static_cast<std::uint32_t>(dsa::QueueMode::shared));
      queue.batch_max.store_relaxed(32);
    }
    if (i % 1024 == 0) std::this_thread::yield();
  }
}

void scribble_over(EmulatorConfig config) {
  config.devices = {one_queue({.size = 16, .engines = 2})};
  const std::span<std::byte> memory = shared_memory();
  auto made = Control::create(memory, config);
  ASSERT_TRUE(made);
  Control control = *made;
  ASSERT_TRUE(control.enable_device(kDevice));
  ASSERT_TRUE(control.enable_queue(kDevice, kQueue));
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& over = *new (page) Atomic<std::uint32_t>;
  std::array<pid_t, 2> clients{};
  for (pid_t& client : clients) {
    client = ::fork();
    if (client == 0) {
      ::alarm(200);
      ::_exit(submit_until(over, memory, config.run_in_submission));
    }
  }
  const auto accepted = [&] { return control.statistics().devices[0].queues[0].accepted_count; };
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (accepted() < 100 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  const pid_t scribbler = ::fork();
  if (scribbler == 0) {
    ::alarm(200);
    scribble(memory, test::seed(), 250'000);
    ::_exit(0);
  }
  // The controller survives as well.
  int status = -1;
  Completions completions(1);
  while (::waitpid(scribbler, &status, WNOHANG) == 0) {
    static_cast<void>(control.statistics());
    static_cast<void>(control.config(kDevice));
    static_cast<void>(control.reap());
    static_cast<void>(control.submit_for(clients[0], kDevice, kQueue, dsa::Descriptor{},
                                         std::chrono::milliseconds(1)));
    static_cast<void>(control.open_queue(kDevice, kQueue));
  }
  EXPECT_EQ(status, 0);
  over.store_release(1);
  // Outstanding descriptors end with a reset, as always.
  for (const pid_t client : clients) {
    status = -1;
    pollfd ended{.fd = static_cast<int>(::syscall(SYS_pidfd_open, client, 0)),
                 .events = POLLIN,
                 .revents = 0};
    for (int tries = 0; tries < 600; ++tries) {
      control.reset(kDevice);
      if (::poll(&ended, 1, 100) == 0) continue;
      ::waitpid(client, &status, 0);
      break;
    }
    ::close(ended.fd);
    if (status == -1) {
      ::kill(client, SIGKILL);
      ::waitpid(client, nullptr, 0);
    }
    EXPECT_EQ(status, 0) << (WIFSIGNALED(status) ? "killed by a signal" : "");
  }
  ::munmap(memory.data(), memory.size());
}

TEST(ProcessesStress, a_client_that_writes_over_the_registers_costs_the_others_answers_only) {
  scribble_over({});
}

TEST(ProcessesStress, writing_over_the_registers_of_a_paced_device_costs_answers_only) {
  EmulatorConfig config;
  config.pace = {.latency_ns = 20'000, .bytes_per_second = 10'000'000'000};
  scribble_over(config);
}

TEST(ProcessesStress, writing_over_the_registers_of_deterministic_clients_costs_answers_only) {
  EmulatorConfig config;
  config.schedule = Schedule::deterministic;
  config.run_in_submission = true;
  config.seed = 3;
  scribble_over(config);
}

/// Submits batches of moves. With `ended_at_once`, each must have ended when its submission
/// returns.
int submit_batches(std::span<std::byte> memory, bool ended_at_once) {
  constexpr std::size_t kMembers = 16;
  auto client = Client::attach(memory, process_memory());
  if (!client || !(*client)->start()) return 2;
  Completions completions(kMembers + 1);
  const std::vector<std::byte> source(64 << 10, std::byte{7});
  std::vector<std::byte> target(source.size() * kMembers);
  std::vector<dsa::Descriptor> members;
  for (std::size_t i = 0; i < kMembers; ++i) {
    const auto at = std::span(target).subspan(i * source.size(), source.size());
    members.push_back(completions.move(i, at, source));
  }
  for (int round = 0; round < 200; ++round) {
    completions.clear(kMembers);
    while (!(*client)->enqueue(kDevice, kQueue, completions.batch(kMembers, members))) {
      std::this_thread::yield();
    }
    if (ended_at_once && completions.status(kMembers) == 0) return 3;
    if (completions.await(kMembers) != 1) return 4;
  }
  client->reset();
  return target.back() == std::byte{7} ? 0 : 5;
}

TEST(ProcessesStress, two_clients_with_batches_leave_nothing_behind_with_and_without_a_seed) {
  for (const Schedule schedule : {Schedule::deterministic, Schedule::free_running}) {
    for (const std::uint32_t engines : {1U, 4U}) {
      const bool seeded = schedule == Schedule::deterministic;
      const std::span<std::byte> memory = shared_memory();
      EmulatorConfig config;
      config.schedule = schedule;
      config.run_in_submission = seeded;
      config.seed = test::seed();
      Control control = make_control(memory, one_queue({.engines = engines}), config);
      std::array<pid_t, 2> children{};
      for (pid_t& child : children) {
        child = ::fork();
        if (child == 0) ::_exit(submit_batches(memory, seeded));
      }
      for (const pid_t child : children) {
        int status = -1;
        ::waitpid(child, &status, 0);
        EXPECT_EQ(status, 0) << (seeded ? "with" : "without") << " a seed, engines: " << engines;
      }
      EXPECT_EQ(control.occupancy(kDevice, kQueue), 0U);
      ::munmap(memory.data(), memory.size());
    }
  }
}

TEST(ProcessesStress, with_a_seed_a_reset_aborts_what_a_halted_device_holds) {
  const std::span<std::byte> memory = shared_memory();
  EmulatorConfig config;
  config.schedule = Schedule::deterministic;
  config.run_in_submission = true;
  auto script = parse_fault_script("[[fault]]\nkind = 'halt'\nnth = 2\n", "faults.toml");
  ASSERT_TRUE(script);
  config.faults = *script;
  Control control = make_control(memory, one_queue(), config);
  auto client = Client::attach(memory, process_memory());
  ASSERT_TRUE(client);
  ASSERT_TRUE((*client)->start());
  Completions completions(2);
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_TRUE((*client)->enqueue(kDevice, kQueue, completions.noop(i)));
  }
  EXPECT_EQ(completions.status(0), 1);
  EXPECT_EQ(completions.status(1), 0);
  control.reset(kDevice);
  EXPECT_EQ(completions.await(1), 0xff);
  client->reset();
  ::munmap(memory.data(), memory.size());
}

TEST(ProcessesStress, a_hundred_clients_share_a_queue) {
  const std::span<std::byte> memory = shared_memory();
  Control control = make_control(memory, one_queue({.size = 32, .engines = 2}));
  std::vector<pid_t> children;
  for (int i = 0; i < 100; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(200);
      auto client = Client::attach(memory, process_memory());
      if (!client) ::_exit(2);
      if (!(*client)->start()) ::_exit(2);
      Completions completions(1);
      for (int round = 0; round < 20; ++round) {
        completions.clear(0);
        while (!(*client)->enqueue(kDevice, kQueue, completions.noop(0))) {
          std::this_thread::yield();
        }
        if (completions.await(0) != 1) ::_exit(3);
      }
      client->reset();
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(control.occupancy(kDevice, kQueue), 0U);
  EXPECT_EQ(control.statistics().client_count, 100U);
  EXPECT_EQ(control.statistics().devices[0].queues[0].accepted_count, 2000U);
}

}  // namespace
}  // namespace headrace::emu::processes_stress_test
