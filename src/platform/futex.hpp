// SPDX-License-Identifier: Apache-2.0
// Sleeping on a word that lies in memory shared by processes. Not for threads of one process, which
// have Atomic::wait_acquire.
#pragma once

#include <chrono>
#include <cstdint>

#include "headrace/base/atomic.hpp"

namespace headrace::platform {

/// Sleeps while `word` holds `value`, for at most `time_max`; also returns for a signal, or for no
/// reason. The caller looks again.
void sleep_on_word(Atomic<std::uint32_t>& word, std::uint32_t value,
                   std::chrono::nanoseconds time_max) noexcept;
/// Wakes every thread, of any process, that sleeps on `word`.
void wake_sleepers(Atomic<std::uint32_t>& word) noexcept;

}  // namespace headrace::platform
