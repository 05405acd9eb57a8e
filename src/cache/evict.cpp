// SPDX-License-Identifier: Apache-2.0
// CacheState::evict(): memory for a miss into a full node, mostly of what an earlier one took off.
#include "state.hpp"

namespace headrace::cache {

using detail::Room;

std::uint64_t CacheState::free_off(Room& room, Room::Off off, std::uint64_t spare_bytes) const {
  const detail::Pool& pool = core_->pool;
  const std::uint32_t dropper = detail::dropper_of(off.turn);
  bool is_any = false;  // Mostly none has a lease: then they need not be marked.
  core_->for_each_lease([&](Slot&, std::uintptr_t, const EntryState& entry) {
    // relaxed: written by the caller, or before it took them.
    is_any = is_any || entry.listing.load_relaxed() == detail::Listing::dropped;
  });
  if (is_any) {
    for (std::uint32_t number = off.entries.first; number != 0; number = pool[number].older) {
      detail::claim_dropped(pool[number], dropper);
    }
    core_->for_each_lease([&](Slot& slot, std::uintptr_t word, EntryState& entry) {
      if (detail::is_leaving(entry, dropper)) detail::mark(slot, word, entry);
    });
  }
  std::uint64_t gained = 0;
  EntryList spares;
  EntryList gone;
  while (const std::uint32_t number = off.entries.pop(pool)) {
    EntryState& entry = pool[number];
    if (is_any) {
      detail::mark_dropped(entry);
    } else {
      entry.holder_count.store_relaxed(1);  // relaxed: it has no holders.
    }
    const std::uint64_t byte_count = core_->footprint(entry);
    // edge: entry-released (acquire)
    const bool is_unheld = entry.holder_count.load_acquire() == 1;
    if (is_unheld) gained += byte_count;
    if (is_unheld && byte_count == spare_bytes && entry.queue == EntryState::kOff) [[likely]] {
      spares.push(number, entry);
    } else {
      gone.push(number, entry);
    }
  }
  if (spares.count != 0) room.keep_spares(pool, spares, spare_bytes);
  end(gone, EventKind::evicted);
  return gained;
}

std::uint64_t CacheState::free_with_barrier(Room& room, Room::Off off,
                                            std::uint64_t spare_bytes) const {
  if (off.entries.count == 0) return 0;
  off.turn = Reader::registry().begin_turn();
  Reader::registry().separate_and_park(off.turn);
  return free_off(room, off, spare_bytes);
}

std::span<const std::unique_ptr<Shard>> CacheState::shard_to_evict_from(Shard& shard) {
  // Of two the one with more entries, so that they stay about equal.
  const auto all = shards_of(shard);
  turns_.add(1);
  const std::unique_ptr<Shard>& other = all[turns_.value() % all.size()];
  return std::span(shards_).subspan((other->count() > shard.count() ? *other : shard).number(), 1);
}

std::uint64_t CacheState::evict_ahead(const Miss& miss, Shard& shard) {
  if (bulk_share(miss, shard) == 1) return 0;
  Room& room = shard.room();
  const Room::Off off = room.take_off();
  miss.reader.see_turn();
  if (!Reader::registry().is_seen(off.turn)) {
    room.put_off(core_->pool, off);
    return 0;
  }
  const std::uint64_t gained = free_off(room, off, miss.footprint_bytes);
  Room::Off next;
  Shard::evict(shard_to_evict_from(shard), 0, kBulkShare, miss.newcomer.hint, next);
  next.turn = Reader::registry().begin_turn();
  room.put_off(core_->pool, next);
  return gained;
}

bool CacheState::evict(const Miss& miss, Shard& shard, std::uint64_t byte_count) {
  Room& room = shard.room();
  std::uint64_t gained = evict_ahead(miss, shard);
  const std::uint32_t share = bulk_share(miss, shard);
  const auto all = shards_of(shard);
  for (std::uint64_t wanted_byte_count = byte_count; gained < byte_count;) {
    Room::Off off = room.take_off();
    const std::uint64_t bytes = off.entries.count != 0 ? 0 : byte_count - gained;
    if (!Shard::evict(shard_to_evict_from(shard), bytes, share, miss.newcomer.hint, off) &&
        all.size() > 1) {
      Shard::evict(all, bytes, share, miss.newcomer.hint, off);
    }
    if (off.entries.count != 0) {
      // Spares cause no events, so with an observer there are none.
      gained += free_with_barrier(room, off, core_->observer ? 0 : miss.footprint_bytes);
      continue;
    }
    // Dirty entries are evicted last, because writing back costs another copy. On this thread: the
    // mover might need it. As many as are enough; if some of them are held, twice as many.
    std::uint64_t hoped_byte_count = 0;
    std::uint32_t last_number = 0;
    const auto claimed = core_->dirty.claim([&](std::uint32_t number) {
      if (!is_on(number, shard.node())) return false;
      if (number == last_number) return true;
      if (hoped_byte_count >= wanted_byte_count) return false;
      last_number = number;
      hoped_byte_count += core_->footprint(core_->pool[number]);
      return true;
    });
    if (claimed.empty()) return core_->free_spares(room);
    core_->write_back(claimed);
    wanted_byte_count *= 2;
  }
  return true;
}

}  // namespace headrace::cache
