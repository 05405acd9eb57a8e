// SPDX-License-Identifier: Apache-2.0
// Futex waits on words shared between processes, and their clock. Every wait has a limit: the
// waking thread may have been killed between its store and its system call.
#pragma once

#include <chrono>
#include <cstdint>

#include "headrace/base/atomic.hpp"

namespace headrace::emu::platform {

/// Sleeps while `word` equals `old`, at most `wait_max`. May return spuriously. Async-signal-safe.
void sleep_on(const Atomic<std::uint32_t>& word, std::uint32_t old,
              std::chrono::nanoseconds wait_max) noexcept;
/// Wakes up to `count_max` sleepers of `word`, in any process. Async-signal-safe.
void wake(const Atomic<std::uint32_t>& word, std::uint32_t count_max) noexcept;
/// The monotonic clock, common to all processes. Async-signal-safe.
[[nodiscard]] std::uint64_t now_ns() noexcept;
void yield() noexcept;
void pause() noexcept;

}  // namespace headrace::emu::platform
