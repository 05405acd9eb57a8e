// SPDX-License-Identifier: Apache-2.0
// Shelf: the entries of one node, found by the address of their source, in the order they came.
// It never moves, waits or frees: what it drops it hands to its caller, who destroys it with no
// lock held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <span>

#include "headrace/base/mutex.hpp"
#include "headrace/cache/cache.hpp"
#include "ledger.hpp"

namespace headrace::cache::detail {

/// A list, because entries go from the shelf to their end by splicing: that allocates nothing, so
/// it cannot fail half way.
using Entries = std::list<Entry>;

/// by_address_ leads to exactly the entries in entries_. An entry that makes way for a longer one
/// while its move runs cannot be dropped at once, because that might mean to wait: it goes to
/// superseded_, and from there at the first insertion after its end.
///
/// An entry is held if there is a handle on it besides the shelf's own. While the shelf is locked
/// for writing no entry that is not held can become so, because handles are copied from handles.
///
/// Threading: shared.
class Shelf {
 public:
  explicit Shelf(Room& room) : room_(room) {}

  [[nodiscard]] Room& room() { return room_; }

  /// The entry with the address of `source` and at least its length, unless its move failed.
  [[nodiscard]] std::optional<Entry> find(std::span<const std::byte> source);
  /// Adds `entry`, which then expects its submission, unless find() would find another one: then
  /// returns that. An entry with this address that is too short, or whose move failed, makes way.
  [[nodiscard]] std::optional<Entry> insert(const Entry& entry, Entries& dropped);
  void erase(const Entry& entry, Entries& dropped);

  /// Drops the oldest unused entries until there is room for `byte_count`, nothing if they are not
  /// enough. Unused: not held, and not moving. Returns false if they are not enough.
  [[nodiscard]] bool evict(std::uint64_t byte_count, Entries& dropped);
  void drop_unheld(Entries& dropped);
  void drop_overlapping(std::span<const std::byte> source, Entries& dropped);
  void drop_all(Entries& dropped);

 private:
  using Place = Entries::iterator;

  [[nodiscard]] const Entry* find_locked(std::span<const std::byte> source) const
      HEADRACE_TSA(requires_shared_capability(mutex_));
  /// Moves the entry to `dropped` and returns its successor.
  Place unlink(Place place, Entries& dropped) HEADRACE_REQUIRES(mutex_);

  Room& room_;
  SharedMutex mutex_;
  /// Oldest first.
  Entries entries_ HEADRACE_GUARDED_BY(mutex_);
  Entries superseded_ HEADRACE_GUARDED_BY(mutex_);
  std::map<std::uintptr_t, Place> by_address_ HEADRACE_GUARDED_BY(mutex_);
  /// No entry was ever longer: bounds how far before an address an overlapping entry may begin.
  std::size_t source_bytes_max_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace::cache::detail
