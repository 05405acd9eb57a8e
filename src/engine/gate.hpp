// SPDX-License-Identifier: Apache-2.0
// Gate: who uses an engine, so that its owner can wait for them, and a drain for those before it.
// Visitor: which engine a thread is looking into. Neither writes a line that another thread's
// submission writes.
//
// Progress: lock-free (a user enters again for each drain that begins meanwhile), except for
// closing and draining, which wait.
//
// Agents. *Users*: calls of submit and run, and running jobs; each enters on the thread that
// submits and leaves on the thread that ends it. *Visitors*: threads that poll or wait for a job.
// One *drain* at a time, which waits for the users that entered before it. The *stopper*, which
// closes the gate and then destroys the engine.
//
// Users. Each thread counts those that it let in and those that it saw leave, in a line of its own.
// There are two sets of counts, and the gate's word names the one that users enter; a drain makes
// it the other one. A user leaves the set that it entered. A third set is for those that stay: what
// a drain, or a wait for it, needs of the engine.
//
//   gate      a thread that enters                  a drain                the stopper
//   open      adds to `entered` of the set, reads   changes the set, then  closes it, then a
//             the gate again, sees the same: in     a heavy barrier        heavy barrier
//   changed   adds to `left` of that set, enters    waits until the sums   the same, for all
//             again, or is refused by a closed one  of the set's `left`,   sets
//                                                   then those of its
//                                                   `entered` are equal
//
// No user is missed: a thread adds to `entered` and then reads the gate; a drain or the stopper
// changes the gate and then reads `entered`; in between are a light barrier and a heavy one. So
// either the thread sees the change, or its entry is seen. A sum of `left` that was read first is
// at most the sum of `entered`, because a user leaves after it has entered; if they are equal, none
// was inside, and none comes in any more: into a set that was drained, only after the next drain
// has begun. The last access of a user is its store to `left`.
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

/// Counts of one thread, or of those that share them; of each set.
struct GateCounts {
  Atomic<std::uint64_t> entered[3];
  Atomic<std::uint64_t> left[3];
};

/// Threading: shared. `alone`: no other thread writes the counts.
class Gate {
 public:
  /// Returned by enter() in place of a set, and more.
  static constexpr std::uint64_t kClosed = 2;
  /// The set of those that stay.
  static constexpr std::uint64_t kStaying = 2;

  /// `unequal`: there are heavy barriers. Otherwise no thread is alone with its counts.
  explicit Gate(bool unequal) : unequal_(unequal) {}

  [[nodiscard]] bool is_closed() const noexcept {
    return word_.load_relaxed() >= kClosed;  // A hint; enter() decides.
  }
  [[nodiscard]] bool is_unequal() const noexcept { return unequal_; }
  /// Returns the set for leave().
  [[nodiscard, gnu::always_inline]] std::uint64_t enter(GateCounts& mine, bool alone) noexcept {
    std::uint64_t set = word_.load_relaxed();  // Read again below.
    while (set < kClosed) [[likely]] {
      if (alone) [[likely]] {
        add(mine.entered[set]);
        platform::light_barrier();
      } else {
        std::uint64_t entered = mine.entered[set].load_relaxed();  // The exchange decides.
        // seq_cst: entered before the word here, the word before entered in the stopper; see above.
        while (!mine.entered[set].compare_exchange_seq_cst(entered, entered + 1)) {
        }
      }
      const std::uint64_t seen = word_.load_seq_cst();
      if (seen == set) [[likely]]
        return set;
      leave(mine, set, alone);
      set = seen;
    }
    return set;
  }
  /// Adds a user of kStaying while the caller has another one.
  static void stay(GateCounts& mine, bool alone) noexcept {
    // Relaxed: the stopper that sees all users leave sees them enter, by `engine-gate`.
    if (alone) return add(mine.entered[kStaying]);
    mine.entered[kStaying].fetch_add_relaxed(1);  // As above.
  }
  /// The engine must not be accessed afterwards.
  static void leave(GateCounts& mine, std::uint64_t set, bool alone) noexcept {
    // The only writer, if alone.
    // edge: engine-gate (release)
    if (alone) return mine.left[set].store_release(mine.left[set].load_relaxed() + 1);
    // edge: engine-gate (acq_rel)
    mine.left[set].fetch_add_acq_rel(1);
  }

  /// A drain, while no other one runs. Returns the set to wait for.
  [[nodiscard]] std::uint64_t change() noexcept { return change(1, 0) & 1U; }
  /// Stopper. Returns whether the gate was open.
  bool close() noexcept { return change(0, kClosed) < kClosed; }
  /// Stopper: a barrier between two of its steps.
  void separate() const noexcept {
    if (unequal_) platform::heavy_barrier();
  }
  /// Whether all users of the sets from `first` to `last` have left. `for_each(visit)` calls
  /// `visit` for all counts.
  template <typename ForEach>
  [[nodiscard]] static bool is_empty(const ForEach& for_each, std::uint64_t first,
                                     std::uint64_t last) noexcept {
    std::uint64_t inside = 0;
    for_each([&](const GateCounts& counts) {
      // edge: engine-gate (acquire)
      for (std::uint64_t i = first; i <= last; ++i) inside -= counts.left[i].load_acquire();
    });
    for_each([&](const GateCounts& counts) {
      for (std::uint64_t i = first; i <= last; ++i) inside += counts.entered[i].load_seq_cst();
    });
    return inside == 0;
  }

 private:
  /// The only writer of `count` adds 1.
  static void add(Atomic<std::uint64_t>& count) noexcept {
    count.store_relaxed(count.load_relaxed() + 1);  // Ordered by the caller.
  }
  /// Returns the word before.
  std::uint64_t change(std::uint64_t other_bits, std::uint64_t set_bits) noexcept {
    std::uint64_t word = word_.load_relaxed();  // The exchange decides.
    // seq_cst: see enter().
    while (!word_.compare_exchange_seq_cst(word, (word ^ other_bits) | set_bits)) {
    }
    separate();
    return word;
  }

  const bool unequal_;
  /// The set to enter, plus kClosed.
  Atomic<std::uint64_t> word_{0};
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
