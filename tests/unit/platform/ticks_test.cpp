// SPDX-License-Identifier: Apache-2.0
// The calibration of the time-stamp counter against a clock, with simulated time.
#include "headrace/platform/ticks.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>

namespace headrace::platform {
namespace {

using std::chrono::nanoseconds;

constexpr double kTicksPerNs = 2.5;

/// A machine on which every read takes 20 ns. The thread is descheduled before two reads: one
/// counted from the start, one from the end of the shortest measurement.
struct Machine {
  static constexpr std::uint64_t kBeginNs = 1'000'000;
  static constexpr std::uint64_t kShortestNs = 2'000'000;
  static constexpr std::uint64_t kPreemptionNs = 8'000'000;

  std::uint64_t first_preempted = 0;
  std::uint64_t last_preempted = 0;
  std::uint64_t now_ns = kBeginNs;
  std::uint64_t reads = 0;
  std::uint64_t late_reads = 0;

  void read() {
    now_ns += 20;
    const bool is_first = ++reads == first_preempted;
    const bool is_late = now_ns >= kBeginNs + kShortestNs;
    if (is_first || (is_late && ++late_reads == last_preempted)) now_ns += kPreemptionNs;
  }
  std::uint64_t ticks() {
    read();
    return static_cast<std::uint64_t>(static_cast<double>(now_ns) * kTicksPerNs);
  }
  nanoseconds clock() {
    read();
    return nanoseconds(now_ns);
  }
};

double calibrated(Machine& machine) {
  return calibrate([&] { return machine.ticks(); }, [&] { return machine.clock(); });
}

TEST(Ticks, AQuietMachineIsMeasuredExactly) {
  Machine machine;
  EXPECT_NEAR(calibrated(machine) / (kTicksPerNs * 1e9), 1, 1e-4);
}

TEST(Ticks, APreemptionBetweenTwoReadsDoesNotSpoilTheRate) {
  for (std::uint64_t at = 1; at <= 30; ++at) {
    Machine first{.first_preempted = at};
    EXPECT_NEAR(calibrated(first) / (kTicksPerNs * 1e9), 1, 1e-3) << at;
    Machine last{.last_preempted = at};
    EXPECT_NEAR(calibrated(last) / (kTicksPerNs * 1e9), 1, 1e-3) << at;
  }
}

TEST(Ticks, TheRateOfThisMachineIsThatOfItsClock) {
  if (!may_read_ticks()) GTEST_SKIP() << "the counter may not be read";
  const auto begin = std::chrono::steady_clock::now();
  const std::uint64_t first = ticks();
  while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(100)) {
  }
  const std::uint64_t last = ticks();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_NEAR(static_cast<double>(last - first) / ticks_per_second() / seconds, 1, 0.5);
}

}  // namespace
}  // namespace headrace::platform
