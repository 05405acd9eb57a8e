// SPDX-License-Identifier: Apache-2.0
// Waiting for another agent to write to a line of memory, in a low-power state: UMONITOR and UMWAIT
// where available, a pause elsewhere; and sleeping.
#pragma once

#include <chrono>
#include <cstdint>

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

}  // namespace headrace::platform
