// SPDX-License-Identifier: Apache-2.0
#include "shard.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "headrace/base/check.hpp"

namespace headrace::cache::detail {

void Shard::pass_by(Slot& slot) {
  LeasedEntry* const last = vacate(slot);
  if (last != nullptr) core_.end_held(static_cast<EntryState&>(*last));
}

Index::Found Shard::find_locked(Reader& reader, const Region& region, Hint hint, Slot*& found) {
  return index_.find(region, Index::kStepMaxLocked, [&](EntryState& entry) {
    found = lease(reader, entry, region, hint);
    return found != nullptr;
  });
}

bool Shard::replace(const Region& region, EntryList& leaving) {
  if (superseded_.count != 0) {
    take_superseded(leaving, [](const EntryState& old) { return ended(old.progress.now()); });
  }
  bool is_pinned = false;
  EntryList made_way;  // Lambdas are analysed without the mutex.
  const auto make_way = [&](std::uint32_t old_number) {
    EntryState& old = core_.pool[old_number];
    if (old.region().address != region.address) return;
    // relaxed: under the lock.
    if (old.listing.load_relaxed() != Listing::listed) return;
    if (old.is_dirty()) return;  // It stays until its bytes have been written back.
    // The longer entry takes over the pin.
    is_pinned = is_pinned || old.is_pinned();
    if (ended(old.progress.now())) return take_off(old_number, leaving);
    index_.remove(old_number, old);
    order_.remove(old_number);
    mark_dropped(old);
    made_way.push(core_.pool, old_number);
  };
  index_.for_each_overlapping({region.address, 1}, Index::class_of(region.byte_count), make_way);
  while (const std::uint32_t old_number = made_way.pop(core_.pool)) {
    superseded_.push(core_.pool, old_number);
  }
  return is_pinned;
}

Shard::Published Shard::publish(Reader& reader, std::uint32_t number, EntryState& entry,
                                const Newcomer& newcomer, EntryList& gone) {
  const Lock lock(moves_.mutex);
  index_.reserve_one();
  const std::uint32_t thread = reader.place().offset;
  moves_.reserve_one(thread);
  Published published;
  // Again, because another thread may have been faster.
  const auto found = find_locked(reader, entry.region(), newcomer.hint, published.present);
  if (found == Index::Found::entry) [[unlikely]]
    return published;
  // Nothing throws from here on.
  if (found == Index::Found::replaceable || superseded_.count != 0) [[unlikely]] {
    EntryList leaving;
    // relaxed: under the lock.
    if (replace(entry.region(), leaving)) entry.flags.fetch_or_relaxed(EntryState::kPinned);
    drop(leaving, gone);
  }
  // edge: entry-listed (release)
  entry.listing.store_release(Listing::listed);
  index_.add(number, entry);
  order_.add(number, entry, newcomer.hint);
  published.move = &moves_.begin_move(entry, newcomer.is_gathered, thread);
  return published;
}

Slot* Shard::make_way(Reader& reader, const Region& region, Hint hint, bool& is_pinned,
                      EntryList& gone) {
  const Lock lock(moves_.mutex);
  Slot* present = nullptr;
  if (find_locked(reader, region, hint, present) == Index::Found::entry) return present;
  EntryList leaving;
  is_pinned = replace(region, leaving) || is_pinned;
  drop(leaving, gone);
  return nullptr;
}

void Shard::erase(std::uint32_t number, EntryList& gone) {
  const Lock lock(moves_.mutex);
  // relaxed: under the lock. It may have been dropped or replaced already.
  if (core_.pool[number].listing.load_relaxed() != Listing::listed) return;
  EntryList leaving;
  take_off(number, leaving);
  drop(leaving, gone);
}

// Locks of a list: Clang's analysis cannot follow them.
HEADRACE_TSA(no_thread_safety_analysis)
bool Shard::evict(std::span<const std::unique_ptr<Shard>> shards, std::uint64_t byte_count,
                  Hint newcomer, std::uint64_t spare_bytes, Evicted& evicted) {
  for (const std::unique_ptr<Shard>& shard : shards) shard->moves_.mutex.lock();
  std::uint64_t gained = 0;
  for (const std::unique_ptr<Shard>& shard : shards) {
    if (gained >= byte_count) break;
    gained += shard->propose(byte_count - gained, newcomer);
  }
  for (const std::unique_ptr<Shard>& shard : shards) {
    shard->decide(gained >= byte_count, spare_bytes, evicted);
    shard->moves_.mutex.unlock();
  }
  return gained >= byte_count;
}

std::uint64_t Shard::propose(std::uint64_t byte_count, Hint newcomer) {
  Pool& pool = core_.pool;
  const std::uint64_t bulk_bytes = room_.bytes_used() / kBulkOneOf;
  const std::uint32_t bulk_count = std::min(kBulkCount, index_.count() / kBulkShareMax);
  // What was invalidated is freed by the same barrier.
  proposed_ = std::exchange(retired_, {});
  std::uint64_t gained = std::exchange(retired_bytes_, 0);
  for (std::uint32_t number = proposed_.first; number != 0; number = pool[number].older) {
    mark_leaving(pool[number], number_, 0);
  }
  for (std::uint32_t count_before = 0;; count_before = proposed_.count) {
    std::uint32_t* last = &proposed_.first;
    while (*last != 0) last = &pool[*last].older;
    // More than is needed: the barrier below costs as much as many misses.
    while (gained < byte_count || (gained < bulk_bytes && proposed_.count < bulk_count)) {
      const auto [number, proposed] = order_.propose(newcomer);
      if (number == 0) break;
      EntryState& entry = *proposed;
      if (entry.is_pinned() || entry.is_dirty() || !ended(entry.progress.now())) {
        passed_over_.push(number, entry);
        continue;
      }
      mark_leaving(entry, number_, 0);
      *last = number;
      last = &entry.older;
      ++proposed_.count;
      gained += core_.footprint(entry);
    }
    *last = 0;
    if (proposed_.count == count_before) break;
    // Most of those that are held are seen without a barrier, which is needed only for the others.
    if (look_for_holders(false)) gained -= pass_over_held();
    if (proposed_.count != 0) {
      look_for_holders(true);
      gained -= pass_over_held();
    }
    if (gained >= byte_count) break;
  }
  return gained;
}

std::uint64_t Shard::pass_over_held() {
  std::uint64_t byte_count = 0;
  for (std::uint32_t* at = &proposed_.first; *at != 0;) {
    const std::uint32_t number = *at;
    EntryState& entry = core_.pool[number];
    // relaxed: written under the lock.
    if (entry.holder_count.load_relaxed() == 0 && !entry.is_dirty()) [[likely]] {
      at = &entry.older;
      continue;
    }
    *at = entry.older;
    --proposed_.count;
    byte_count += core_.footprint(entry);
    if (entry.queue == kRetired) {
      mark_dropped(entry);
      retire(number, entry);
    } else {
      list_again(entry);
      passed_over_.push(number, entry);
    }
  }
  return byte_count;
}

void Shard::decide(bool is_evicted, std::uint64_t spare_bytes, Evicted& evicted) {
  Pool& pool = core_.pool;
  if (proposed_.count + passed_over_.count == 0) return;
  while (const std::uint32_t number = proposed_.pop(pool)) {
    EntryState& entry = pool[number];
    const bool is_retired = entry.queue == kRetired;
    if (is_evicted || is_retired) {
      if (!is_retired) {
        index_.remove(number, entry);
        order_.gone(entry);
        ++evicted.count;
      }
      mark_dropped(entry);
      if (is_evicted && core_.footprint(entry) == spare_bytes && !entry.is_memory_kept() &&
          (entry.moving == 0 || moves_.try_finish(entry))) {
        evicted.spares.push(number, entry);
      } else {
        entry.holder_count.store_relaxed(1);  // relaxed: it has no holders.
        evicted.gone.push(number, entry);
      }
    } else {
      list_again(entry);
      passed_over_.push(pool, number);
    }
  }
  while (const std::uint32_t number = passed_over_.pop(pool)) order_.put_back(number);
}

void Shard::drop_unheld(EntryList& gone) {
  const Lock lock(moves_.mutex);
  Pool& pool = core_.pool;
  order_.for_each([&](std::uint32_t number) {
    const EntryState& entry = pool[number];
    if (!entry.is_pinned() && !entry.is_dirty()) mark_leaving(pool[number], number_, 0);
  });
  EntryList superseded;
  while (const std::uint32_t number = superseded_.pop(pool)) {
    mark_leaving(pool[number], number_, 0);
    superseded.push(pool, number);
  }
  look_for_holders(true);
  order_.for_each([&](std::uint32_t number) {
    EntryState& entry = pool[number];
    if (!is_leaving(entry, number_)) return;
    // relaxed, here and below: under the lock.
    if (entry.holder_count.load_relaxed() != 0 || entry.is_dirty()) return list_again(entry);
    order_.remove(number);
    index_.remove(number, entry);
    entry.holder_count.store_relaxed(1);
    mark_dropped(entry);
    gone.push(pool, number);
  });
  while (const std::uint32_t number = superseded.pop(pool)) {
    EntryState& entry = pool[number];
    mark_dropped(entry);
    if (entry.holder_count.load_relaxed() != 0) {
      superseded_.push(pool, number);
    } else {
      entry.holder_count.store_relaxed(1);
      gone.push(pool, number);
    }
  }
}

template <typename Visit>
void Shard::for_each_overlapping(const Region& region, Visit visit) {
  const auto visit_listed = [&](std::uint32_t number) {
    const EntryState& entry = core_.pool[number];
    // relaxed: under the lock.
    if (entry.listing.load_relaxed() != Listing::listed) return;
    if (entry.region().overlaps(region)) visit(number);
  };
  if (index_.block_count(region) > index_.count()) {
    order_.for_each(visit_listed);
  } else {
    index_.for_each_overlapping(region, Index::class_of(~std::uint64_t{0}), visit_listed);
  }
}

void Shard::drop_overlapping(const Region& region, EntryList& gone, std::uint32_t except) {
  const Lock lock(moves_.mutex);
  EntryList leaving;
  for_each_overlapping(region, [&](std::uint32_t number) {
    if (number != except) take_off(number, leaving);
  });
  // Movers may still read the regions of superseded entries.
  take_superseded(leaving, [&](const EntryState& old) { return old.region().overlaps(region); });
  drop(leaving, gone);
}

Shard::Retired Shard::retire_overlapping(const Region& region, EntryList& gone) {
  const Lock lock(moves_.mutex);
  Retired found;
  EntryList taken;  // Lambdas are analysed without the mutex.
  for_each_overlapping(region, [&](std::uint32_t number) {
    EntryState& entry = core_.pool[number];
    if (entry.is_dirty() || !ended(entry.progress.now())) {
      found.is_all = false;
      return;
    }
    index_.remove(number, entry);
    order_.remove(number);
    mark_dropped(entry);
    taken.push(number, entry);
  });
  found.is_all = found.is_all && superseded_.count == 0;
  found.count = taken.count;
  while (const std::uint32_t number = taken.pop(core_.pool)) retire(number, core_.pool[number]);
  if (retired_.count >= kBulkCount || retired_bytes_ > retired_max_) drop_retired(gone);
  return found;
}

void Shard::retire(std::uint32_t number, EntryState& entry) {
  entry.queue = kRetired;
  retired_bytes_ += core_.footprint(entry);
  retired_.push(number, entry);
}

void Shard::end_retired(EntryList& gone) {
  const Lock lock(moves_.mutex);
  drop_retired(gone);
}

void Shard::drop_retired(EntryList& gone) {
  EntryList leaving;
  while (const std::uint32_t number = retired_.pop(core_.pool)) {
    mark_leaving(core_.pool[number], number_, 1);
    leaving.push(core_.pool, number);
  }
  retired_bytes_ = 0;
  drop(leaving, gone);
}

void Shard::drop_all(EntryList& gone) {
  const Lock lock(moves_.mutex);
  EntryList leaving;
  order_.for_each([&](std::uint32_t number) { take_off(number, leaving); });
  take_superseded(leaving, [](const EntryState&) { return true; });
  drop(leaving, gone);
}

std::size_t Shard::pin(const Region& region, bool pinned) {
  const Lock lock(moves_.mutex);
  std::vector<EntryState*> found;  // Both links of an entry may be in one chain.
  index_.find(region, Index::kStepMaxLocked, [&](EntryState& entry) {
    if (std::find(found.begin(), found.end(), &entry) == found.end()) found.push_back(&entry);
    return false;
  });
  for (EntryState* const entry : found) {
    // relaxed: read under the lock.
    if (pinned) {
      entry->flags.fetch_or_relaxed(EntryState::kPinned);
    } else {
      entry->flags.fetch_and_relaxed(static_cast<std::uint8_t>(~EntryState::kPinned));
    }
  }
  return found.size();
}

bool Shard::is_listed(std::uint32_t number) {
  const Lock lock(moves_.mutex);
  // relaxed: under the lock.
  return core_.pool[number].listing.load_relaxed() == Listing::listed;
}

bool Shard::look_for_holders(bool with_barrier) {
  if (with_barrier) registry_.separate();
  bool is_any = false;
  for_each_leaving([&](Slot&, std::uintptr_t, EntryState& entry) {
    entry.holder_count.store_relaxed(1);  // relaxed: under the lock.
    is_any = true;
  });
  return is_any;
}

void Shard::drop(EntryList& leaving, EntryList& gone) {
  if (leaving.count == 0) return;
  registry_.separate();
  for_each_leaving(
      [](Slot& slot, std::uintptr_t word, EntryState& entry) { mark(slot, word, entry); });
  while (const std::uint32_t number = leaving.pop(core_.pool)) {
    mark_dropped(core_.pool[number]);
    gone.push(core_.pool, number);
  }
}

void Shard::take_off(std::uint32_t number, EntryList& leaving) {
  EntryState& entry = core_.pool[number];
  index_.remove(number, entry);
  order_.remove(number);
  mark_leaving(entry, number_, 1);
  leaving.push(core_.pool, number);
}

template <typename Condition>
void Shard::take_superseded(EntryList& leaving, Condition condition) {
  EntryList kept;
  while (const std::uint32_t number = superseded_.pop(core_.pool)) {
    if (condition(core_.pool[number])) {
      mark_leaving(core_.pool[number], number_, 1);
      leaving.push(core_.pool, number);
    } else {
      kept.push(core_.pool, number);
    }
  }
  superseded_ = kept;
}

template <typename Visit>
void Shard::for_each_leaving(Visit visit) {
  registry_.for_each_lease([&](Slot& slot, std::uintptr_t word) {
    auto* const entry = static_cast<EntryState*>(Slot::entry_of(word));
    // It may belong to another cache and have been freed.
    if (core_.pool.number_of(entry) == 0) return;
    if (is_leaving(*entry, number_)) visit(slot, word, *entry);
  });
}

}  // namespace headrace::cache::detail
