// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/futex.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>

namespace headrace::platform {

static_assert(sizeof(Atomic<std::uint32_t>) == sizeof(std::uint32_t), "the kernel reads the word");

void sleep_on_word(Atomic<std::uint32_t>& word, std::uint32_t value,
                   std::chrono::nanoseconds time_max) noexcept {
  if (time_max.count() <= 0) return;
  const int saved_errno = errno;
  timespec wanted{};
  wanted.tv_sec = static_cast<time_t>(time_max.count() / 1'000'000'000);
  wanted.tv_nsec = static_cast<long>(time_max.count() % 1'000'000'000);
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
