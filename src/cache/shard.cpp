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
    if (old.listing.load_relaxed() != Listing::listed) return;  // relaxed: under the lock.
    if (old.is_dirty()) return;                // It stays until its bytes have been written back.
    is_pinned = is_pinned || old.is_pinned();  // The longer entry takes over the pin.
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
  entry.listing.store_release(Listing::listed);  // edge: entry-listed (release)
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
                  std::uint32_t share, Hint newcomer, Room::Off& off) {
  for (const std::unique_ptr<Shard>& shard : shards) shard->moves_.mutex.lock();
  std::uint64_t gained = 0;
  for (const std::unique_ptr<Shard>& shard : shards) {
    gained += shard->propose(byte_count - gained, share, newcomer);
    if (gained >= byte_count) break;
  }
  for (const std::unique_ptr<Shard>& shard : shards) {
    shard->decide(gained >= byte_count, off);
    shard->moves_.mutex.unlock();
  }
  return gained >= byte_count;
}

std::uint64_t Shard::propose(std::uint64_t byte_count, std::uint32_t share, Hint newcomer) {
  const std::uint64_t bulk_bytes = room_.bytes_used() / kBulkOneOf / share;
  const std::uint32_t bulk_count = std::min(kBulkCount / share, index_.count() / kBulkShareMax);
  // Those that are held: the others may be, which free_off() will see.
  const std::uint32_t round = ++round_;
  core_.for_each_lease([&](Slot&, std::uintptr_t, EntryState& entry) {
    // relaxed: under the lock, if it is of this shard.
    if (entry.shard_number() == number_ && entry.listing.load_relaxed() == Listing::listed) {
      entry.holder_count.store_relaxed(round);
    }
  });
  std::uint64_t gained = retired_bytes_;
  // More than is needed: a barrier costs as much as many misses.
  while (gained < byte_count || (gained < bulk_bytes && proposed_.count < bulk_count)) {
    const auto [number, entry] = order_.propose(newcomer);
    if (number == 0) break;
    if (entry->is_pinned() || entry->is_dirty() || !ended(entry->progress.now()) ||
        entry->holder_count.load_relaxed() == round) {  // relaxed: under the lock.
      passed_over_.push(number, *entry);
    } else {
      proposed_.push(number, *entry);
      gained += core_.footprint(*entry);
    }
  }
  return gained;
}

void Shard::decide(bool is_evicted, Room::Off& off) {
  if (is_evicted) {
    core_.evictions.add(proposed_.count);
    while (const std::uint32_t number = proposed_.pop(core_.pool)) {
      EntryState& entry = core_.pool[number];
      index_.remove(number, entry);
      order_.gone(entry);
      put_off(number, entry, off);
    }
    take_retired(off);
  }
  while (const std::uint32_t number = proposed_.pop(core_.pool)) order_.put_back(number);
  while (const std::uint32_t number = passed_over_.pop(core_.pool)) order_.put_back(number);
}

void Shard::drop_unheld(EntryList& gone) {
  const Lock lock(moves_.mutex);
  EntryList leaving;
  take_superseded(leaving, [](const EntryState&) { return true; });
  drop(leaving, gone);
  order_.for_each([&](std::uint32_t number) {
    EntryState& entry = core_.pool[number];
    if (!entry.is_pinned() && !entry.is_dirty()) mark_leaving(entry, number_, 0);
  });
  registry_.separate();
  // relaxed, here and below: under the lock.
  for_each_leaving(
      [](Slot&, std::uintptr_t, EntryState& entry) { entry.holder_count.store_relaxed(1); });
  order_.for_each([&](std::uint32_t number) {
    EntryState& entry = core_.pool[number];
    if (!is_leaving(entry, number_)) return;
    if (entry.holder_count.load_relaxed() != 0 || entry.is_dirty()) return list_again(entry);
    order_.remove(number);
    index_.remove(number, entry);
    entry.holder_count.store_relaxed(1);
    mark_dropped(entry);
    gone.push(core_.pool, number);
  });
}

template <typename Visit>
void Shard::for_each_overlapping(const Region& region, Visit visit) {
  const auto visit_listed = [&](std::uint32_t number) {
    const EntryState& entry = core_.pool[number];
    if (entry.listing.load_relaxed() != Listing::listed) return;  // relaxed: under the lock.
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

Shard::Retired Shard::retire_overlapping(const Region& region) {
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
  if (retired_bytes_ > retired_max_) found.is_much = put_retired() > kRetiredMax;
  return found;
}

void Shard::retire(std::uint32_t number, EntryState& entry) {
  retired_bytes_ += core_.footprint(entry);
  retired_.push(number, entry);
}

void Shard::give_retired() {
  const Lock lock(moves_.mutex);
  put_retired();
}

std::uint64_t Shard::put_retired() {
  Room::Off off;
  take_retired(off);
  off.turn = registry_.begin_turn();
  return room_.put_off(core_.pool, off);
}

void Shard::take_retired(Room::Off& off) {
  while (const std::uint32_t number = retired_.pop(core_.pool)) {
    put_off(number, core_.pool[number], off);
  }
  off.retired_bytes += std::exchange(retired_bytes_, 0);
}

void Shard::put_off(std::uint32_t number, EntryState& entry, Room::Off& off) {
  const bool is_free = !entry.is_memory_kept() && moves_.try_finish(entry);
  entry.queue = is_free ? EntryState::kOff : EntryState::kHeldBack;
  mark_leaving(entry, number_, 0);
  mark_dropped(entry);
  off.entries.push(number, entry);
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
    if (pinned) {  // relaxed: read under the lock.
      entry->flags.fetch_or_relaxed(EntryState::kPinned);
    } else {
      entry->flags.fetch_and_relaxed(static_cast<std::uint8_t>(~EntryState::kPinned));
    }
  }
  return found.size();
}

bool Shard::is_listed(std::uint32_t number) {
  const Lock lock(moves_.mutex);
  return core_.pool[number].listing.load_relaxed() == Listing::listed;  // relaxed: under the lock.
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
  core_.for_each_lease([&](Slot& slot, std::uintptr_t word, EntryState& entry) {
    if (is_leaving(entry, number_)) visit(slot, word, entry);
  });
}

}  // namespace headrace::cache::detail
