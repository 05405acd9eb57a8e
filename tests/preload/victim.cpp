// SPDX-License-Identifier: Apache-2.0
// An unmodified program without Headrace code: moves, fills and compares in every situation that a
// program can be in, and checks the bytes. Prints what is wrong and exits with 1.
#include <execinfo.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

extern "C" {
void* __memcpy_chk(void*, const void*, std::size_t, std::size_t) noexcept;
void* __mempcpy_chk(void*, const void*, std::size_t, std::size_t) noexcept;
void* __memmove_chk(void*, const void*, std::size_t, std::size_t) noexcept;
void* __memset_chk(void*, int, std::size_t, std::size_t) noexcept;
bool early_was_right();
}

namespace {

#define EXPECT(condition)                                               \
  do {                                                                  \
    if (!(condition)) {                                                 \
      std::fprintf(stderr, "%d: not true: %s\n", __LINE__, #condition); \
      std::_Exit(1);                                                    \
    }                                                                   \
  } while (false)

constexpr std::size_t kRoom = 300'000;
constexpr std::size_t kMargin = 128;

/// Buffers of one thread, and their expected content.
struct Places {
  unsigned char* memory = static_cast<unsigned char*>(
      ::mmap(nullptr, 3 * kRoom, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  unsigned char* right = memory + kRoom;
  unsigned char* other = memory + 2 * kRoom;
  std::uint32_t state = 1;

  Places() = default;
  Places(const Places&) = delete;
  Places& operator=(const Places&) = delete;
  ~Places() { ::munmap(memory, 3 * kRoom); }

  unsigned char next() {
    state = state * 1664525U + 1013904223U;
    return static_cast<unsigned char>(state >> 24U);
  }
  void begin(std::size_t byte_count) {
    for (std::size_t i = 0; i < byte_count; ++i) memory[i] = right[i] = next();
  }
  void expect_right(std::size_t byte_count) const {
    for (std::size_t i = 0; i < byte_count; ++i) EXPECT(memory[i] == right[i]);
  }
};

/// The four functions on one length, disjoint and overlapping.
void check_length(Places& places, std::size_t length) {
  const std::size_t all = 2 * length + 3 * kMargin;
  for (const std::size_t shift : {std::size_t{1}, length / 2 + 3, length + 5}) {
    for (const bool down : {false, true}) {
      places.begin(all);
      const std::size_t from = down ? kMargin + shift : kMargin;
      const std::size_t to = down ? kMargin : kMargin + shift;
      for (std::size_t i = 0; i < length; ++i) {
        const std::size_t at = down ? i : length - 1 - i;
        places.right[to + at] = places.right[from + at];
      }
      void* const target = places.memory + to;
      const bool disjoint = shift >= length;
      void* const returned = disjoint ? std::memcpy(target, places.memory + from, length)
                                      : std::memmove(target, places.memory + from, length);
      EXPECT(returned == target);
      places.expect_right(all);
    }
  }
  places.begin(all);
  for (std::size_t i = 0; i < length; ++i) places.right[kMargin + i] = 0xA5;
  EXPECT(std::memset(places.memory + kMargin, 0x7A5, length) == places.memory + kMargin);
  places.expect_right(all);
  std::memcpy(places.other, places.memory, all);
  EXPECT(std::memcmp(places.memory, places.other, all) == 0);
  if (length != 0) {
    for (const std::size_t at : {all - 1, all / 2, std::size_t{3}}) {
      places.other[at] = static_cast<unsigned char>(places.memory[at] ^ 0x80U);
      const int order = std::memcmp(places.memory, places.other, all);
      EXPECT(order != 0 && (order < 0) == (places.memory[at] < places.other[at]));
      EXPECT(::bcmp(places.memory, places.other, all) != 0);
    }
  }
  EXPECT(::mempcpy(places.other, places.memory, length) == places.other + length);
  EXPECT(::bcmp(places.memory, places.other, length) == 0);
  EXPECT(__mempcpy_chk(places.other, places.memory + 1, length, length) == places.other + length);
  EXPECT(::bcmp(places.memory + 1, places.other, length) == 0);
  EXPECT(__memcpy_chk(places.other, places.memory, length, kRoom) == places.other);
  EXPECT(std::memcmp(places.memory, places.other, length) == 0);
  EXPECT(__memmove_chk(places.other, places.memory + 1, length, kRoom) == places.other);
  EXPECT(std::memcmp(places.memory + 1, places.other, length) == 0);
  EXPECT(__memset_chk(places.other, 9, length, length) == places.other);
  for (std::size_t i = 0; i < length; ++i) EXPECT(places.other[i] == 9);
}

int all_lengths() {
  Places places;
  for (std::size_t length = 0; length < 600; ++length) check_length(places, length);
  for (std::size_t length = 1024; length <= 131072; length *= 2) {
    check_length(places, length - 1);
    check_length(places, length);
    check_length(places, length + 17);
  }
  return 0;
}

int some_lengths() {
  Places places;
  for (const std::size_t length : {0UL, 31UL, 4096UL, 5000UL, 70'001UL}) {
    check_length(places, length);
  }
  return 0;
}

int early() {
  EXPECT(early_was_right());
  return some_lengths();
}

/// Number of repetitions, if the caller sets it.
int repetitions = 0;

int threads() {
  pthread_t each[8];
  for (pthread_t& thread : each) {
    EXPECT(::pthread_create(
               &thread, nullptr,
               [](void*) -> void* {
                 const int count = repetitions != 0 ? repetitions : 20;
                 for (int i = 0; i < count; ++i) some_lengths();
                 return nullptr;
               },
               nullptr) == 0);
  }
  for (const pthread_t thread : each) ::pthread_join(thread, nullptr);
  return 0;
}

Places* of_handler = nullptr;
volatile sig_atomic_t handled = 0;

int handlers() {
  // Runs on an alternate stack, at any point of the program.
  static Places places;
  of_handler = &places;
  static char alternate[64 << 10];
  stack_t stack{};
  stack.ss_sp = alternate;
  stack.ss_size = sizeof alternate;
  EXPECT(::sigaltstack(&stack, nullptr) == 0);
  struct sigaction action{};
  action.sa_handler = [](int) {
    check_length(*of_handler, 5000);
    handled = handled + 1;
  };
  action.sa_flags = SA_ONSTACK | SA_RESTART;
  EXPECT(::sigaction(SIGALRM, &action, nullptr) == 0);
  // If a copy takes longer than the interval, the program would make no progress.
  const useconds_t interval = repetitions != 0 ? 0 : 500;
  const int count = repetitions != 0 ? repetitions : 200;
  while (handled < count) {
    ::ualarm(500, interval);
    some_lengths();
  }
  ::ualarm(0, 0);
  return 0;
}

int wait_for(pid_t child) {
  int status = 0;
  EXPECT(::waitpid(child, &status, 0) == child);
  return status;
}

char program_path[4096];

int forks() {
  for (int i = 0; i < 10; ++i) {
    const pid_t child = ::fork();
    if (child == 0) std::_Exit(some_lengths());
    EXPECT(wait_for(child) == 0);
  }
  // A child of vfork shares the memory, and execs.
  const pid_t child = ::vfork();
  if (child == 0) {
    static char copied[9000];
    static char zeroes[9000];
    std::memcpy(copied, zeroes, sizeof copied);
    ::execl(program_path, program_path, "some_lengths", nullptr);
    ::_exit(99);
  }
  EXPECT(wait_for(child) == 0);
  return some_lengths();
}

/// Runs in a child, which reports to the parent whether a copy of this length is correct.
int forked_copy() {
  Places places;
  for (int i = 0; i < 3; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (int j = 0; j < 10; ++j) check_length(places, 80'000);
      std::_Exit(0);
    }
    EXPECT(wait_for(child) == 0);
  }
  return 0;
}

/// Forks and execs while another thread has copies in flight.
int forks_meanwhile() {
  static bool done = false;
  pthread_t copier{};
  EXPECT(::pthread_create(
             &copier, nullptr,
             [](void*) -> void* {
               Places places;
               while (!__atomic_load_n(&done, __ATOMIC_RELAXED)) check_length(places, 90'000);
               return nullptr;
             },
             nullptr) == 0);
  Places places;
  for (int i = 0; i < 10; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      check_length(places, 80'000);
      if (i % 2 == 0) std::_Exit(0);
      ::execl(program_path, program_path, "some_lengths", nullptr);
      ::_exit(99);
    }
    EXPECT(wait_for(child) == 0);
  }
  __atomic_store_n(&done, true, __ATOMIC_RELAXED);
  ::pthread_join(copier, nullptr);
  return 0;
}

/// A handler that interrupts a copy forks, and both processes continue the copy.
int forking_handlers() {
  static volatile sig_atomic_t children = 0;
  struct sigaction action{};
  action.sa_handler = [](int) {
    const int kept = errno;
    const pid_t child = ::fork();
    if (child == 0) {
      // The child forks no further: it continues the interrupted copy.
      ::ualarm(0, 0);
      children = -1;
    } else {
      children = children + 1;
    }
    errno = kept;
  };
  action.sa_flags = SA_RESTART;
  EXPECT(::sigaction(SIGALRM, &action, nullptr) == 0);
  Places places;
  const int count = repetitions != 0 ? repetitions : 20;
  while (children >= 0 && children < count) {
    ::ualarm(300, 0);
    for (int i = 0; i < 5; ++i) check_length(places, 90'000);
  }
  if (children < 0) std::_Exit(0);
  ::ualarm(0, 0);
  int status = 0;
  while (::wait(&status) > 0) EXPECT(status == 0);
  return 0;
}

/// The fault is reported at the absent page, and all bytes before it have been copied.
int copy_beyond(bool from) {
  constexpr std::size_t kLength = 64 << 10U;
  constexpr std::size_t kThere = 12 << 10U;
  static Places places;
  static unsigned char* range = nullptr;
  range = static_cast<unsigned char*>(
      ::mmap(nullptr, kLength, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::memset(range, 3, kLength);
  EXPECT(::munmap(range + kThere, kLength - kThere) == 0);
  struct sigaction action{};
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = [](int, siginfo_t* info, void*) {
    auto* const address = static_cast<unsigned char*>(info->si_addr);
    std::_Exit(address >= range + kThere && address < range + kLength ? 0 : 1);
  };
  EXPECT(::sigaction(SIGSEGV, &action, nullptr) == 0);
  volatile std::size_t length = kLength;
  if (from) std::memcpy(places.memory, range, length);
  if (!from) std::memcpy(range, places.memory, length);
  return 1;
}

/// Calls that the compiler must assume may throw.
using Copy = void* (*)(void*, const void*, std::size_t);
volatile Copy copy_function = &std::memcpy;

/// Return address of the copying function; an unwinder in a handler must find it.
void* volatile place_beyond = nullptr;
volatile sig_atomic_t traces = 0;
volatile sig_atomic_t traces_cut_short = 0;

void take_trace() {
  void* places[64];
  const int count = ::backtrace(places, 64);
  bool found = false;
  for (int i = 0; i < count; ++i) found = found || places[i] == place_beyond;
  traces = traces + 1;
  if (!found) traces_cut_short = traces_cut_short + 1;
}

struct NotThere {};

[[gnu::noinline]] void copy_until(Places& places, bool (*is_done)()) {
  place_beyond = __builtin_return_address(0);
  for (int i = 0; !is_done(); ++i) {
    copy_function(places.other, places.memory, 100U << static_cast<unsigned>(i % 11));
  }
}

/// Returns true if the handler's exception propagates here, through the copy.
[[gnu::noinline]] bool copy_from_nowhere_and_catch(Places& places, unsigned char* range,
                                                   std::size_t byte_count) {
  place_beyond = __builtin_return_address(0);
  try {
    copy_function(places.memory, range, byte_count);
  } catch (const NotThere&) {
    return true;
  }
  return false;
}

/// Backtraces and exceptions unwind through a copy interrupted by a signal.
int unwinds() {
  static Places places;
  take_trace();  // Loads the unwinder outside of handlers.
  traces = 0;
  traces_cut_short = 0;
  struct sigaction action{};
  action.sa_handler = [](int) { take_trace(); };
  action.sa_flags = SA_RESTART;
  EXPECT(::sigaction(SIGPROF, &action, nullptr) == 0);
  const itimerval often{{0, 1000}, {0, 1000}};
  const itimerval never{};
  place_beyond = nullptr;
  ::setitimer(ITIMER_PROF, &often, nullptr);
  copy_until(places, [] { return traces >= 100; });
  ::setitimer(ITIMER_PROF, &never, nullptr);
  // One may come before or behind the copies.
  EXPECT(traces_cut_short <= 2);

  constexpr std::size_t kLength = 64 << 10U;
  auto* const range = static_cast<unsigned char*>(
      ::mmap(nullptr, kLength, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  EXPECT(::mprotect(range + 4096, kLength - 4096, PROT_NONE) == 0);
  action.sa_handler = [](int) {
    take_trace();
    throw NotThere();
  };
  action.sa_flags = SA_NODEFER;
  EXPECT(::sigaction(SIGSEGV, &action, nullptr) == 0);
  for (std::size_t length = 4200; length < kLength; length += 997) {
    traces = 0;
    traces_cut_short = 0;
    EXPECT(copy_from_nowhere_and_catch(places, range, length));
    EXPECT(traces == 1 && traces_cut_short == 0);
  }
  return 0;
}

/// From now on a system call that copies do not need ends the process. The emulator's are allowed;
/// its threads are already running.
int confined() {
  static Places places;
  check_length(places, 70'001);
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_yield, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  const sock_fprog program{sizeof filter / sizeof *filter, filter};
  EXPECT(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  EXPECT(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
  for (int i = 0; i < 20; ++i) check_length(places, 70'001);
  // A child opens nothing, either.
  const pid_t child = ::fork();
  if (child == 0) {
    check_length(places, 70'001);
    std::_Exit(0);
  }
  EXPECT(wait_for(child) == 0);
  return 0;
}

int overflow() {
  for (int which = 0; which < 4; ++which) {
    const pid_t child = ::fork();
    if (child == 0) {
      const int nowhere = ::open("/dev/null", O_WRONLY);
      ::dup2(nowhere, 2);
      char room[64];
      const char source[64] = {};
      volatile std::size_t length = 65;
      if (which == 0) __memcpy_chk(room, source, length, sizeof room);
      if (which == 1) __memmove_chk(room, source, length, sizeof room);
      if (which == 2) __memset_chk(room, 0, length, sizeof room);
      if (which == 3) __mempcpy_chk(room, source, length, sizeof room);
      std::_Exit(0);
    }
    const int status = wait_for(child);
    EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  }
  return 0;
}

/// The stderr descriptor now refers to a data file, which must stay unchanged however the child
/// ends.
int data_where_messages_were() {
  const int data = ::memfd_create("data", 0);
  EXPECT(data >= 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(data, STDERR_FILENO);
    some_lengths();
    std::_Exit(0);
  }
  const int status = wait_for(child);
  EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  EXPECT(::lseek(data, 0, SEEK_END) == 0);
  return 0;
}

/// Ends by a signal, with all files closed.
int ends_by(int number) {
  some_lengths();
  for (int descriptor = 0; descriptor < 64; ++descriptor) ::close(descriptor);
  ::raise(number);
  return 1;
}

/// From now on no memory of this process, nor of what it execs, becomes executable by mprotect.
int without_executable_memory() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{sizeof filter / sizeof *filter, filter};
  EXPECT(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  EXPECT(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
  ::execl(program_path, program_path, "some_lengths", nullptr);
  return 1;
}

/// Makes `count` equal calls.
int call_repeatedly(char third_letter, std::size_t byte_count, int count) {
  static char target[65536];
  static char source[65536];
  int differs = 0;
  for (int i = 0; i < count; ++i) {
    if (third_letter == 'l') {  // "fill"
      std::memset(target, i, byte_count);
    } else if (third_letter == 'm') {  // "compare"
      differs |= std::memcmp(target, source, byte_count);
    } else {
      std::memcpy(target, source, byte_count);
    }
  }
  return differs;
}

}  // namespace

/// When it returns, valgrind writes down what it has counted, and begins again.
extern "C" [[gnu::noinline]] void headrace_counted_until_here() {
  asm volatile("" ::: "memory");
}

int main(int argument_count, char** arguments) {
  EXPECT(argument_count >= 2);
  const ssize_t length = ::readlink("/proc/self/exe", program_path, sizeof program_path - 1);
  EXPECT(length > 0);
  const char* const scenario = arguments[1];
  if (argument_count > 2) repetitions = std::atoi(arguments[2]);
  const auto is = [&](const char* name) { return std::strcmp(scenario, name) == 0; };
  if (is("all_lengths")) return all_lengths();
  if (is("some_lengths")) return some_lengths();
  if (is("data_where_messages_were")) return data_where_messages_were();
  if (is("early")) return early();
  if (is("threads")) return threads();
  if (is("handlers")) return handlers();
  if (is("forks")) return forks();
  if (is("forks_meanwhile")) return forks_meanwhile();
  if (is("forking_handlers")) return forking_handlers();
  if (is("forked_copy")) return forked_copy();
  if (is("copy_from_nowhere")) return copy_beyond(true);
  if (is("copy_to_nowhere")) return copy_beyond(false);
  if (is("unwinds")) return unwinds();
  if (is("confined")) return confined();
  if (is("overflow")) return overflow();
  if (is("sigterm")) return ends_by(SIGTERM);
  if (is("sigkill")) return ends_by(SIGKILL);
  if (is("without_executable_memory")) return without_executable_memory();
  if (is("fill_repeatedly") || is("compare_repeatedly") || is("copy_repeatedly")) {
    // Lengths, the last one followed by how many calls of each.
    const int count = std::atoi(arguments[argument_count - 1]);
    int differs = 0;
    for (int i = 2; i + 1 < argument_count; ++i) {
      const std::size_t byte_count = std::strtoul(arguments[i], nullptr, 10);
      differs |= call_repeatedly(scenario[2], byte_count, 1);  // The first one resolves the symbol.
      headrace_counted_until_here();
      differs |= call_repeatedly(scenario[2], byte_count, count);
      headrace_counted_until_here();
    }
    return differs;
  }
  std::fprintf(stderr, "there is no scenario '%s'\n", scenario);
  return 2;
}
