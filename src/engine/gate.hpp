// SPDX-License-Identifier: Apache-2.0
// Gate: who uses an engine, so that its owner can wait for them. Visitor: which engine a thread is
// looking into. Neither writes a line that another thread's submission writes.
//
// Progress: wait-free, except for closing, which waits.
//
// Agents. *Users*: calls of submit and run, and running jobs; each enters on the thread that
// submits and leaves on the thread that ends it. *Visitors*: threads that poll or wait for a job.
// The *stopper*, which closes the gate and then destroys the engine.
//
// Users. Each thread counts those that it let in and those that it saw leave, in a line of its own.
//
//   gate      a thread that enters                     the stopper
//   open      adds to `entered`, sees it open: in      closes it, then a heavy barrier
//   closed    adds to `entered`, sees it closed, and   waits until the sums of `left`, then those
//   of
//             adds to `left`                           `entered` are equal
//
// No user is missed: a thread adds to `entered` and then reads the gate; the stopper closes the
// gate and then reads `entered`; in between are a light barrier and a heavy one. So either the
// thread sees the gate closed, or the stopper sees it enter. A sum of `left` that was read first is
// at most the sum of `entered`, because a user leaves after it has entered; if they are equal, none
// was inside, and none comes in any more. The last access of a user is its store to `left`.
//
// Visitors. A job may end, and its engine with it, while a thread polls it. So the thread first
// notes the engine in its Visitor, which is not the engine's, and then looks at the job again:
// while that runs, the engine exists. The stopper finds no user left, then passes a heavy barrier,
// then reads the visitors. Either it sees the visitor, or that saw the job ended.
//
// Rejected: one word with a count (each submission and each end waits for the line from another
// processor); a count per processor (needs locked instructions); waking the stopper (a user that
// leaves would have to read the gate after its last access): the stopper sleeps and looks again.
// Model: tests/model/engine/gate_model.cpp.
#pragma once

#include <cstdint>

#include "headrace/base/atomic.hpp"
#include "headrace/platform/barrier.hpp"

namespace headrace::engine {

/// Counts of one thread, or of those that share them.
struct GateCounts {
  Atomic<std::uint64_t> entered{0};
  Atomic<std::uint64_t> left{0};
};

/// Threading: shared. `alone`: no other thread writes the counts.
class Gate {
 public:
  /// `unequal`: there are heavy barriers. Otherwise no thread is alone with its counts.
  explicit Gate(bool unequal) : unequal_(unequal) {}

  [[nodiscard]] bool is_closed() const noexcept {
    return closed_.load_relaxed();  // A hint; enter() decides.
  }
  [[nodiscard]] bool is_unequal() const noexcept { return unequal_; }
  [[nodiscard, gnu::always_inline]] bool enter(GateCounts& mine, bool alone) noexcept {
    if (is_closed()) [[unlikely]]
      return false;
    if (alone) [[likely]] {
      stay(mine, true);
      platform::light_barrier();
    } else {
      std::uint64_t entered = mine.entered.load_relaxed();  // The exchange decides.
      // seq_cst: entered before closed here, closed before entered in the stopper; see above.
      while (!mine.entered.compare_exchange_seq_cst(entered, entered + 1)) {
      }
    }
    if (!closed_.load_seq_cst()) [[likely]]
      return true;
    leave(mine, alone);
    return false;
  }
  /// Adds a user while the caller has another one.
  static void stay(GateCounts& mine, bool alone) noexcept {
    // Relaxed: the stopper that sees all users leave sees them enter, by `engine-gate`.
    if (alone) return mine.entered.store_relaxed(mine.entered.load_relaxed() + 1);
    mine.entered.fetch_add_relaxed(1);  // As above.
  }
  /// The engine must not be accessed afterwards.
  static void leave(GateCounts& mine, bool alone) noexcept {
    // The only writer, if alone.
    // edge: engine-gate (release)
    if (alone) return mine.left.store_release(mine.left.load_relaxed() + 1);
    // edge: engine-gate (acq_rel)
    mine.left.fetch_add_acq_rel(1);
  }

  /// Stopper. Returns whether the gate was open.
  bool close() noexcept {
    // seq_cst: see enter().
    const bool open = !closed_.exchange_seq_cst(true);
    separate();
    return open;
  }
  /// Stopper: a barrier between two of its steps.
  void separate() const noexcept {
    if (unequal_) platform::heavy_barrier();
  }
  /// Stopper: whether all users have left. `for_each(visit)` calls `visit` for all counts.
  template <typename ForEach>
  [[nodiscard]] static bool is_empty(const ForEach& for_each) noexcept {
    std::uint64_t inside = 0;
    // edge: engine-gate (acquire)
    for_each([&](const GateCounts& counts) { inside -= counts.left.load_acquire(); });
    for_each([&](const GateCounts& counts) { inside += counts.entered.load_seq_cst(); });
    return inside == 0;
  }

 private:
  const bool unequal_;
  Atomic<bool> closed_{false};
};

/// The engine that a thread is looking into, or 0.
///
/// Threading: shared; written by its thread.
struct alignas(64) Visitor {
  Atomic<std::uintptr_t> engine{0};

  /// Notes `key`; afterwards the caller looks whether the job runs. Needs heavy barriers.
  void begin(std::uintptr_t key) noexcept {
    engine.store_relaxed(key);  // Relaxed: see the barriers above.
    platform::light_barrier();
  }
  /// The engine must not be accessed afterwards.
  void end() noexcept { engine.store_release(0); }  // edge: engine-visited (release)
  /// Stopper, after Gate::separate().
  [[nodiscard]] bool is_at(std::uintptr_t key) const noexcept {
    // edge: engine-visited (acquire)
    return engine.load_acquire() == key;
  }
};

}  // namespace headrace::engine
