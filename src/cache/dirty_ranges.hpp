// SPDX-License-Identifier: Apache-2.0
// DirtyRanges: which bytes are changed in their copy (or under the cache's eyes in the source), so
// that the source or other copies of them are old. It says who may touch them; it copies nothing.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "entry.hpp"
#include "headrace/base/atomic.hpp"
#include "headrace/base/mutex.hpp"
#include "pool.hpp"

namespace headrace::cache::detail {

/// Ranges of source bytes, which never overlap each other. A range is
///
/// | state     | from                               | the source | who may touch the copy         |
/// | --------- | ---------------------------------- | ---------- | ------------------------------ |
/// | changing  | begin()                            | old        | the thread that began          |
/// | changed   | end(), if it is of an entry        | old        | readers                        |
/// | returning | claim...()                         | is written | readers, and the claimer       |
/// | gone      | settle(), a loss, or end() of a   | new        | readers                        |
/// |           | range of no entry                  |            |                                |
///
/// An entry is *flagged* (EntryState::kDirty) while it has ranges. Flagged entries do not leave
/// their shard but by invalidate(), clear() and a change of the same bytes elsewhere, which deal
/// with their ranges before the entry ends. So a claimed range has its copy until it is settled.
///
/// Why no eviction misses a flag: it is set by a holder of a lease, and read after the leases: a
/// thread that finds the lease gone sees the flag (edge lease-ended).
///
/// Threading: shared.
class DirtyRanges {
 public:
  struct Range {
    Region region;
    /// Number of the entry whose copy has the bytes; 0: they are in the source.
    std::uint32_t entry = 0;
    std::uint64_t ticket = 0;
    /// Number of the entry's shard, for the event of the range when the entry may be gone.
    std::uint16_t shard = 0;
  };
  enum class Begin : std::uint8_t { done, busy, elsewhere, gone };
  enum class Claim : std::uint8_t { done, busy, none };

  explicit DirtyRanges(Pool& pool) : pool_(pool) {}

  /// False if there is no range: then the sources have all that was written back. Exact for a
  /// submitter that has announced its move after a change that began has looked for moves.
  [[nodiscard]] bool any() const { return count_.any(); }
  /// Begins a change of `region`, whose bytes are in the copy of `entry`, on which the caller has a
  /// lease, or in the source. What is changed already in the same copy stays changed outside
  /// `region`: only the bytes of `region` are the caller's alone. Waits for what is returning.
  ///
  /// `is_listed()` says whether `entry` can be found. It is asked under the lock, and once the flag
  /// is set: who drops the entry later sees the flag. A change that began and was taken back would
  /// for a moment keep others from writing back what was changed before it.
  ///
  /// Returns: busy if an overlapping range is changing; elsewhere if one is changed in another
  ///          copy, which is to be claimed first; gone if `entry` is not listed.
  /// Fails:   throws std::bad_alloc; then nothing has changed.
  template <typename IsListed>
  [[nodiscard]] Begin begin(const Region& region, std::uint32_t entry, Range& range,
                            IsListed is_listed) {
    const Lock lock(mutex_);
    const Begin answer = find_room(region, entry);
    if (answer != Begin::done) return answer;
    if (entry != 0) {
      pool_[entry].mark_dirty();
      if (!is_listed()) {
        clean_without_ranges(entry);
        return Begin::gone;
      }
    }
    try {
      insert(region, entry, range);
    } catch (...) {
      if (entry != 0) clean_without_ranges(entry);
      throw;
    }
    return Begin::done;
  }
  /// Ends the change. Returns true if the caller is to copy the range to the source and to settle
  /// it: its entry has been dropped.
  [[nodiscard]] bool end(const Range& range);

  /// Claims a changed range that overlaps `region`, after those that are returning have been
  /// settled, also beside one that is changing: an access that begins after a change has ended must
  /// see it, whatever else is being changed.
  ///
  /// Returns: done until no changed range is left; then busy if one is changing, else none.
  [[nodiscard]] Claim claim_overlapping(const Region& region, Range& claimed);
  /// Claims the changed ranges of the entries that `choose(number)` names.
  template <typename Choose>
  [[nodiscard]] std::vector<Range> claim(Choose choose) {
    const Lock lock(mutex_);
    std::vector<Range> claimed;
    claimed.reserve(ranges_.size());
    for (auto& [address, what] : ranges_) {
      if (what.state == State::dirty && choose(what.entry)) claimed.push_back(take(address, what));
    }
    return claimed;
  }
  /// Waits for the ranges that overlap `region` and are returning. True if one is changing.
  [[nodiscard]] bool is_changing(const Region& region);
  /// Claims a changed range of an entry that has left its shard, after those that are returning
  /// have been settled; nothing if none is left. Those that are changing are returned when their
  /// change ends. Ranges that lie in `lost` are forgotten.
  [[nodiscard]] std::optional<Range> claim_one(std::uint32_t entry,
                                               const std::optional<Region>& lost = std::nullopt);
  /// The bytes of a claimed range are in the source.
  void settle(const Range& range);

 private:
  enum class State : std::uint8_t { changing, dirty, returning };
  struct What {
    std::uint64_t byte_count = 0;
    std::uint32_t entry = 0;
    std::uint64_t ticket = 0;
    State state = State::changing;
    bool is_orphan = false;  ///< Of a range that is changing: its entry has been dropped.

    [[nodiscard]] Region region(std::uintptr_t address) const { return {address, byte_count}; }
  };
  using Ranges = std::map<std::uintptr_t, What>;

  [[nodiscard]] Range take(std::uintptr_t address, What& what);
  /// Whether a change may begin; waits for what is returning.
  [[nodiscard]] Begin find_room(const Region& region, std::uint32_t entry)
      HEADRACE_REQUIRES(mutex_);
  /// Fails: as begin().
  void insert(const Region& region, std::uint32_t entry, Range& range) HEADRACE_REQUIRES(mutex_);
  /// Takes the flag from an entry that has no range.
  void clean_without_ranges(std::uint32_t number) HEADRACE_REQUIRES(mutex_);
  [[nodiscard]] bool finish(Ranges::iterator place) HEADRACE_REQUIRES(mutex_);
  /// True if `next` begins where `place` ends, in the same copy, and both are changed.
  [[nodiscard]] bool continues(Ranges::iterator place, Ranges::iterator next)
      HEADRACE_REQUIRES(mutex_);
  /// Takes the bytes of `region` out of the changed ranges that overlap it, from `place` on.
  ///
  /// Fails: throws std::bad_alloc; then nothing has changed.
  void cut_out(const Region& region, Ranges::iterator place) HEADRACE_REQUIRES(mutex_);
  void erase(Ranges::iterator place) HEADRACE_REQUIRES(mutex_);
  [[nodiscard]] Ranges::iterator first_overlapping(const Region& region) HEADRACE_REQUIRES(mutex_);
  /// The range, unless it was invalidated.
  [[nodiscard]] Ranges::iterator find(const Range& range) HEADRACE_REQUIRES(mutex_);
  void await_returned(const Region& region) HEADRACE_REQUIRES(mutex_);

  Pool& pool_;
  Mutex mutex_;
  Condition settled_;
  Ranges ranges_ HEADRACE_GUARDED_BY(mutex_);
  std::uint64_t ticket_ HEADRACE_GUARDED_BY(mutex_) = 0;
  DirtyCount count_;
};

}  // namespace headrace::cache::detail
