// SPDX-License-Identifier: Apache-2.0
// The processor's own count of time: a few instructions where the system's clock takes a hundred.
// For latencies and deadlines on the data path. Not for: agreement with any other clock.
#pragma once

#include <chrono>
#include <cstddef>
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

/// Ticks that a load of the byte takes, with what lies around it in a few instructions: tens from a
/// cache, hundreds from memory, thousands if the page has to be made. Zero where nothing counts so
/// finely.
[[nodiscard]] inline std::uint32_t load_ticks(const std::byte* place) noexcept {
#if defined(__x86_64__)
  // lfence waits for the loads before it, and holds back what comes after it.
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  asm volatile(
      "lfence\n\trdtsc\n\tmovl %%eax, %0\n\tmovzbl (%2), %%ecx\n\tlfence\n\trdtsc\n\tmovl %%eax, %1"
      : "=&r"(begin), "=&r"(end)
      : "r"(place)
      : "rax", "rcx", "rdx", "memory");
  return end - begin;
#else
  static_cast<void>(place);
  return 0;
#endif
}

/// False if reading the counter would end this process (PR_SET_TSC), or there is none.
[[nodiscard]] bool may_read_ticks() noexcept;

/// Ticks in one second, measured against the steady clock the first time it is asked.
///
/// Cost: two milliseconds once.
[[nodiscard]] double ticks_per_second() noexcept;

[[nodiscard]] inline std::uint64_t to_ticks(std::chrono::nanoseconds time) noexcept {
  return static_cast<std::uint64_t>(static_cast<double>(time.count()) * 1e-9 * ticks_per_second());
}

}  // namespace headrace::platform
