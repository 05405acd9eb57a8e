// SPDX-License-Identifier: Apache-2.0
// Schedule: which worker does what next. Hands the three pipelines over a range of chunks to
// whichever worker asks (morsel-driven scheduling) and keeps what passes from one to the other.
// Not for: doing the work, or waiting: a worker that gets none is finished.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "headrace/base/mutex.hpp"
#include "headrace/cache/cache.hpp"

namespace headrace::query::detail {

/// A chunk whose aggregate columns are on their way. It passes from worker to worker: the mutex of
/// the schedule orders what one wrote before what the next one reads.
struct Slot {
  enum class State : std::uint8_t { free, submitting, submitted, polling, aggregating };

  // Guarded by the schedule's mutex.
  State state = State::free;
  bool scanned = false;
  std::uint32_t chunk_index = 0;

  /// The cache had no copy of one of the columns, and no room or no mover for one. Written by the
  /// prefetching worker while submitting.
  bool is_refused = false;
  /// Written by the prefetching worker while submitting, read by the aggregating one.
  std::optional<cache::Entry> discount;
  std::optional<cache::Entry> extended_price;
  /// Selection of the chunk: written by the scanning worker, read by the aggregating one.
  std::vector<std::uint64_t> words;
};

struct Task {
  enum class Kind : std::uint8_t {
    none,       ///< There is nothing left for this worker, now or later.
    prefetch,   ///< Submit the columns of the chunk and put the entries into the slot.
    scan,       ///< Scan into the slot; without a slot scan and aggregate from the source, at once.
    aggregate,  ///< Aggregate from the slot's entries, ready or not, and empty them.
  };
  Kind kind = Kind::none;
  std::uint32_t chunk_index = 0;
  Slot* slot = nullptr;
};

/// A chunk goes one of two ways. Either it is prefetched before its scan begins; then it occupies a
/// slot until it is aggregated. Or no slot was free in time; then the worker that scans it
/// aggregates it from the source while it is hot. So slots bound what is under way, and a mover
/// that cannot keep up is left out in favour of the source instead of being waited for.
///
/// What a slot holds cannot be evicted. So where the cache is smaller than all slots together, or a
/// mover's queue shorter, fewer are used: as many as were held at the last refusal, and one more
/// after as many copies as there are slots. Else the first chunks would take all the room and the
/// others would be refused without making way for each other.
///
/// Invariant: every chunk in [first, end) is not yet scanned (>= next_scan_), or in a slot, or in
/// the hands of the worker that took it, or done. A worker that returns a task takes the next
/// one, so it finds what it put back if no other worker does: no thread has to wait.
///
/// Threading: shared.
class Schedule {
 public:
  /// Chunks [first, end); without slots nothing is prefetched.
  Schedule(std::uint32_t first, std::uint32_t end, std::size_t slot_count,
           std::size_t words_per_chunk);

  /// Reports `finished` (a default Task at first) and takes the next task. Workers of other nodes,
  /// whose copies would lie in the wrong place, do not prefetch.
  [[nodiscard]] Task next(const Task& finished, bool may_prefetch);
  /// From now on there are no tasks.
  void cancel();

 private:
  void settle(const Task& finished) HEADRACE_REQUIRES(mutex_);
  void note_prefetched(const Slot& slot) HEADRACE_REQUIRES(mutex_);
  /// Slots with copies, there or on their way.
  [[nodiscard]] std::size_t held_count() HEADRACE_REQUIRES(mutex_);
  [[nodiscard]] Slot* find(Slot::State state) HEADRACE_REQUIRES(mutex_);
  /// A slot whose chunk is scanned, whether its copies are there or not.
  [[nodiscard]] Slot* find_scanned() HEADRACE_REQUIRES(mutex_);
  /// Takes a slot whose chunk is scanned and whose copies are there, to be aggregated. Polls the
  /// engine, with no lock held.
  [[nodiscard]] Slot* take_ready();

  const std::size_t slot_count_;
  Mutex mutex_;
  /// Never grows: tasks point into it.
  std::vector<Slot> slots_ HEADRACE_GUARDED_BY(mutex_);
  std::uint32_t next_prefetch_ HEADRACE_GUARDED_BY(mutex_);
  std::uint32_t next_scan_ HEADRACE_GUARDED_BY(mutex_);
  const std::uint32_t end_;
  /// Slots that may hold copies at a time; at least 1 if there are slots.
  std::size_t held_max_ HEADRACE_GUARDED_BY(mutex_);
  /// Prefetches since held_max_ changed.
  std::size_t given_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
  bool cancelled_ HEADRACE_GUARDED_BY(mutex_) = false;
};

}  // namespace headrace::query::detail
