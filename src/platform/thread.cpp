// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/thread.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>

#include <array>
#include <bit>
#include <climits>
#include <cstdlib>

#include "headrace/base/atomic.hpp"
#include "headrace/base/units.hpp"

namespace headrace::platform {
namespace {

/// As many processors as any kernel knows: more than one cpu_set_t holds.
using CpuSet = std::array<cpu_set_t, 8>;

Result<void> pin(pthread_t thread, std::span<const CpuId> cpus) {
  CpuSet set{};
  for (const CpuId cpu : cpus) CPU_SET_S(cpu.value(), sizeof set, set.data());
  if (const int error = ::pthread_setaffinity_np(thread, sizeof set, set.data()); error != 0) {
    return fail(Code::invalid_argument,
                fmt::format("pin a thread to {}", counted(cpus.size(), "processor")),
                "none of them may be used by this process",
                "choose processors that 'headrace topo' shows", error);
  }
  return {};
}

}  // namespace

namespace detail {
constinit thread_local std::uint32_t number_plus_one = 0;
constinit thread_local LastMine last_mine{};
namespace {

/// Bits of the numbers in use.
constinit std::array<Atomic<std::uint64_t>, kThreadNumberMax / 64> numbers_used{};
constinit Atomic<std::uint32_t> number_end{0};

std::uint32_t take_number() noexcept {
  for (std::uint32_t i = 0; i < numbers_used.size(); ++i) {
    std::uint64_t used = numbers_used[i].load_relaxed();  // The exchange below decides.
    while (~used != 0) {
      // edge: thread-number-freed (acquire)
      if (!numbers_used[i].compare_exchange_acq_rel(used, used | (used + 1))) continue;
      const std::uint32_t number = i * 64 + static_cast<std::uint32_t>(std::countr_one(used));
      std::uint32_t end = number_end.load_relaxed();  // The exchange decides.
      // seq_cst: as the accesses to what the thread has, where there are no heavy barriers.
      while (end <= number && !number_end.compare_exchange_seq_cst(end, number + 1)) {
      }
      return number;
    }
  }
  return kThreadNumberMax;
}

/// Frees the number of a thread at its end.
///
/// Threading: owned.
struct NumberEnd {
  std::uint32_t number;
  ~NumberEnd() {
    number_plus_one = kThreadNumberMax + 1;
    last_mine = {};  // The next thread with this number writes to its objects.
    if (number == kThreadNumberMax) return;
    // edge: thread-number-freed (release)
    numbers_used[number / 64].fetch_and_acq_rel(~(std::uint64_t{1} << number % 64));
  }
};

}  // namespace

std::uint32_t number_this_thread() noexcept {
  if (!can_end_objects()) return kThreadNumberMax;  // Until there is.
  thread_local const NumberEnd kEnd{take_number()};
  number_plus_one = kEnd.number + 1;
  return kEnd.number;
}

}  // namespace detail

bool can_end_objects() noexcept {
  // More than the C library keeps for the thread: calloc() does not look there.
  void* const volatile memory = std::malloc(4096);
  std::free(memory);
  return memory != nullptr;
}

std::uint32_t thread_number_end() noexcept {
  return detail::number_end.load_seq_cst();
}

SignalBlock::SignalBlock() noexcept {
  sigset_t sent;
  ::sigfillset(&sent);
  for (const int raised : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS}) {
    ::sigdelset(&sent, raised);
  }
  ::pthread_sigmask(SIG_BLOCK, &sent, &before_);
}

SignalBlock::~SignalBlock() {
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::vector<CpuId> allowed_cpus() {
  std::vector<CpuId> cpus;
  CpuSet set{};
  ::sched_getaffinity(0, sizeof set, set.data());  // On failure the set stays empty.
  for (std::uint32_t cpu = 0; cpu < CHAR_BIT * sizeof set; ++cpu) {
    if (CPU_ISSET_S(cpu, sizeof set, set.data())) cpus.emplace_back(cpu);
  }
  if (cpus.empty()) cpus.push_back(current_cpu().value_or(CpuId(0)));
  return cpus;
}

Result<void> pin_this_thread(std::span<const CpuId> cpus) {
  return pin(::pthread_self(), cpus);
}

Result<void> pin_thread(std::thread& thread, std::span<const CpuId> cpus) {
  return pin(thread.native_handle(), cpus);
}

std::optional<CpuId> current_cpu() {
  // Just a load if the C library registered a restartable sequence (rseq) for the thread.
  const int cpu = ::sched_getcpu();
  return cpu < 0 ? std::nullopt : std::optional(CpuId(static_cast<std::uint32_t>(cpu)));
}

std::optional<NodeId> current_node() {
  unsigned cpu = 0;
  unsigned node = 0;
  if (::getcpu(&cpu, &node) != 0) return std::nullopt;
  return NodeId(node);
}

std::chrono::nanoseconds thread_cpu_time() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

std::uint64_t thread_sleep_count() noexcept {
  rusage used{};
  ::getrusage(RUSAGE_THREAD, &used);
  return static_cast<std::uint64_t>(used.ru_nvcsw);
}

void name_this_thread(const std::string& name) {
  ::pthread_setname_np(::pthread_self(), name.substr(0, 15).c_str());
}

}  // namespace headrace::platform
