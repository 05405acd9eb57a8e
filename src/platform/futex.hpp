// SPDX-License-Identifier: Apache-2.0
// Sleeping on a word in memory shared by processes, or on one that may be freed before its sleepers
// are woken. For other words use Atomic::wait_acquire.
#pragma once

#include <chrono>
#include <cstdint>

#include "headrace/base/atomic.hpp"

namespace headrace::platform {

/// Sleeps while `word` holds `value`, for at most `time_max`; a signal or a spurious wake-up ends
/// it too, so the caller must check again.
void sleep_on_word(Atomic<std::uint32_t>& word, std::uint32_t value,
                   std::chrono::nanoseconds time_max) noexcept;
/// Wakes every thread of any process that sleeps on the word at `address`. Does not read the word:
/// its memory may be unmapped or reused (a spurious wake-up for its new sleepers).
void wake_sleepers_at(const void* address) noexcept;
/// As above, for a live word.
inline void wake_sleepers(Atomic<std::uint32_t>& word) noexcept {
  wake_sleepers_at(&word);
}

}  // namespace headrace::platform
