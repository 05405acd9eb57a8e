// SPDX-License-Identifier: Apache-2.0
// Waiting for another agent to write to a line of memory, in a low-power state: UMONITOR and UMWAIT
// where available, a pause elsewhere; and sleeping, also on a word in memory shared by processes,
// or on one that may be freed before its sleepers are woken. For other words use
// Atomic::wait_acquire.
#pragma once

#include <chrono>
#include <cstdint>

#include "headrace/base/atomic.hpp"

namespace headrace::platform {

/// UMONITOR and UMWAIT, as the two functions below describe them.
struct LineWait {
  void (*watch)(const void* address) noexcept;
  void (*wait)(std::uint64_t until_ticks) noexcept;
};
/// The instructions themselves: illegal on a processor without them.
extern const LineWait kLineWait;
/// For tests: replaces the instructions; null restores the processor's. Call it before other
/// threads wait.
void replace_line_wait(const LineWait* other) noexcept;

/// True if the processor has UMONITOR and UMWAIT (CPUID: WAITPKG, checked once).
[[nodiscard]] bool has_line_wait() noexcept;

/// Starts monitoring the line of `address`. The caller must read it again between this call and
/// wait_for_line(), because earlier writes go unnoticed.
void watch_line(const void* address) noexcept;

/// Waits until the monitored line is written, until `until_ticks` (ticks.hpp), or for any other
/// wake-up event of the processor, whichever is first. Only if has_line_wait().
void wait_for_line(std::uint64_t until_ticks) noexcept;

/// Sleeps for about `time`; a signal may end it early.
void sleep(std::chrono::nanoseconds time) noexcept;

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
