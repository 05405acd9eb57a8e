// SPDX-License-Identifier: Apache-2.0
// Sleeping on a word that lies in memory shared by processes, or that is gone when its sleepers are
// woken. Others have Atomic::wait_acquire.
#pragma once

#include <chrono>
#include <cstdint>

#include "headrace/base/atomic.hpp"

namespace headrace::platform {

/// Sleeps while `word` holds `value`, for at most `time_max`; also returns for a signal, or for no
/// reason. The caller looks again.
void sleep_on_word(Atomic<std::uint32_t>& word, std::uint32_t value,
                   std::chrono::nanoseconds time_max) noexcept;
/// Wakes every thread, of any process, that sleeps on the word at `address`, which is not read: its
/// memory may be gone, or be something else by now, whose sleepers wake for no reason.
void wake_sleepers_at(const void* address) noexcept;
/// As above, of a word that is there.
inline void wake_sleepers(Atomic<std::uint32_t>& word) noexcept {
  wake_sleepers_at(&word);
}

}  // namespace headrace::platform
