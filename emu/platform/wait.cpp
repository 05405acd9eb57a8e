// SPDX-License-Identifier: Apache-2.0
#include "emu/platform/wait.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

#include "headrace/base/clock.hpp"

namespace headrace::emu::platform {
namespace {

static_assert(sizeof(Atomic<std::uint32_t>) == sizeof(std::uint32_t), "a futex is 32 bits wide");

}  // namespace

void sleep_on(const Atomic<std::uint32_t>& word, std::uint32_t old,
              std::chrono::nanoseconds wait_max) noexcept {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(wait_max);
  const timespec limit{seconds.count(), (wait_max - seconds).count()};
  const int saved = errno;  // We may be in a signal handler.
  ::syscall(SYS_futex, &word, FUTEX_WAIT, old, &limit, nullptr, 0);
  errno = saved;
}

void wake(const Atomic<std::uint32_t>& word, std::uint32_t count_max) noexcept {
  const int saved = errno;
  ::syscall(SYS_futex, &word, FUTEX_WAKE, count_max, nullptr, nullptr, 0);
  errno = saved;
}

std::uint64_t now_ns() noexcept {
  return static_cast<std::uint64_t>(SteadyClock::now().count());
}

void yield() noexcept {
  ::sched_yield();
}

void pause() noexcept {
  __builtin_ia32_pause();
}

}  // namespace headrace::emu::platform
