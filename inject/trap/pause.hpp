// SPDX-License-Identifier: Apache-2.0
// Pause: UMONITOR, UMWAIT and TPAUSE. A thread may watch a line of memory and sleep until it is
// written, or until a time; here it looks at the line and gives the processor away in between.
#pragma once

#include <cstdint>

namespace headrace::emu {

/// UMONITOR. False if there is no memory at `address`.
[[nodiscard]] bool watch(std::uint64_t address) noexcept;
/// UMWAIT: returns when the watched line has changed, at `deadline` (time-stamp counter), or when
/// the operating system's limit is reached: then true. Nothing watched: at once.
[[nodiscard]] bool wait_watched(std::uint64_t deadline) noexcept;
/// TPAUSE: the same without a line.
[[nodiscard]] bool wait_until(std::uint64_t deadline) noexcept;

}  // namespace headrace::emu
