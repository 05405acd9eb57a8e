// SPDX-License-Identifier: Apache-2.0
// Sleeping on a word that processes share, and the clock for it. Every wait has a limit: the thread
// that should wake us may have been killed between its store and its call.
#pragma once

#include <chrono>
#include <cstdint>

#include "headrace/base/atomic.hpp"

namespace headrace::emu::platform {

/// Sleeps while `word` equals `old`, at most `wait_max`. May return early for no reason.
/// Async-signal-safe.
void sleep_on(const Atomic<std::uint32_t>& word, std::uint32_t old,
              std::chrono::nanoseconds wait_max) noexcept;
/// Wakes up to `count_max` sleepers of `word`, in any process. Async-signal-safe.
void wake(const Atomic<std::uint32_t>& word, std::uint32_t count_max) noexcept;
/// CLOCK_MONOTONIC, which all processes of the machine share. Async-signal-safe.
[[nodiscard]] std::uint64_t now_ns() noexcept;
/// Lets another thread have the processor.
void yield() noexcept;
/// Tells the processor that this is a spin loop.
void pause() noexcept;

}  // namespace headrace::emu::platform
