// SPDX-License-Identifier: Apache-2.0
// The processor's own count of time: a few instructions where the system's clock takes a hundred.
// For latencies and deadlines on the data path. Not for: agreement with any other clock.
#pragma once

#include <chrono>
#include <cstdint>

namespace headrace::platform {

/// Ticks since an origin that means nothing. Monotonic where the processor's counter is invariant
/// and the kernel keeps those of its cores together, as on every processor that has a DSA.
[[nodiscard]] inline std::uint64_t ticks() noexcept {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

/// Ticks in one second, measured against the steady clock the first time it is asked.
///
/// Cost: two milliseconds once.
[[nodiscard]] double ticks_per_second() noexcept;

[[nodiscard]] inline std::uint64_t to_ticks(std::chrono::nanoseconds time) noexcept {
  return static_cast<std::uint64_t>(static_cast<double>(time.count()) * 1e-9 * ticks_per_second());
}

}  // namespace headrace::platform
