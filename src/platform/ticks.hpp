// SPDX-License-Identifier: Apache-2.0
// The processor's time-stamp counter, which is cheaper to read than the system's clock. For
// latencies and deadlines on the data path; not comparable with any other clock.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace headrace::platform {

/// Ticks since an unspecified origin. Monotonic if the processor's counter is invariant and
/// synchronised between cores, as on every processor with a DSA.
[[nodiscard]] inline std::uint64_t ticks() noexcept {
  return __builtin_ia32_rdtsc();
}

/// As ticks(), once what is before it has been done: a processor reads its counter early.
[[nodiscard]] inline std::uint64_t ticks_after() noexcept {
  __builtin_ia32_lfence();
  return ticks();
}

/// Ticks that a load of the byte takes, including a few instructions: tens from a cache, hundreds
/// from memory, thousands with a page fault.
[[nodiscard]] inline std::uint32_t load_ticks(const std::byte* place) noexcept {
  // lfence waits for earlier loads and delays later instructions.
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  asm volatile(
      "lfence\n\trdtsc\n\tmovl %%eax, %0\n\tmovzbl (%2), %%ecx\n\tlfence\n\trdtsc\n\tmovl %%eax, %1"
      : "=&r"(begin), "=&r"(end)
      : "r"(place)
      : "rax", "rcx", "rdx", "memory");
  return end - begin;
}

/// False if reading the counter would kill this process (PR_SET_TSC).
[[nodiscard]] bool may_read_ticks() noexcept;

/// Measures the ticks of a counter per second of a clock, over two milliseconds.
///
/// The clock is read between two reads of the counter; of several such samples at each end the one
/// with the closest counts is used. Preemption within a sample spoils only that sample, between
/// samples none.
template <typename Ticks, typename Clock>
[[nodiscard]] double calibrate(const Ticks& read_ticks, const Clock& read_clock) noexcept {
  constexpr std::chrono::milliseconds kInterval{2};
  constexpr int kSampleCount = 8;
  struct Sample {
    std::uint64_t width = UINT64_MAX;
    double ticks = 0;
    std::chrono::nanoseconds time{0};
  };
  const auto best_sample = [&] {
    Sample best;
    for (int i = 0; i < kSampleCount; ++i) {
      const std::uint64_t before = read_ticks();
      const std::chrono::nanoseconds time = read_clock();
      const std::uint64_t width = read_ticks() - before;
      if (width >= best.width) continue;
      const auto half = static_cast<double>(width) / 2;
      best = {.width = width, .ticks = static_cast<double>(before) + half, .time = time};
    }
    return best;
  };
  const Sample first = best_sample();
  while (read_clock() - first.time < kInterval) {
  }
  const Sample last = best_sample();
  return (last.ticks - first.ticks) / std::chrono::duration<double>(last.time - first.time).count();
}

/// Ticks per second. The first call measures it against the steady clock.
///
/// Cost: two milliseconds, once.
[[nodiscard]] double ticks_per_second() noexcept;

[[nodiscard]] inline std::uint64_t to_ticks(std::chrono::nanoseconds time) noexcept {
  return static_cast<std::uint64_t>(static_cast<double>(time.count()) * 1e-9 * ticks_per_second());
}

}  // namespace headrace::platform
