// SPDX-License-Identifier: Apache-2.0
// Processors that threads of a replayed program share, and how long the threads spin before they
// leave one. Not for: the rates of cores (world.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "engine/waiter.hpp"
#include "headrace/platform/ticks.hpp"
#include "sim/fluid.hpp"

namespace headrace::sim {

/// Threads without a processor wait for one until a thread sleeps, or has had it for so long: the
/// scheduler of Linux lets a thread finish its slice.
inline constexpr double kSliceNs = 3e6;
/// As sysctl_sched_migration_cost.
inline constexpr double kHotNs = 5e5;

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

/// A thread's processor.
struct Seat {
  std::uint32_t number = 0;
  double since_ns = 0;  ///< Its slice.
  double left_ns = 0;   ///< When it last had none.
};

/// The processors of all sockets, if more threads may run than there are. A thread that finds none
/// free waits for one of them.
class Processors {
 public:
  explicit Processors(Fluid& fluid) : fluid_(fluid) {}

  void limit(std::uint32_t count) {
    waiting_.resize(count);
    while (count > 0) free_.push_back(--count);
  }
  /// Calls `run` on a processor: after `delay_ns` on its last one or another that is free or, if
  /// none is, when the thread on its last one leaves it. Returns whether one is free.
  bool take(Seat& seat, double delay_ns, Fluid::Action run) {
    if (limited()) {
      if (free_.empty()) {
        waiting_[seat.number % waiting_.size()].push_back({&seat, std::move(run)});
        return false;
      }
      const auto last = std::ranges::find(free_, seat.number);
      seat.number = last == free_.end() ? free_.back() : *last;
      std::erase(free_, seat.number);
    }
    fluid_.after(delay_ns, [this, &seat, run = std::move(run)] {
      seat.since_ns = fluid_.now_ns();
      run();
    });
    return true;
  }
  void leave(Seat& seat) {
    if (!limited()) return;
    seat.left_ns = fluid_.now_ns();
    free_.push_back(seat.number);
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
      auto& waiting = waiting_[(seat.number + i) % waiting_.size()];
      // Linux moves no thread to another processor whose data may still be in the caches.
      if (waiting.empty() || (i != 0 && fluid_.now_ns() - waiting.front().seat->left_ns < kHotNs)) {
        continue;
      }
      Waiting next = std::move(waiting.front());
      waiting.pop_front();
      next.seat->number = seat.number;
      take(*next.seat, 0, std::move(next.run));
      return;
    }
  }
  /// Lets a thread that waits for this processor have it first if the slice is over.
  void go_on(Seat& seat, Fluid::Action run) {
    if (!limited() || waiting_[seat.number].empty() || fluid_.now_ns() - seat.since_ns < kSliceNs) {
      return run();
    }
    waiting_[seat.number].push_back({&seat, std::move(run)});
    leave(seat);
  }
  [[nodiscard]] bool limited() const { return !waiting_.empty(); }

 private:
  struct Waiting {
    Seat* seat = nullptr;
    Fluid::Action run;
  };
  Fluid& fluid_;
  std::vector<std::uint32_t> free_;
  std::vector<std::deque<Waiting>> waiting_;  ///< By processor.
};

}  // namespace headrace::sim
