// SPDX-License-Identifier: Apache-2.0
// InjectLock: a mutex of the injected libraries. Waiters sleep in the kernel, so that a waiter of
// higher real-time priority lets the holder run.
#pragma once

#include <linux/futex.h>

#include <cstdint>

#include "headrace/base/atomic.hpp"
#include "inject/kernel.hpp"

namespace headrace::inject {

/// Sleeps while `word` is `value`; may return early.
inline void sleep_while(Atomic<std::uint32_t>& word, std::uint32_t value) noexcept {
  kernel::call(__NR_futex, kernel::as_argument(&word), FUTEX_WAIT_PRIVATE,
               static_cast<long>(value));
}
inline void wake_all(Atomic<std::uint32_t>& word) noexcept {
  kernel::call(__NR_futex, kernel::as_argument(&word), FUTEX_WAKE_PRIVATE, INT32_MAX);
}

/// Zero means free, so it may be in memory that is zeroed in a child of fork. Not recursive: a
/// handler that locks it must not interrupt a holder in its own thread.
///
/// Threading: shared.
class InjectLock {
 public:
  constexpr InjectLock() = default;
  void lock() noexcept {
    std::uint32_t found = kFree;
    // edge: inject-lock (acq_rel)
    if (word_.compare_exchange_acq_rel(found, kHeld)) return;
    // edge: inject-lock (acq_rel)
    while (word_.exchange_acq_rel(kAwaited) != kFree) sleep_while(word_, kAwaited);
  }
  void unlock() noexcept {
    // edge: inject-lock (acq_rel)
    if (word_.exchange_acq_rel(kFree) == kAwaited) wake_all(word_);
  }

 private:
  enum : std::uint32_t { kFree, kHeld, kAwaited };
  Atomic<std::uint32_t> word_;
};

/// Holds a lock.
///
/// Threading: owned.
class Hold {
 public:
  explicit Hold(InjectLock& lock) noexcept : lock_(lock) { lock_.lock(); }
  Hold& operator=(Hold&&) = delete;
  ~Hold() { lock_.unlock(); }

 private:
  InjectLock& lock_;
};

}  // namespace headrace::inject
