// SPDX-License-Identifier: Apache-2.0
// The gate of an engine in a model checker: the code of src/engine/gate.hpp, in the interleavings
// that Search selects, with every value that a load may see. The engine is an rl::var, which its
// users read and its stopper writes when it destroys it, so that a use after the end is a race.
#include <gtest/gtest.h>

#include "explore.hpp"
#include "gate.hpp"

namespace headrace::engine {
namespace {

using test::explore;
using test::Search;

constexpr std::uintptr_t kKey = 64;
constexpr std::uint32_t kRunning = 1;

/// An engine, a thread that submits to it (0), one that ends its jobs (1), and a stopper.
struct Stage {
  explicit Stage(bool unequal) : gate(unequal) {}

  /// As EngineState::start: lets a job in and starts it.
  void submit() {
    const std::uint64_t in = gate.enter(counts[0], gate.is_unequal());
    if (in >= Gate::kClosed) return;
    use();
    set($) = in;
    word.store_release(kRunning);
  }
  /// As EngineState::end_with_dependants: stays to start what depends on the job.
  void end_job() {
    if (word.load_acquire() != kRunning) return;
    use();
    const std::uint64_t in = set($);
    bytes($) = 1;
    word.exchange_acq_rel(0);
    Gate::stay(counts[1], gate.is_unequal());
    Gate::leave(counts[1], in, gate.is_unequal());
    use();
    Gate::leave(counts[1], Gate::kStaying, gate.is_unequal());
  }
  /// As EngineState::hold_back.
  void submit_drain() {
    const std::uint64_t in = gate.enter(counts[2], gate.is_unequal());
    Gate::stay(counts[2], gate.is_unequal());
    before_drain = gate.change();
    Gate::leave(counts[2], in, gate.is_unequal());
  }
  /// As EngineState::begin: waits for the users before it, and leaves.
  void drain() {
    const std::uint64_t before = before_drain;
    while (!gate.is_closed() && !is_empty(before, before)) rl::yield(1, $);
    has_drained = !gate.is_closed();
    use();
    Gate::leave(counts[2], Gate::kStaying, gate.is_unequal());
  }
  bool is_empty(std::uint64_t first, std::uint64_t last) {
    const auto for_each = [this](const auto& visit) {
      for (const GateCounts& each : counts) visit(each);
    };
    return Gate::is_empty(for_each, first, last);
  }
  /// As EngineState::stop and the destructor.
  void stop(bool jobs_end_here) {
    RL_ASSERT(gate.close());
    while (!is_empty(0, Gate::kStaying)) {
      if (jobs_end_here) end_job();
      rl::yield(1, $);
    }
    gate.separate();
    while (visitor.is_at(kKey)) rl::yield(1, $);
    engine($) = -1;
  }
  void use() { RL_ASSERT(engine($) == 0); }

  Gate gate;
  GateCounts counts[3];
  Visitor visitor;
  Atomic<std::uint32_t> word;
  rl::var<int> engine;
  rl::var<std::uint64_t> set;  ///< Of the gate: the job's.
  rl::var<int> bytes;          ///< What the job writes.
  std::uint64_t before_drain = 0;
  bool has_drained = false;
};

/// A submission, the end of its job in another thread, and a stop.
template <bool kUnequal>
struct AStopFindsAllUsers : rl::test_suite<AStopFindsAllUsers<kUnequal>, 3>, Stage {
  AStopFindsAllUsers() : Stage(kUnequal) {}
  void before() { engine($) = 0; }
  void thread(unsigned index) {
    if (index == 0) {
      submit();
    } else if (index == 1) {
      while (!stopped && word.load_acquire() != kRunning) rl::yield(1, $);
      end_job();
    } else {
      stop(false);
      stopped = true;
    }
  }
  bool stopped = false;
};

/// Two threads that submit and leave at once, which share their counts, and a stop.
struct AStopFindsUsersThatShare : rl::test_suite<AStopFindsUsersThatShare, 3>, Stage {
  AStopFindsUsersThatShare() : Stage(true) {}
  void before() { engine($) = 0; }
  void thread(unsigned index) {
    if (index == 2) return stop(false);
    const std::uint64_t in = gate.enter(counts[0], false);
    if (in >= Gate::kClosed) return;
    use();
    Gate::leave(counts[0], in, false);
  }
};

/// A thread polls a job that ends in another thread, before a stop.
struct AStopFindsAVisitor : rl::test_suite<AStopFindsAVisitor, 3>, Stage {
  AStopFindsAVisitor() : Stage(true) {}
  void before() {
    engine($) = 0;
    submit();
  }
  void thread(unsigned index) {
    if (index == 0) {
      if (word.load_acquire() != kRunning) return;
      visitor.begin(kKey);
      if (word.load_acquire() == kRunning) use();
      visitor.end();
    } else if (index == 1) {
      end_job();
    } else {
      stop(false);
    }
  }
};

/// The end of a job, a drain that was submitted after the job, and a call of run beside them.
template <bool kUnequal>
struct ADrainWaitsForJobsBeforeIt : rl::test_suite<ADrainWaitsForJobsBeforeIt<kUnequal>, 3>, Stage {
  ADrainWaitsForJobsBeforeIt() : Stage(kUnequal) {}
  void before() {
    engine($) = 0;
    submit();
  }
  void thread(unsigned index) {
    if (index == 0) {
      const std::uint64_t in = gate.enter(counts[0], kUnequal);
      Gate::leave(counts[0], in, kUnequal);
    } else if (index == 1) {
      end_job();
    } else {
      submit_drain();
      drain();
      RL_ASSERT(has_drained && bytes($) == 1);
    }
  }
};

/// A user that comes during a drain, and a second drain, which may find it submitted.
struct TheNextDrainSeesAUserOfThis : rl::test_suite<TheNextDrainSeesAUserOfThis, 2>, Stage {
  TheNextDrainSeesAUserOfThis() : Stage(true) {}
  void before() { engine($) = 0; }
  void thread(unsigned index) {
    if (index == 0) {
      const std::uint64_t in = gate.enter(counts[0], true);
      word.store_release(kRunning);
      bytes($) = 1;
      return Gate::leave(counts[0], in, true);
    }
    submit_drain();
    drain();
    const bool is_before = word.load_acquire() == kRunning;
    submit_drain();
    drain();
    if (is_before) RL_ASSERT(bytes($) == 1);
  }
};

/// A thread that submits and leaves at once, a drain, and a stop.
struct AStopFindsUsersAndADrain : rl::test_suite<AStopFindsUsersAndADrain, 3>, Stage {
  AStopFindsUsersAndADrain() : Stage(true) {}
  void before() {
    engine($) = 0;
    submit_drain();
  }
  void thread(unsigned index) {
    if (index == 2) return stop(false);
    if (index == 1) return drain();
    const std::uint64_t in = gate.enter(counts[0], true);
    if (in >= Gate::kClosed) return;
    use();
    Gate::leave(counts[0], in, true);
  }
};

TEST(GateModel, AStopFindsAllUsers) {
  explore<AStopFindsAllUsers<true>>("a submission, the end of its job, a stop", Search::bounded);
}
TEST(GateModel, AStopFindsAllUsersWithoutHeavyBarriers) {
  explore<AStopFindsAllUsers<false>>("as before, without heavy barriers", Search::bounded);
}
TEST(GateModel, AStopFindsUsersThatShare) {
  explore<AStopFindsUsersThatShare>("two users that share their counts, a stop", Search::bounded);
}
TEST(GateModel, AStopFindsAVisitor) {
  explore<AStopFindsAVisitor>("a poll, the end of the job, a stop", Search::bounded);
}

TEST(GateModel, ADrainWaitsForJobsBeforeIt) {
  explore<ADrainWaitsForJobsBeforeIt<true>>("the end of a job, a drain, a run", Search::bounded);
}
TEST(GateModel, ADrainWaitsForJobsBeforeItWithoutHeavyBarriers) {
  explore<ADrainWaitsForJobsBeforeIt<false>>("as before, without heavy barriers", Search::bounded);
}
TEST(GateModel, TheNextDrainSeesAUserOfThis) {
  explore<TheNextDrainSeesAUserOfThis>("a user, two drains", Search::bounded);
}
TEST(GateModel, AStopFindsUsersAndADrain) {
  explore<AStopFindsUsersAndADrain>("a user, a drain, a stop", Search::bounded, 2);
}

}  // namespace
}  // namespace headrace::engine
