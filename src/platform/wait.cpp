// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/wait.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>

#include "headrace/platform/cpu.hpp"

namespace headrace::platform {

namespace {

/// Set by a test.
Atomic<const LineWait*> replacement{nullptr};

void umonitor(const void* address) noexcept {
  // umonitor rax; as bytes for assemblers that lack it.
  asm volatile(".byte 0xf3, 0x0f, 0xae, 0xf0" : : "a"(address) : "memory");
}

void umwait(std::uint64_t until_ticks) noexcept {
  // umwait ecx, with the deadline in edx:eax. Bit 0 of ecx: the lighter state, which wakes sooner.
  asm volatile(".byte 0xf2, 0x0f, 0xae, 0xf1"
               :
               : "a"(static_cast<std::uint32_t>(until_ticks)),
                 "d"(static_cast<std::uint32_t>(until_ticks >> 32U)), "c"(1)
               : "memory", "cc");
}

const LineWait* line_wait() noexcept {
  // relaxed: it points to constants, or is set before other threads wait.
  const LineWait* const other = replacement.load_relaxed();
  if (other != nullptr) return other;
  return cpu_features().waitpkg ? &kLineWait : nullptr;
}

timespec to_timespec(std::chrono::nanoseconds time) noexcept {
  return {.tv_sec = static_cast<time_t>(time.count() / 1'000'000'000),
          .tv_nsec = static_cast<long>(time.count() % 1'000'000'000)};
}

}  // namespace

constinit const LineWait kLineWait{umonitor, umwait};

void replace_line_wait(const LineWait* other) noexcept {
  replacement.store_relaxed(other);  // As above.
}

bool has_line_wait() noexcept {
  return line_wait() != nullptr;
}

void watch_line(const void* address) noexcept {
  if (const LineWait* const by = line_wait()) by->watch(address);
}

void wait_for_line(std::uint64_t until_ticks) noexcept {
  if (const LineWait* const by = line_wait()) by->wait(until_ticks);
}

void sleep(std::chrono::nanoseconds time) noexcept {
  const timespec wanted = to_timespec(time);
  // An interrupted sleep is harmless: the caller checks and retries.
  static_cast<void>(::nanosleep(&wanted, nullptr));
}

static_assert(sizeof(Atomic<std::uint32_t>) == sizeof(std::uint32_t), "the kernel reads the word");

void sleep_on_word(Atomic<std::uint32_t>& word, std::uint32_t value,
                   std::chrono::nanoseconds time_max) noexcept {
  if (time_max.count() <= 0) return;
  const int saved_errno = errno;
  const timespec wanted = to_timespec(time_max);
  // Not FUTEX_PRIVATE_FLAG: the waker may be in another process.
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &wanted, nullptr, 0);
  errno = saved_errno;
}

void wake_sleepers_at(const void* address) noexcept {
  const int saved_errno = errno;
  ::syscall(SYS_futex, address, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  errno = saved_errno;
}

}  // namespace headrace::platform
