// SPDX-License-Identifier: Apache-2.0
// Core: the state that entries need even after their cache is gone (memory, jobs, the room on each
// node), and the counters. It does not know where entries are: see Shard.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "dirty_ranges.hpp"
#include "entry.hpp"
#include "headrace/base/atomic.hpp"
#include "headrace/base/counter.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/base/units.hpp"
#include "headrace/cache/cache.hpp"
#include "in_flight.hpp"
#include "pool.hpp"

namespace headrace::cache::detail {

/// As recycled() of pages of the operating system, but keeps at most 64 MiB of a node that no copy
/// uses.
[[nodiscard]] std::shared_ptr<MemorySource> default_memory();

/// Access counters and spare entries of one thread.
///
/// Threading: shared. Only the thread whose reader has the index writes.
struct alignas(kApartBytes) ThreadCounts {
  Counter hits;
  Counter duplicates;
  Counter misses;
  Counter not_placed;
  Counter refused;
  Counter weak_hits;
  Counter weak_misses;
  Pool::Stash stash;  ///< Numbers for the thread's next entries. Private to the thread.
  /// The thread's next spares, of one room. Any thread may take them, all at once; only this one
  /// puts some here.
  Atomic<std::uint32_t> spares{0};
};

/// The ThreadCounts of all threads, by ReaderPlace. Segment k is 2^k times as long as the first.
///
/// Threading: shared.
class CountsByThread {
 public:
  CountsByThread() {
    segments_[0].store_relaxed(new ThreadCounts[ReaderPlace::kFirstCount]);
  }  // relaxed: not shared yet.
  CountsByThread& operator=(CountsByThread&&) = delete;
  ~CountsByThread() {
    for (const Atomic<ThreadCounts*>& segment : segments_)
      delete[] segment.load_relaxed();  // relaxed: no other thread.
  }
  /// Allocates if this is the first thread with so high an index.
  ///
  /// Fails: throws std::bad_alloc.
  [[nodiscard]] ThreadCounts& of(ReaderPlace place) {
    // edge: counts-added (acquire)
    ThreadCounts* segment = segments_[place.segment].load_acquire();
    if (segment == nullptr) [[unlikely]]
      segment = add(place.segment);
    return segment[place.offset];
  }
  template <typename Visit>
  void for_each(Visit visit) const {
    for (std::uint32_t k = 0; k < segments_.size(); ++k) {
      ThreadCounts* const segment = segments_[k].load_acquire();  // edge: counts-added (acquire)
      for (std::uint32_t i = 0; segment != nullptr && i < ReaderPlace::kFirstCount << k; ++i) {
        visit(segment[i]);
      }
    }
  }
  [[nodiscard]] std::uint64_t total(Counter ThreadCounts::* counter) const {
    std::uint64_t sum = 0;
    for_each([&](const ThreadCounts& each) { sum += (each.*counter).value(); });
    return sum;
  }

 private:
  [[nodiscard]] ThreadCounts* add(std::uint32_t k) {
    auto made = std::make_unique<ThreadCounts[]>(std::size_t{ReaderPlace::kFirstCount} << k);
    ThreadCounts* present = nullptr;
    // edge: counts-added (acq_rel)
    if (segments_[k].compare_exchange_acq_rel(present, made.get())) return made.release();
    return present;
  }

  std::array<Atomic<ThreadCounts*>, 24> segments_{};
};

/// The room for copies on one node: bytes_used = sum of the reservations not yet released, and
/// never more than the capacity. Memory is reserved before it is allocated and released after it
/// has been freed. Spares are evicted entries that keep their room and memory for newcomers with
/// copies of the same length.
///
/// Threading: shared.
class alignas(64) Room {
 public:
  explicit Room(std::uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}
  [[nodiscard]] std::uint64_t capacity_bytes() const { return capacity_bytes_; }
  [[nodiscard]] std::uint64_t bytes_used() const {
    // relaxed: a count; the operating system orders the memory itself.
    return bytes_used_.load_relaxed();
  }
  [[nodiscard]] std::uint64_t bytes_free() const { return capacity_bytes_ - bytes_used(); }
  [[nodiscard]] bool try_reserve(std::uint64_t byte_count) {
    std::uint64_t used = bytes_used_.load_relaxed();  // relaxed: as above, here and below.
    do {
      // used <= capacity, so the difference does not wrap around.
      if (byte_count > capacity_bytes_ - used) return false;
    } while (!bytes_used_.compare_exchange_relaxed(used, used + byte_count));
    return true;
  }
  // relaxed: as above.
  void release(std::uint64_t byte_count) { bytes_used_.fetch_sub_relaxed(byte_count); }
  /// Without the lock: recent.
  [[nodiscard]] bool has_spares() const { return spare_.load_relaxed() != 0; }
  /// Adds spares of `byte_count` bytes, in chains of a 1024th of the node at most. A thread takes a
  /// chain at once, so that it seldom writes this line.
  void keep_spares(const Pool& pool, EntryList spares, std::uint64_t byte_count) {
    const auto count_max = std::min(capacity_bytes_ / 1024 / byte_count, std::uint64_t{16});
    const Lock lock(mutex_);
    while (const std::uint32_t first = spares.first) {
      EntryState* last = &pool[first];
      for (std::uint64_t count = 1; count < count_max && last->older != 0; ++count) {
        last = &pool[last->older];
      }
      spares.first = std::exchange(last->older, 0);
      // relaxed: written under the lock, read as advice.
      pool[first].newer = spare_.load_relaxed();
      spare_.store_relaxed(first);
      chain_count_.store_relaxed(chain_count_.load_relaxed() + 1);
    }
  }
  /// What was taken off the index and waits until all readers have seen `turn`, or for a barrier.
  struct Off {
    EntryList entries;
    std::uint64_t retired_bytes = 0;  ///< Of those that were invalidated.
    std::uint64_t turn = 0;
  };
  [[nodiscard]] Off take_off() {
    const Lock lock(mutex_);
    return std::exchange(off_, {});
  }
  std::uint64_t put_off(const Pool& pool, Off off) {
    const Lock lock(mutex_);
    if (off_.entries.count == 0) std::swap(off_.entries, off.entries);
    while (const std::uint32_t number = off.entries.pop(pool)) off_.entries.push(pool, number);
    off_.turn = std::max(off_.turn, off.turn);
    return off_.retired_bytes += off.retired_bytes;
  }
  /// Few spares are left: it is time to free what was taken off. Recent.
  [[nodiscard]] bool is_low() const { return chain_count_.load_relaxed() < 2; }
  /// The last chain if `accept(entry)` for its first; 0 if there is none.
  template <typename Accept>
  [[nodiscard]] std::uint32_t take_spares(const Pool& pool, Accept accept) {
    if (!has_spares()) return 0;
    const Lock lock(mutex_);  // relaxed: as above, here and below.
    const std::uint32_t number = spare_.load_relaxed();
    if (number == 0 || !accept(pool[number])) return 0;
    spare_.store_relaxed(pool[number].newer);
    chain_count_.store_relaxed(chain_count_.load_relaxed() - 1);
    return number;
  }

 private:
  const std::uint64_t capacity_bytes_;
  Atomic<std::uint64_t> bytes_used_{0};
  /// The first of the last chain, written under the mutex. Chains are linked through `newer` of
  /// their first, and in themselves through `older`. All in one line.
  Atomic<std::uint32_t> spare_{0};
  Atomic<std::uint32_t> chain_count_{0};
  Mutex mutex_;
  Off off_ HEADRACE_GUARDED_BY(mutex_);
};

/// Ownership: shared by the cache, every dropped entry that is held, and every live Change.
/// Threading: shared; `rooms`, `memory`, `granule_bytes` and `into_cache` are fixed before the
/// cache is used.
struct Core {
  Observer observer;  ///< First, so that a hit finds it in the cache line of counts_by_thread.
  CountsByThread counts_by_thread;
  /// Not in counts_by_thread: it is incremented where nothing may be allocated.
  Counter policy_errors;
  Counter late_writes;
  Counter bytes_kept;
  Counter evictions;
  Counter bad_sources;
  Counter write_backs;
  Counter bytes_written_back;
  Counter waits;
  Counter waited_ns;
  alignas(64) std::deque<Room> rooms;  ///< Apart from the counters: each miss reads it.
  std::vector<Room*> room_of;  ///< By the number of the shard; those of one node have one room.
  std::vector<NodeId> nodes;
  std::shared_ptr<MemorySource> memory;
  std::size_t granule_bytes = 1;
  bool into_cache = false;
  Pool pool;
  std::deque<InFlightMoves> in_flight;  ///< By the number of the shard.
  DirtyRanges dirty{pool};

  /// Blocks until the move of `entry` has ended, polling it if its mover needs that. Counted in
  /// waits. Returns whether it has ended.
  bool wait(EntryState& entry, std::chrono::nanoseconds time_max);
  /// As wait(), but not counted.
  bool wait_blocked(EntryState& entry,
                    std::chrono::nanoseconds time_max = std::chrono::nanoseconds::max());
  enum class Allocation : std::uint8_t { done, node_is_full, failed };
  void free_copy(EntryState& entry) noexcept;
  /// Calls `visit(slot, word, entry)` for every lease of an entry of this cache.
  template <typename Visit>
  void for_each_lease(Visit visit) const {
    Reader::registry().for_each_lease([&](Slot& slot, std::uintptr_t word) {
      auto* const entry = static_cast<EntryState*>(Slot::entry_of(word));
      // Another cache's may have been freed.
      if (pool.number_of(entry) != 0) visit(slot, word, *entry);
    });
  }
  /// Frees the spares of a node, and those of threads. Returns whether there were any.
  bool free_spares(Room& room) noexcept;
  /// Gives a thread's spares to their node.
  void keep_spares(std::uint32_t first) {
    const EntryState& entry = pool[first];
    room_of[entry.shard_number()]->keep_spares(pool, {first}, footprint(entry));
  }
  [[nodiscard]] std::uint64_t footprint(const EntryState& entry) const {
    return footprint_bytes(entry.region().byte_count, granule_bytes);
  }
  [[nodiscard]] InFlightMoves& moves_of(const EntryState& entry) {
    return in_flight[entry.shard_number()];
  }
  /// The operation that fills the copy of an entry.
  [[nodiscard]] engine::Operation copy_operation(const EntryState& entry) const {
    const std::uint64_t byte_count = entry.region().byte_count;
    const auto copy =
        engine::Operation::copy({entry.copy, byte_count}, {entry.source(), byte_count});
    return into_cache ? copy.into_cache() : copy;
  }
  /// Submits copy_operation().
  [[nodiscard]] engine::Submit submit_copy(engine::Engine& engine, engine::Job& job,
                                           const EntryState& entry,
                                           const engine::SubmitOptions& options) const {
    if (into_cache) return engine.submit(job, copy_operation(entry), options);
    const std::uint64_t byte_count = entry.region().byte_count;
    return engine.submit_copy(job, {{entry.copy, byte_count}, {entry.source(), byte_count}},
                              options);
  }
  /// The plan that writes `region` of an entry back to the source.
  [[nodiscard]] engine::CopyPlan write_back_plan(std::uint32_t number, const Region& region) const;
  /// Copies `region`, part of a claimed range, to the source on this thread.
  void return_bytes(const DirtyRanges::Range& claimed, const Region& region);
  /// Copies claimed ranges to the source on this thread.
  void return_bytes(std::span<const DirtyRanges::Range> claimed);
  /// As return_bytes(), then notifies the observer: only when all are written back, because it may
  /// access any of them.
  void write_back(std::span<const DirtyRanges::Range> claimed);
  /// Writes back the dirty bytes of `region`. False if a live change overlaps it.
  [[nodiscard]] bool write_back_overlapping(const Region& region);
  void tell_written_back(const DirtyRanges::Range& range);
  /// Stops the move of an entry that has no lease and cannot be found, waits for its end (the
  /// source and the copy may be gone afterwards), frees the entry and releases its reference on
  /// this core. Takes as long as one piece of the mover.
  void end_held(EntryState& entry, std::uint32_t number) noexcept;
  void end_held(EntryState& entry) noexcept { end_held(entry, pool.number_of(&entry)); }

  /// Notifies the observer, if set, or DeferredEvents of this thread.
  void tell(EventKind kind, std::span<const std::byte> region,
            std::optional<NodeId> node) noexcept {
    if (observer) [[unlikely]]
      tell_or_defer({kind, region, node});
  }
  void tell(EventKind kind, const EntryState& entry) noexcept {
    tell(kind, {entry.source(), entry.region().byte_count}, nodes[entry.shard_number()]);
  }
  /// Notifies the observer, if set, of the end of a move.
  void tell_ended(EventKind kind, const EntryState& entry,
                  const engine::Completion& completion) noexcept {
    if (observer) [[unlikely]]
      tell_observer({kind,
                     {entry.source(), entry.region().byte_count},
                     nodes[entry.shard_number()],
                     completion.cause,
                     completion.late_write_possible});
  }

  void keep(std::uint32_t count) {
    owner_count_.fetch_add_relaxed(count);
  }  // relaxed: the caller has a reference.
  // edge: core-released (acq_rel)
  void let_go() noexcept {
    if (owner_count_.fetch_sub_acq_rel(1) == 1) delete this;
  }

 private:
  friend class DeferredEvents;

  void tell_or_defer(const Event& event) noexcept;
  void tell_observer(const Event& event) noexcept;

  Atomic<std::uint32_t> owner_count_{1};
};

/// Defers the events that Core::tell() reports on this thread: where other threads may wait for
/// this one, because the observer may wait for them. Of nested ones the outermost of a core
/// reports.
///
/// Threading: owned.
class DeferredEvents {
 public:
  explicit DeferredEvents(Core& core) : core_(core) {
    if (core.observer) [[unlikely]]
      begin();
  }
  DeferredEvents& operator=(DeferredEvents&&) = delete;
  ~DeferredEvents() {
    if (is_active_) [[unlikely]]
      report();
  }
  void report() noexcept;  ///< Reports the events, and defers no more. Idempotent.

 private:
  friend struct Core;

  void begin() noexcept;

  Core& core_;
  bool is_active_ = false;
  DeferredEvents* outer_ = nullptr;
  std::vector<Event> events_;
};

/// Room and memory for a copy of `byte_count` bytes (a footprint), until an entry takes them over.
///
/// Threading: owned.
class Reservation {
 public:
  Reservation(Core& core, Room& room, NodeId node, std::uint64_t byte_count)
      : core_(core), room_(room), node_(node), byte_count_(byte_count) {}
  Reservation& operator=(Reservation&&) = delete;
  ~Reservation() {
    if (copy_ != nullptr) core_.memory->free({copy_, byte_count_});
    if (has_room_) give_room_back();
    if (spare_.number != 0) core_.pool.give_back(spare_.number);
  }
  /// Takes over a spare that is as long, from `spares` of the thread or else from the room.
  [[nodiscard]] bool try_reuse(Atomic<std::uint32_t>& spares) {
    const auto accept = [&](const EntryState& entry) {
      return core_.room_of[entry.shard_number()] == &room_ && core_.footprint(entry) == byte_count_;
    };
    std::uint32_t number = spares.exchange_acq_rel(0);  // edge: spares-kept (acq_rel)
    if (number == 0 || !accept(core_.pool[number])) [[unlikely]] {
      if (number != 0) core_.keep_spares(number);
      number = room_.take_spares(core_.pool, accept);
      if (number == 0) return false;
      is_low = room_.is_low();
    }
    spare_ = {number, &core_.pool[number]};
    if (const std::uint32_t next = spare_.entry->older; next != 0) {
      spares.store_release(next);  // edge: spares-kept (release)
      // Another thread may have evicted it: its line is here when it is wanted.
      __builtin_prefetch(&core_.pool[next], 1);
    }
    copy_ = spare_.entry->copy;
    return has_room_ = true;
  }
  /// An entry to own both: the spare, or one from `stash`.
  [[nodiscard]] Pool::Taken take_entry(Pool::Stash& stash) {
    return spare_.number != 0 ? std::exchange(spare_, {}) : core_.pool.take_entry(stash);
  }
  [[nodiscard]] bool try_reserve() { return has_room_ = room_.try_reserve(byte_count_); }
  /// Call after try_reserve() succeeded. Releases the room on failure.
  ///
  /// Fails: throws what the memory source throws.
  [[nodiscard]] Core::Allocation allocate() {
    const Result<std::span<std::byte>> given = core_.memory->allocate(byte_count_, node_);
    if (!given.has_value() || given->data() == nullptr ||
        reinterpret_cast<std::uintptr_t>(given->data()) % MemorySource::kAlignment != 0 ||
        given->size() < byte_count_) [[unlikely]] {
      return refuse(given);
    }
    copy_ = given->data();
    return Core::Allocation::done;
  }
  [[nodiscard]] std::byte* copy() const { return copy_; }
  /// The entry now owns both.
  void release_to_entry() {
    has_room_ = false;
    copy_ = nullptr;
  }

  bool is_pinned = false;  ///< The new entry replaces a pinned one.
  bool is_low = false;     ///< As Room::is_low(), if try_reuse() went there.

 private:
  [[nodiscard]] Core::Allocation refuse(const Result<std::span<std::byte>>& given);
  void give_room_back() {
    room_.release(byte_count_);
    has_room_ = false;
  }

  Core& core_;
  Room& room_;
  const NodeId node_;
  bool has_room_ = false;
  const std::uint64_t byte_count_;
  Pool::Taken spare_;
  std::byte* copy_ = nullptr;
};

}  // namespace headrace::cache::detail
