// SPDX-License-Identifier: Apache-2.0
// Schedule: assigns the tasks of the three pipelines over a range of chunks to the workers that ask
// (morsel-driven scheduling), and holds the data that passes between tasks. It neither does the
// work nor waits: a worker that gets no task is finished. A template over the contents of a slot,
// so that the simulator schedules its chunks by the same code.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "headrace/base/check.hpp"
#include "headrace/base/mutex.hpp"

namespace headrace::query::lab {

/// Chunks in flight per worker: enough that movers always have the next one queued, few enough to
/// need little room in the cache.
inline constexpr std::size_t kSlotsPerWorker = 3;

/// A chunk whose aggregate columns are being moved. It passes from worker to worker: the mutex of
/// the schedule orders the writes of one before the reads of the next.
///
/// `Held`: has `bool is_ready() const`, whether the copies are ready.
template <typename Held>
struct Slot {
  enum class State : std::uint8_t { free, submitting, submitted, polling, aggregating };

  // Guarded by the schedule's mutex.
  State state = State::free;
  bool scanned = false;
  std::uint32_t chunk_index = 0;

  /// The cache had no copy of one of the columns and refused to make one. Written by the
  /// prefetching worker while submitting.
  bool is_refused = false;
  /// Owned by the worker that has the task.
  Held held;
};

template <typename Held>
struct Task {
  enum class Kind : std::uint8_t {
    none,       ///< There is nothing left for this worker, now or later.
    prefetch,   ///< Submit the columns of the chunk and put the entries into the slot.
    scan,       ///< Scan into the slot; without a slot scan and aggregate from the source, at once.
    aggregate,  ///< Aggregate from the slot's entries, ready or not, and reset them.
  };
  Kind kind = Kind::none;
  std::uint32_t chunk_index = 0;
  Slot<Held>* slot = nullptr;
};

/// A chunk is either prefetched before its scan begins, and occupies a slot until it is aggregated;
/// or no slot was free in time, and the worker that scans it aggregates it from the source while it
/// is hot. So slots limit the chunks in flight, and if a mover cannot keep up the source is read
/// instead of waiting.
///
/// Copies in a slot cannot be evicted. So if the cache is smaller than all slots together, or a
/// mover's queue shorter, fewer are used: as many as held copies at the last refusal, and one more
/// after as many prefetches as there are slots. Otherwise the first chunks would take all the room
/// and the others would be refused.
///
/// Invariant: every chunk in [first, end) is not yet scanned (>= next_scan_), in a slot, held by
/// the worker that took it, or done. A worker that returns a task takes the next one, so it finds
/// what it put back if no other worker does: no thread has to wait.
///
/// Threading: shared.
template <typename Held>
class Schedule {
 public:
  using Slot = lab::Slot<Held>;
  using Task = lab::Task<Held>;

  /// Chunks [first, end); without slots nothing is prefetched. `held` is copied into each slot.
  Schedule(std::uint32_t first, std::uint32_t end, std::size_t slot_count, const Held& held = {})
      : slot_count_(slot_count),
        slots_(slot_count, Slot{.held = held}),
        next_prefetch_(first),
        next_scan_(first),
        end_(end),
        held_max_(slot_count) {}

  /// Reports `finished` (a default Task at first) and takes the next task. Workers of other nodes
  /// must not prefetch, because their copies would be on the wrong node.
  [[nodiscard]] Task next(const Task& finished, bool may_prefetch);
  /// From now on there are no tasks.
  void cancel();

 private:
  void complete(const Task& finished) HEADRACE_REQUIRES(mutex_);
  void note_prefetched(const Slot& slot) HEADRACE_REQUIRES(mutex_);
  /// Number of slots with copies, ready or moving.
  [[nodiscard]] std::size_t held_count() HEADRACE_REQUIRES(mutex_);
  [[nodiscard]] Slot* find(typename Slot::State state) HEADRACE_REQUIRES(mutex_);
  /// A slot whose chunk is scanned, whether its copies are ready or not.
  [[nodiscard]] Slot* find_scanned() HEADRACE_REQUIRES(mutex_);
  /// Takes a slot whose chunk is scanned and whose copies are ready, to be aggregated. Polls the
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
  /// Prefetches since held_max_ changed or one was refused.
  std::size_t given_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
  bool cancelled_ HEADRACE_GUARDED_BY(mutex_) = false;
};

template <typename Held>
auto Schedule<Held>::next(const Task& finished, bool may_prefetch) -> Task {
  {
    const Lock lock(mutex_);
    complete(finished);
  }
  Slot* const ready = take_ready();
  const Lock lock(mutex_);
  if (cancelled_) return {};
  // First a task that frees a slot, then one that fills it, then a scan, which gives the movers
  // time.
  Slot* slot = ready;
  if (slot == nullptr) {
    next_prefetch_ = std::max(next_prefetch_, next_scan_);
    if (may_prefetch && next_prefetch_ < end_ && held_count() < held_max_) {
      if (Slot* unused = find(Slot::State::free); unused != nullptr) {
        unused->state = Slot::State::submitting;
        unused->scanned = false;
        unused->is_refused = false;
        unused->chunk_index = next_prefetch_++;
        return {Task::Kind::prefetch, unused->chunk_index, unused};
      }
    }
    if (next_scan_ < end_) {
      const std::uint32_t chunk_index = next_scan_++;
      const auto holds = [&](const Slot& candidate) {
        return candidate.state != Slot::State::free && candidate.chunk_index == chunk_index;
      };
      const auto found = std::find_if(slots_.begin(), slots_.end(), holds);
      return {Task::Kind::scan, chunk_index, found == slots_.end() ? nullptr : &*found};
    }
    // All is scanned. Chunks that are not ready are read from the source: waiting cannot be faster,
    // because the mover reads the same bytes.
    slot = find_scanned();
  }
  if (slot == nullptr) return {};
  slot->state = Slot::State::aggregating;
  return {Task::Kind::aggregate, slot->chunk_index, slot};
}

template <typename Held>
void Schedule<Held>::cancel() {
  const Lock lock(mutex_);
  cancelled_ = true;
}

template <typename Held>
void Schedule<Held>::complete(const Task& finished) {
  switch (finished.kind) {
    case Task::Kind::none:
      return;
    case Task::Kind::prefetch:
      HEADRACE_CHECK(finished.slot->state == Slot::State::submitting, "prefetched once");
      finished.slot->state = Slot::State::submitted;
      note_prefetched(*finished.slot);
      return;
    case Task::Kind::scan:
      if (finished.slot != nullptr) finished.slot->scanned = true;
      return;
    case Task::Kind::aggregate:
      HEADRACE_CHECK(finished.slot->state == Slot::State::aggregating, "aggregated once");
      finished.slot->state = Slot::State::free;
      return;
  }
}

template <typename Held>
void Schedule<Held>::note_prefetched(const Slot& slot) {
  if (slot.is_refused) {
    held_max_ = std::clamp(held_count(), std::size_t{1}, held_max_);
    given_count_ = 0;
  } else if (++given_count_ >= slots_.size() && held_max_ < slots_.size()) {
    ++held_max_;
    given_count_ = 0;
  }
}

template <typename Held>
std::size_t Schedule<Held>::held_count() {
  return static_cast<std::size_t>(std::count_if(slots_.begin(), slots_.end(), [](const Slot& slot) {
    // While submitting, is_refused is not known and its worker may be writing it.
    if (slot.state == Slot::State::submitting) return true;
    return slot.state != Slot::State::free && !slot.is_refused;
  }));
}

template <typename Held>
auto Schedule<Held>::find(typename Slot::State state) -> Slot* {
  const auto found = std::ranges::find(slots_, state, &Slot::state);
  return found == slots_.end() ? nullptr : &*found;
}

template <typename Held>
auto Schedule<Held>::find_scanned() -> Slot* {
  const auto found = std::find_if(slots_.begin(), slots_.end(), [](const Slot& slot) {
    return slot.state == Slot::State::submitted && slot.scanned;
  });
  return found == slots_.end() ? nullptr : &*found;
}

template <typename Held>
auto Schedule<Held>::take_ready() -> Slot* {
  // A poll may end jobs and call their callbacks, so no lock is held. Each slot is polled once, by
  // one worker at a time.
  for (std::size_t i = 0; i < slot_count_; ++i) {
    Slot* slot = nullptr;
    {
      const Lock lock(mutex_);
      slot = &slots_[i];
      if (slot->state != Slot::State::submitted || !slot->scanned) continue;
      slot->state = Slot::State::polling;
    }
    const bool is_ready = slot->held.is_ready();
    const Lock lock(mutex_);
    slot->state = is_ready ? Slot::State::aggregating : Slot::State::submitted;
    if (is_ready) return slot;
  }
  return nullptr;
}

}  // namespace headrace::query::lab
