// SPDX-License-Identifier: Apache-2.0
// Waiting for another agent to write to a line of memory, with the processor at rest: UMONITOR and
// UMWAIT where there are such, a pause elsewhere; and sleeping.
#pragma once

#include <chrono>
#include <cstdint>

namespace headrace::platform {

/// UMONITOR and UMWAIT, as the two functions below describe them.
struct LineWait {
  void (*watch)(const void* address) noexcept;
  void (*wait)(std::uint64_t until_ticks) noexcept;
};
/// The instructions themselves: they end a program whose processor lacks them.
extern const LineWait kLineWait;
/// For tests: what is to be taken for the instructions from now on; null: the processor's own if it
/// has them. Before other threads wait.
void replace_line_wait(const LineWait* other) noexcept;

/// True if the processor has UMONITOR and UMWAIT (CPUID: WAITPKG, asked once).
[[nodiscard]] bool has_line_wait() noexcept;

/// Begins to watch the line of `address`. The caller must look at it again between this call and
/// wait_for_line(), because earlier writes are not noticed.
void watch_line(const void* address) noexcept;

/// Rests until the watched line was written to, or `until_ticks` (ticks.hpp), or anything else that
/// the processor takes for a reason, whichever is first. Only if has_line_wait().
void wait_for_line(std::uint64_t until_ticks) noexcept;

/// Gives the processor away for about so long.
void sleep(std::chrono::nanoseconds time) noexcept;

}  // namespace headrace::platform
