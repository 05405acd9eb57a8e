// SPDX-License-Identifier: Apache-2.0
// DirtyRanges: records which bytes are changed in their copy (or by a Change directly in the
// source), so that the source or other copies are outdated, and who may access them. It copies
// nothing.
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

/// Ranges of source bytes, which never overlap each other.
///
/// | state     | entered by                       | the source    | who may access the copy |
/// | --------- | -------------------------------- | ------------- | ----------------------- |
/// | changing  | begin()                          | old           | the thread that began   |
/// | dirty     | end(), if it is of an entry      | old           | readers                 |
/// | returning | claim...()                       | being written | readers and the claimer |
/// | (removed) | mark_clean(), invalidate(), or end() | new           | readers                 |
/// |           | of a range without an entry      |               |                         |
///
/// An entry has the flag EntryState::kDirty while it has ranges. Such entries leave their shard
/// only by invalidate(), clear() and a change of the same bytes elsewhere, which mark their
/// ranges before the entry ends. So a claimed range keeps its copy until it is written back.
///
/// Threading: shared.
class DirtyRanges {
 public:
  struct Range {
    Region region;
    /// Number of the entry whose copy has the bytes; 0: they are in the source.
    std::uint32_t entry = 0;
    std::uint64_t ticket = 0;
    std::uint16_t shard = 0;  ///< Number of the entry's shard, for events after the entry is gone.
  };
  enum class Begin : std::uint8_t { done, busy, elsewhere, gone };
  enum class Claim : std::uint8_t { done, busy, none };

  explicit DirtyRanges(Pool& pool) : pool_(pool) {}

  /// False if there is no range: then the sources are up to date. Exact for a submitter that
  /// registered its move after a change that began looked for moves.
  [[nodiscard]] bool any() const { return count_.any(); }
  /// Begins a change of `region`, whose bytes are in the copy of `entry` (leased by the caller) or,
  /// if `entry` is 0, in the source. Dirty bytes of the same copy outside `region` stay dirty.
  /// Waits for overlapping ranges that are returning.
  ///
  /// `is_listed()` returns whether `entry` can be found. It is called under the lock after the flag
  /// is set, so a later dropper sees the flag. (To begin the change and undo it would briefly keep
  /// other threads from writing back earlier changes.)
  ///
  /// Returns: busy if an overlapping range is changing; elsewhere if one is dirty in another copy:
  ///          claim that first; gone if `entry` is not listed.
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
  /// Ends the change. True if its entry has been dropped: the caller must copy the range to the
  /// source.
  [[nodiscard]] bool end(const Range& range);

  /// Waits for ranges that overlap `region` and are returning, then claims a dirty one, even if
  /// another is changing: an access that begins after a change has ended must see that change.
  ///
  /// Returns: done if a range was claimed; else busy if one is changing, else none.
  [[nodiscard]] Claim claim_overlapping(const Region& region, Range& claimed);
  /// Claims the dirty ranges of the entries for which `choose(number)` is true.
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
  /// Waits for ranges that overlap `region` and are returning. True if one is changing.
  [[nodiscard]] bool is_changing(const Region& region);
  /// Claims a dirty range of an entry that has left its shard, after its returning ranges have been
  /// written back; nullopt if none is left. Changing ranges are written back when their change
  /// ends. Ranges inside `lost` are discarded.
  [[nodiscard]] std::optional<Range> claim_one(std::uint32_t entry,
                                               const std::optional<Region>& lost = std::nullopt);
  /// Removes a claimed range, whose bytes are in the source.
  void mark_clean(const Range& range);

 private:
  enum class State : std::uint8_t { changing, dirty, returning };
  struct What {
    std::uint64_t byte_count = 0;
    std::uint32_t entry = 0;
    std::uint64_t ticket = 0;
    State state = State::changing;
    bool is_orphan = false;  ///< Changing, and its entry has been dropped.

    [[nodiscard]] Region region(std::uintptr_t address) const { return {address, byte_count}; }
  };
  using Ranges = std::map<std::uintptr_t, What>;

  [[nodiscard]] Range take(std::uintptr_t address, What& what);
  /// Whether a change may begin. Waits for ranges that are returning.
  [[nodiscard]] Begin find_room(const Region& region, std::uint32_t entry)
      HEADRACE_REQUIRES(mutex_);
  /// Fails: as begin().
  void insert(const Region& region, std::uint32_t entry, Range& range) HEADRACE_REQUIRES(mutex_);
  /// Clears the flag of the entry if it has no range.
  void clean_without_ranges(std::uint32_t number) HEADRACE_REQUIRES(mutex_);
  [[nodiscard]] bool finish(Ranges::iterator place) HEADRACE_REQUIRES(mutex_);
  /// True if `next` begins where `place` ends, in the same copy, and both are dirty.
  [[nodiscard]] bool continues(Ranges::iterator place, Ranges::iterator next)
      HEADRACE_REQUIRES(mutex_);
  /// Removes `region` from the dirty ranges that overlap it, from `place` on.
  ///
  /// Fails: throws std::bad_alloc; then nothing has changed.
  void cut_out(const Region& region, Ranges::iterator place) HEADRACE_REQUIRES(mutex_);
  void erase(Ranges::iterator place) HEADRACE_REQUIRES(mutex_);
  [[nodiscard]] Ranges::iterator first_overlapping(const Region& region) HEADRACE_REQUIRES(mutex_);
  /// The range, or end() if it was invalidated.
  [[nodiscard]] Ranges::iterator find(const Range& range) HEADRACE_REQUIRES(mutex_);
  void await_returned(const Region& region) HEADRACE_REQUIRES(mutex_);

  Pool& pool_;
  Mutex mutex_;
  Condition written_back_;
  Ranges ranges_ HEADRACE_GUARDED_BY(mutex_);
  std::uint64_t ticket_ HEADRACE_GUARDED_BY(mutex_) = 0;
  DirtyCount count_;
};

}  // namespace headrace::cache::detail
