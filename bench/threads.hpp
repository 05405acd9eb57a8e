// SPDX-License-Identifier: Apache-2.0
// Threads of a benchmark: pinned, started together, timed until the last one returns.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <thread>
#include <vector>

#include "headrace/base/atomic.hpp"

namespace headrace::bench {

/// Processors that this process may use.
[[nodiscard]] inline std::vector<int> allowed_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  ::sched_getaffinity(0, sizeof(set), &set);
  std::vector<int> processors;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) processors.push_back(cpu);
  }
  return processors;
}

inline void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  ::pthread_setaffinity_np(::pthread_self(), sizeof(set), &set);
}

/// Runs `work(index, wait_for_start)` on `count` threads; thread i is pinned to processor i modulo
/// their number, or not pinned if `processors` is empty. `work` prepares, calls wait_for_start(),
/// then works. Returns the time from the common start until the last thread returns.
inline std::chrono::nanoseconds run_together(
    std::size_t count, const std::function<void(std::size_t, const std::function<void()>&)>& work,
    const std::vector<int>& processors = allowed_processors()) {
  using Clock = std::chrono::steady_clock;
  // relaxed throughout: the flags publish no data; join() publishes the times.
  Atomic<std::size_t> ready{0};
  Atomic<bool> go{false};
  std::vector<Clock::time_point> ends(count);
  std::vector<std::thread> threads;
  for (std::size_t index = 0; index < count; ++index) {
    threads.emplace_back([&, index] {
      if (!processors.empty()) pin(processors[index % processors.size()]);
      work(index, [&] {
        ready.fetch_add_relaxed(1);
        while (!go.load_relaxed()) {
        }
      });
      ends[index] = Clock::now();
    });
  }
  while (ready.load_relaxed() != count) std::this_thread::yield();
  const Clock::time_point begin = Clock::now();
  go.store_relaxed(true);
  for (std::thread& thread : threads) thread.join();
  return *std::max_element(ends.begin(), ends.end()) - begin;
}

/// Independent multiplications, so that one thread keeps the multiplier of a core busy.
inline void multiply(std::size_t count) {
  std::array<std::uint64_t, 8> values{1, 2, 3, 4, 5, 6, 7, 8};
  for (std::size_t i = 0; i < count; i += values.size()) {
    for (std::uint64_t& value : values) asm volatile("imul %0, %0" : "+r"(value));
  }
}

/// Nanoseconds that a cache line takes between the first two processors; infinity if they share a
/// core. A host can move virtual processors at any time.
[[nodiscard]] inline double measure_line_ns() {
  constexpr std::size_t kCount = 1U << 15U;
  const auto multiply_together = [](std::size_t threads) {
    return run_together(threads, [](std::size_t, const std::function<void()>& wait_for_start) {
      wait_for_start();
      multiply(1U << 22U);
    });
  };
  if (2 * multiply_together(2) > 3 * multiply_together(1)) {
    return std::numeric_limits<double>::infinity();
  }
  alignas(128) Atomic<std::size_t> line{0};  // relaxed: only its own value matters.
  const std::chrono::duration<double, std::nano> took =
      run_together(2, [&](std::size_t index, const std::function<void()>& wait_for_start) {
        wait_for_start();
        for (std::size_t i = index; i < kCount; i += 2) {
          while (line.load_relaxed() != i) {
          }
          line.store_relaxed(i + 1);
        }
      });
  return took.count() / kCount;
}

}  // namespace headrace::bench
