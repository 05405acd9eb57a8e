// SPDX-License-Identifier: Apache-2.0
// Processors that threads of a replayed program share, and how long the threads spin before they
// leave one. Not for: the rates of cores (world.hpp).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "engine/waiter.hpp"
#include "headrace/platform/ticks.hpp"
#include "sim/fluid.hpp"

namespace headrace::sim {

/// Threads without a processor wait for one until a thread sleeps, or has had it for so long: the
/// scheduler of Linux lets a thread finish its slice.
inline constexpr double kSliceNs = 3e6;

/// How long waits spin, as an engine's do.
class Looks {
 public:
  [[nodiscard]] double begin_ns() { return static_cast<double>(history_.begin()) / kTicksPerNs; }
  void end(double waited_ns, bool looked) {
    history_.end(static_cast<std::uint64_t>(waited_ns * kTicksPerNs), looked);
  }

 private:
  inline static const double kTicksPerNs = platform::ticks_per_second() / 1e9;
  engine::WaitHistory history_;
};

/// The processors of all sockets, if more threads may run than there are.
class Processors {
 public:
  explicit Processors(Fluid& fluid) : fluid_(fluid) {}

  void limit(std::uint32_t count) { free_ = count; }
  /// Calls `run` on a processor: after `delay_ns`, or when another thread leaves one. Returns
  /// whether one is free.
  bool take(double& since_ns, double delay_ns, Fluid::Action run) {
    const bool waits = free_ && *free_ == 0;
    if (free_ && !waits) --*free_;
    auto begin = [this, &since_ns, run = std::move(run)] {
      since_ns = fluid_.now_ns();
      run();
    };
    if (waits) {
      waiting_.push_back(std::move(begin));
    } else {
      fluid_.after(delay_ns, std::move(begin));
    }
    return !waits;
  }
  void leave() {
    if (!free_) return;
    if (waiting_.empty()) {
      ++*free_;
      return;
    }
    fluid_.after(0, std::move(waiting_.front()));
    waiting_.pop_front();
  }
  /// For a thread that has had a processor since `since_ns`: lets others have it first if its slice
  /// is over.
  void go_on(double& since_ns, Fluid::Action run) {
    if (waiting_.empty() || fluid_.now_ns() - since_ns < kSliceNs) return run();
    take(since_ns, 0, std::move(run));
    leave();
  }
  [[nodiscard]] bool limited() const { return free_.has_value(); }

 private:
  Fluid& fluid_;
  std::optional<std::uint32_t> free_;
  std::deque<Fluid::Action> waiting_;
};

}  // namespace headrace::sim
