// SPDX-License-Identifier: Apache-2.0
#include "state.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <utility>
#include <vector>

#include "headrace/base/check.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/platform/memory.hpp"

namespace headrace::cache {

namespace {

/// `policy`, except that an exception is counted and chooses no mover, which fails the move.
engine::MoverPolicy guarded(engine::MoverPolicy policy, Core& core) {
  if (!policy) return {};
  return [policy = std::move(policy), &core](const engine::MoveContext& context,
                                             engine::MoverChoice& choice) {
    try {
      policy(context, choice);
    } catch (...) {
      core.policy_errors.add(1);
      choice = engine::MoverChoice();
    }
  };
}

/// `source` must not be empty.
void check_address(std::span<const std::byte> source) {
  HEADRACE_CHECK(source.data() != nullptr, "a region that is not empty has an address",
                 source.size());
}

/// The parts of `region` before and behind `lost`.
std::array<Region, 2> outside(const Region& region, const std::optional<Region>& lost) {
  if (!lost || !lost->overlaps(region)) return {region, {}};
  const std::uint64_t before =
      lost->address > region.address ? lost->address - region.address : std::uint64_t{0};
  const std::uint64_t behind =
      region.last() > lost->last() ? region.last() - lost->last() : std::uint64_t{0};
  return {Region{region.address, before}, Region{lost->last() + 1, behind}};
}

}  // namespace

CacheState::CacheState(const topo::Machine& machine, engine::Engine& engine, CacheOptions options)
    : machine_(machine), engine_(engine), check_sources_(options.check_sources), core_(new Core) {
  mover_ = guarded(std::move(options.mover), *core_);
  if (!mover_ && !engine_.has_policy()) {
    const auto movers = engine_.movers();
    const auto device_count = std::ranges::count_if(movers, &engine::MoverInfo::hardware);
    has_choice_ = device_count > 1 || std::ssize(movers) - device_count > 1;
    if (has_choice_) mover_ = engine::movers::by_size;
  }
  core_->into_cache = options.into_cache;
  core_->observer = std::move(options.observer);
  core_->memory = options.memory ? std::move(options.memory) : detail::default_memory();
  core_->granule_bytes = platform::page_bytes();
  const std::uint64_t capacity = options.capacity_per_node.count();
  const auto stripe_count = static_cast<std::uint32_t>(std::bit_floor(std::clamp(
      capacity / kStripedBytes,
      std::clamp(8 * capacity / kStripedBytes, std::uint64_t{1}, kStripeMin), kStripeMax)));
  if (stripe_count > 1) {
    shards_per_node_ = stripe_count + 1;
    stripe_mask_ = stripe_count - 1;
  }
  std::vector<NodeId> nodes;
  for (const topo::Node& node : machine_.nodes) {
    if (std::find(nodes.begin(), nodes.end(), node.id) != nodes.end()) continue;
    detail::Room& room = core_->rooms.emplace_back(capacity);
    for (std::uint32_t i = 0; i < shards_per_node_; ++i) {
      core_->room_of.push_back(&room);
      core_->in_flight.emplace_back(*core_);
      core_->nodes.push_back(node.id);
      // The last one of several has entries of any addresses.
      const auto bits = i < stripe_count ? std::countr_zero(stripe_count) : 0;
      shards_.push_back(std::make_unique<Shard>(*core_, static_cast<std::uint16_t>(shards_.size()),
                                                Reader::registry(), options.eviction, stripe_count,
                                                static_cast<std::uint32_t>(bits)));
    }
    nodes.push_back(node.id);
  }
  placements_.emplace(machine_, std::move(options.placement), std::move(nodes), shards_per_node_);
}

Entry CacheState::access(std::span<const std::byte> source, Hint hint) {
  Reader& reader = Reader::mine();
  ThreadCounts& counts = core_->counts_by_thread.of(reader.place());
  if (source.empty()) [[unlikely]]
    return leave_at_source(source, counts);
  check_address(source);
  Places asked;  // NOLINT(cppcoreguidelines-pro-type-member-init): written where it is needed.
  const Places& places = placements_->of(source, asked);
  if (places.count == 0) {
    if (places.is_error) core_->policy_errors.add(1);
    return leave_at_source(source, counts);
  }
  const Region region = Region::of(source);
  std::uint32_t i = 0;
  do {
    Shard& shard = shard_of(places.numbers[i], region);
    if (Slot* const slot = shard.find(reader, region, hint); slot != nullptr) [[likely]] {
      counts.hits.add_alone(1);
      core_->tell(EventKind::hit, source, shard.node());
      return {source, slot, core_.get()};
    }
  } while (++i < places.count);
  if (const Found found = find_wide(places, reader, source, hint); found.slot != nullptr) {
    counts.hits.add_alone(1);
    core_->tell(EventKind::hit, source, found.shard->node());
    return {source, found.slot, core_.get()};
  }
  Miss miss{.source = source,
            .region = Region::of(source),
            .newcomer = {.hint = hint},
            .reader = reader,
            .counts = counts};
  return access_absent(miss, places);
}

CacheState::Found CacheState::find(const Places& places, Reader& reader,
                                   std::span<const std::byte> source, Hint hint) {
  const Region region = Region::of(source);
  Found found;
  for (std::uint32_t i = 0; i < places.count && found.slot == nullptr; ++i) {
    found.shard = &shard_of(places.numbers[i], region);
    found.slot = found.shard->find(reader, region, hint);
  }
  if (found.slot != nullptr) return found;
  const Found wide = find_wide(places, reader, source, hint);
  return wide.slot != nullptr ? wide : found;
}

CacheState::Found CacheState::find_wide(const Places& places, Reader& reader,
                                        std::span<const std::byte> source, Hint hint) const {
  const Region region = Region::of(source);
  Found found;
  if (stripe_mask_ == 0) return found;
  for (std::uint32_t i = 0; i < places.count && found.slot == nullptr; ++i) {
    found.shard = &wide_shard_of(places.numbers[i]);
    if (found.shard->is_empty() || &shard_of(places.numbers[i], region) == found.shard) continue;
    found.slot = found.shard->find(reader, region, hint);
  }
  return found;
}

Entry CacheState::access_gathering(std::span<const std::byte> source, Hint hint, Gather& gather) {
  Reader& reader = Reader::mine();
  ThreadCounts& counts = core_->counts_by_thread.of(reader.place());
  if (source.empty()) return leave_at_source(source, counts);
  check_address(source);
  Places asked;  // NOLINT(cppcoreguidelines-pro-type-member-init): written where it is needed.
  const Places& places = placements_->of(source, asked);
  if (places.count == 0) {
    if (places.is_error) core_->policy_errors.add(1);
    return leave_at_source(source, counts);
  }
  const Found found = find(places, reader, source, hint);
  if (found.slot != nullptr) {
    counts.hits.add_alone(1);
    core_->tell(EventKind::hit, source, found.shard->node());
    return {source, found.slot, core_.get()};
  }
  Miss miss{.source = source,
            .region = Region::of(source),
            .newcomer = {.hint = hint, .is_gathered = source.size() <= kGatheredBytesMax},
            .reader = reader,
            .counts = counts,
            .gather = &gather};
  return access_absent(miss, places);
}

Entry CacheState::access_weak(std::span<const std::byte> source, Hint hint) {
  if (!source.empty()) check_address(source);
  Reader& reader = Reader::mine();
  ThreadCounts& counts = core_->counts_by_thread.of(reader.place());
  static constexpr Places kNowhere{};
  Places asked;  // NOLINT(cppcoreguidelines-pro-type-member-init): written where it is needed.
  const Places& places = source.empty() ? kNowhere : placements_->of(source, asked);
  if (places.is_error) core_->policy_errors.add(1);
  if (const Found found = find(places, reader, source, hint); found.slot != nullptr) {
    counts.weak_hits.add_alone(1);
    core_->tell(EventKind::weak_hit, source, found.shard->node());
    return {source, found.slot, core_.get()};
  }
  counts.weak_misses.add_alone(1);
  core_->tell(EventKind::weak_miss, source, std::nullopt);
  return at_source(source);
}

Entry CacheState::access_absent(Miss& miss, const Places& places) {
  Attempt attempt = Attempt::no_room;
  Slot* slot = nullptr;
  if (!miss.region.is_possible()) [[unlikely]] {
    attempt = Attempt::refused;
  } else if (check_sources_ && !platform::is_mapped(miss.source)) [[unlikely]] {
    core_->bad_sources.add(1);
    attempt = Attempt::refused;
  }
  miss.footprint_bytes = detail::footprint_bytes(miss.region.byte_count, core_->granule_bytes);
  // With several nodes, one that has room is preferred to one that must evict.
  Evicting evicting = places.count > 1 ? Evicting::no : Evicting::yes;
  Shard* shard = nullptr;
  for (std::uint32_t i = 0; attempt == Attempt::no_room; ++i) {
    if (i == places.count) {
      if (evicting == Evicting::yes) break;
      evicting = Evicting::yes;
      i = 0;
    }
    shard = &shard_of(places.numbers[i], miss.region);
    const detail::Room& room = shard->room();
    if (evicting == Evicting::no && room.bytes_free() < miss.footprint_bytes && !room.has_spares())
      continue;
    attempt = place(miss, *shard, evicting, slot);
  }
  switch (attempt) {
    case Attempt::placed:
      miss.counts.misses.add_alone(1);
      core_->tell(EventKind::miss, miss.source, shard->node());
      break;
    case Attempt::found:
      miss.counts.duplicates.add_alone(1);
      miss.counts.hits.add_alone(1);
      core_->tell(EventKind::hit, miss.source, shard->node());
      break;
    case Attempt::gathered:
    case Attempt::reserved:
      break;
    case Attempt::no_room:
    case Attempt::refused:
      miss.counts.refused.add_alone(1);
      core_->tell(EventKind::refused, miss.source, std::nullopt);
      return at_source(miss.source);
  }
  return {miss.source, slot, core_.get()};
}

inline CacheState::Attempt CacheState::place(const Miss& miss, Shard& shard, Evicting evicting,
                                             Slot*& slot) {
  miss.reader.see_turn();
  Reservation memory(*core_, shard.room(), shard.node(), miss.footprint_bytes);
  Attempt attempt = reserve(miss, shard, evicting, memory, slot);
  if (attempt != Attempt::reserved) return attempt;
  if (shards_per_node_ > 1 && &shard == &wide_shard_of(node_of(shard))) [[unlikely]] {
    // What it replaces may be in another shard.
    EntryList gone;
    const Region first{miss.region.address, 1};
    slot = shard_of(node_of(shard), first)
               .make_way(miss.reader, miss.region, miss.newcomer.hint, memory.is_pinned, gone);
    end(gone, EventKind::dropped);
    if (slot != nullptr) return Attempt::found;
  }

  const auto [number, entry] = memory.take_entry(miss.counts.stash);
  EntryState& state = *entry;
  state.copy = memory.copy();
  // Until the move is submitted a thread that drops entries or begins a change may wait for it, for
  // which the observer may wait in turn.
  const DeferredEvents deferred(*core_);
  EntryList gone;
  Slot* own = nullptr;
  Shard::Published published;
  try {
    own = &shard.prepare(miss.reader, state, miss.region, memory.is_pinned);
    published = shard.publish(miss.reader, number, state, miss.newcomer, gone);
  } catch (...) {
    if (own != nullptr) static_cast<void>(detail::vacate(*own));
    core_->pool.give_back(number);
    throw;
  }
  if (published.present != nullptr) [[unlikely]] {
    // Another thread was faster. No thread can find ours, so it can be freed at once.
    static_cast<void>(detail::vacate(*own));
    core_->pool.give_back(number);
    slot = published.present;
    return Attempt::found;
  }
  memory.release_to_entry();
  // From here on other threads may find the entry and wait for it, so its phase must end in any
  // case.
  try {
    attempt = submit(miss, shard, number, *published.move);
  } catch (...) {
    attempt = Attempt::refused;  // No memory, or a policy of the engine that throws.
  }
  if (attempt != Attempt::refused) [[likely]] {
    slot = own;
  } else {
    refuse(shard, number, state);
    const Entry ended(miss.source, own, core_.get());
  }
  if (gone.count != 0) [[unlikely]]
    end(gone, EventKind::dropped);
  return attempt;
}

inline CacheState::Attempt CacheState::reserve(const Miss& miss, Shard& shard, Evicting evicting,
                                               Reservation& memory, Slot*& slot) {
  try {
    for (bool has_made_way = false;;) {
      if (memory.try_reuse(miss.counts.spares)) {
        if (memory.is_low) [[unlikely]]
          static_cast<void>(evict_ahead(miss, shard));
        return Attempt::reserved;
      }
      if (!memory.try_reserve()) [[unlikely]] {
        if (!make_room(miss, shard, evicting, has_made_way, memory, slot)) return Attempt::no_room;
        if (slot != nullptr) return Attempt::found;
        continue;
      }
      switch (memory.allocate()) {
        case Core::Allocation::done:
          return Attempt::reserved;
        case Core::Allocation::failed:
          return Attempt::refused;
        case Core::Allocation::node_is_full:
          // The node has less memory than the capacity: treat it as full.
          if (evicting == Evicting::no || !evict(miss, shard, miss.footprint_bytes)) {
            return Attempt::no_room;
          }
      }
    }
  } catch (...) {
    return Attempt::refused;  // No memory, or a memory source that throws.
  }
}

bool CacheState::make_room(const Miss& miss, Shard& shard, Evicting evicting, bool& has_made_way,
                           Reservation& memory, Slot*& slot) {
  detail::Room& room = shard.room();
  if (evicting == Evicting::no || miss.footprint_bytes > room.capacity_bytes()) return false;
  if (!std::exchange(has_made_way, true)) {
    if (room.has_spares()) core_->free_spares(room);  // They have another length.
    // Then drop what the entry will replace.
    EntryList gone;
    slot = shard.make_way(miss.reader, miss.region, miss.newcomer.hint, memory.is_pinned, gone);
    end(gone, EventKind::dropped);
    return true;
  }
  // Another thread may take the room that an eviction made; then that thread made progress.
  const std::uint64_t free_bytes = room.bytes_free();
  return free_bytes >= miss.footprint_bytes ||
         evict(miss, shard, miss.footprint_bytes - free_bytes);
}

inline CacheState::Attempt CacheState::submit(const Miss& miss, Shard& shard, std::uint32_t number,
                                              InFlightMoves::Move& move) {
  // The move can be found: a change that begins from here on waits for it.
  InFlightMoves::RegisteredMove registered_move(move);
  if (!core_->write_back_overlapping(miss.region)) return Attempt::refused;
  std::optional<NodeId> source_node;  // Ask the kernel only if there is a choice.
  if (core_->rooms.size() > 1) source_node = platform::node_of_address(miss.source.data());
  if (miss.newcomer.is_gathered) {
    gather_move(*miss.gather, shard, number, source_node, registered_move);
    return Attempt::gathered;
  }
  engine::SubmitOptions options = options_for(shard, source_node);
  return registered_move.submit(engine_, options) ? Attempt::placed : Attempt::refused;
}

void CacheState::refuse(Shard& shard, std::uint32_t number, EntryState& state) {
  EntryList gone;
  core_->free_copy(state);
  detail::end_refused(
      state.progress, [&] { shard.erase(number, gone); },
      [&] { static_cast<void>(core_->write_back_overlapping(state.region())); });
  end(gone, std::nullopt);  // No event: it was never reported.
}

std::uint32_t CacheState::number_of(const Entry& entry) const {
  return core_->pool.number_of(static_cast<const EntryState*>(entry.slot_->entry()));
}

Entry CacheState::leave_at_source(std::span<const std::byte> source, ThreadCounts& counts) {
  counts.not_placed.add_alone(1);
  core_->tell(EventKind::not_placed, source, std::nullopt);
  return at_source(source);
}

engine::SubmitOptions CacheState::options_for(const Shard& shard,
                                              std::optional<NodeId> source_node) const {
  engine::SubmitOptions options;
  if (!has_choice_) return options;
  options.source_node = core_->rooms.size() > 1 ? source_node : shard.node();
  options.target_node = shard.node();
  options.policy = mover_ ? &mover_ : nullptr;
  return options;
}

bool CacheState::is_on(std::uint32_t number, std::optional<NodeId> node) const {
  if (number == 0) return false;
  return !node.has_value() || core_->nodes[core_->pool[number].shard_number()] == *node;
}

Entry CacheState::at_source(std::span<const std::byte> source) {
  const Region region = Region::of(source);
  // Bytes with a live change are left alone.
  if (region.is_possible()) static_cast<void>(core_->write_back_overlapping(region));
  return {source, nullptr, nullptr};
}

Result<Change> CacheState::change(std::span<std::byte> source, Hint hint) {
  if (source.empty()) return Change(source, access(source, hint));
  const Region region = Region::of(source);
  if (!region.is_possible()) {
    return fail(Code::invalid_argument, "change a region", "the region is too long",
                "pass the length in bytes");
  }
  for (;;) {
    Entry entry = access(source, hint);
    entry.wait();
    const std::uint32_t number = entry.cached() ? number_of(entry) : 0;
    DirtyRanges::Range range;
    const auto is_listed = [&] {
      return shards_[core_->pool[number].shard_number()]->is_listed(number);
    };
    switch (core_->dirty.begin(region, number, range, is_listed)) {
      case DirtyRanges::Begin::busy:
        return fail(Code::capacity_exceeded, "change a region",
                    "another change of some of its bytes is in progress", "end that one first");
      case DirtyRanges::Begin::elsewhere:
        static_cast<void>(core_->write_back_overlapping(region));
        continue;
      case DirtyRanges::Begin::gone:
        continue;
      case DirtyRanges::Begin::done:
        break;
    }
    // From here on no thread can find an entry that will be outdated: accesses see the change
    // before they move. Nor does a mover read what is about to be written.
    drop(
        std::nullopt, range.region, std::nullopt, Moves::stopped,
        [&](Shard& shard, EntryList& gone) { shard.drop_overlapping(range.region, gone, number); });
    // Entries that were dropped earlier may still be moving for their holders.
    for (InFlightMoves& moves : core_->in_flight) moves.stop_overlapping(range.region);
    std::byte* const bytes =
        number == 0 ? source.data() : const_cast<std::byte*>(entry.data().data());
    Change change({bytes, source.size()}, std::move(entry));
    core_->keep(1);
    change.core_ = core_.get();
    change.ticket_ = range.ticket;
    change.range_address_ = range.region.address;
    change.range_byte_count_ = range.region.byte_count;
    change.number_ = number;
    return change;
  }
}

std::size_t CacheState::flush(std::optional<NodeId> node) {
  write_back_by_engine(
      core_->dirty.claim([&](std::uint32_t number) { return is_on(number, node); }));
  end_retired();
  return drop(node, std::nullopt, std::nullopt, Moves::left_alone,
              [](Shard& shard, EntryList& gone) { shard.drop_unheld(gone); });
}

void CacheState::end(EntryList& gone, std::optional<EventKind> kind) const {
  if (gone.count == 0) return;
  core_->keep(gone.count);
  while (const std::uint32_t number = gone.pop(core_->pool)) {
    EntryState& state = core_->pool[number];
    if (kind.has_value()) core_->tell(*kind, state);
    if (detail::leave_to_holders(state)) core_->end_held(state, number);
  }
}

std::size_t CacheState::pin(std::span<const std::byte> source, bool pinned) {
  if (source.empty()) return 0;
  const Region region = Region::of(source);
  std::size_t count = 0;
  for (std::size_t node = 0; node < shards_.size(); node += shards_per_node_) {
    Shard& shard = shard_of(node, region);
    count += shard.pin(region, pinned);
    if (&shard != &wide_shard_of(node)) count += wide_shard_of(node).pin(region, pinned);
  }
  return count;
}

template <typename Visit>
void CacheState::for_each_shard(const Region& region, Visit visit) const {
  const std::uint64_t first = region.address >> kStripeBits;
  const std::uint64_t count = std::min((region.last() >> kStripeBits) - first, stripe_mask_) + 1;
  for (std::size_t node = 0; node < shards_.size(); node += shards_per_node_) {
    if (stripe_mask_ != 0) visit(wide_shard_of(node));
    // All of them for a long region; otherwise one may be visited twice.
    for (std::uint64_t i = 0; i < count; ++i) {
      visit(count > stripe_mask_ ? *shards_[node + i]
                                 : shard_of(node, {(first + i) << kStripeBits, 1}));
    }
  }
}

template <typename Choose>
std::size_t CacheState::drop(std::optional<NodeId> node, const std::optional<Region>& where,
                             const std::optional<Region>& lost, Moves moves, Choose choose) {
  DeferredEvents deferred(*core_);
  dropping_count_.fetch_add_relaxed(1);  // relaxed: the mutexes of the shards order it.
  EntryList ours;
  std::size_t count = 0;
  {
    const Lock lock(dropping_);
    EntryList gone;
    if (where.has_value()) {
      for_each_shard(*where, [&](Shard& shard) { choose(shard, gone); });
    } else {
      for (const std::unique_ptr<Shard>& shard : shards_) {
        if (!node.has_value() || shard->node() == *node) choose(*shard, gone);
      }
    }
    count = gone.count;
    core_->keep(gone.count);
    // Stop all before waiting for the first.
    for (std::uint32_t number = gone.first; number != 0; number = core_->pool[number].older) {
      EntryState& state = core_->pool[number];
      // relaxed: a thread that acts on it ends the entry by a decrement that acquires.
      const bool sole = state.holder_count.load_relaxed() == 1;
      if ((sole || moves == Moves::stopped) && !ended(state.progress.now())) {
        core_->moves_of(state).stop(state);
      }
    }
    while (const std::uint32_t number = gone.pop(core_->pool)) {
      EntryState& state = core_->pool[number];
      // The submitter may be another thread; it waits for nothing that this thread holds.
      if (moves == Moves::stopped) core_->wait_blocked(state);
      if (state.is_dirty()) {
        // One by one, without allocating: this must not fail.
        while (const auto range = core_->dirty.claim_one(number, lost)) {
          for (const Region& kept : outside(range->region, lost)) {
            if (kept.byte_count == 0) continue;
            core_->return_bytes(*range, kept);
            core_->tell_written_back({kept, range->entry, range->ticket, range->shard});
          }
          core_->dirty.mark_clean(*range);
        }
      }
      core_->tell(EventKind::dropped, state);
      if (!detail::leave_to_holders(state)) continue;
      core_->moves_of(state).finish(state);
      ours.push(core_->pool, number);
    }
  }
  dropping_count_.fetch_sub_acq_rel(1);  // edge: drops-ended (acq_rel)
  deferred.report();                     // The observer may call the cache.
  while (const std::uint32_t number = ours.pop(core_->pool)) {
    core_->end_held(core_->pool[number], number);
  }
  return count;
}

std::size_t CacheState::invalidate(const Region& region) {
  std::size_t count = 0;
  if (!core_->observer) [[likely]] {
    bool is_all = true;
    for_each_shard(region, [&](Shard& shard) {
      const Shard::Retired retired = shard.retire_overlapping(region);
      count += retired.count;
      is_all = is_all && retired.is_all;
      if (retired.is_much) free_with_barrier(shard.room(), shard.room().take_off(), 0);
    });
    // What another call has dropped may still be moving.
    // edge: drops-ended (acquire)
    if (is_all && dropping_count_.load_acquire() == 0) return count;
  }
  return count + drop(std::nullopt, region, region, Moves::left_alone,
                      [&](Shard& shard, EntryList& gone) { shard.drop_overlapping(region, gone); });
}

std::size_t CacheState::clear() {
  end_retired();
  return drop(std::nullopt, std::nullopt, std::nullopt, Moves::left_alone,
              [](Shard& shard, EntryList& gone) { shard.drop_all(gone); });
}

void CacheState::end_retired() const {
  for (const std::unique_ptr<Shard>& shard : shards_) shard->give_retired();
  for (detail::Room& room : core_->rooms) {
    free_with_barrier(room, room.take_off(), 0);
    core_->free_spares(room);
  }
}

CacheStatistics CacheState::statistics() const {
  end_retired();
  const Core& core = *core_;
  CacheStatistics totals;
  totals.hits = core.counts_by_thread.total(&ThreadCounts::hits);
  totals.duplicates = core.counts_by_thread.total(&ThreadCounts::duplicates);
  totals.misses = core.counts_by_thread.total(&ThreadCounts::misses);
  totals.not_placed = core.counts_by_thread.total(&ThreadCounts::not_placed);
  totals.refused = core.counts_by_thread.total(&ThreadCounts::refused);
  totals.weak_hits = core.counts_by_thread.total(&ThreadCounts::weak_hits);
  totals.weak_misses = core.counts_by_thread.total(&ThreadCounts::weak_misses);
  totals.policy_errors = core.policy_errors.value();
  totals.late_writes = core.late_writes.value();
  totals.bytes_kept = core.bytes_kept.value();
  totals.evictions = core.evictions.value();
  totals.bad_sources = core.bad_sources.value();
  totals.write_backs = core.write_backs.value();
  totals.bytes_written_back = core.bytes_written_back.value();
  totals.waits = core.waits.value();
  totals.waited_ns = core.waited_ns.value();
  for (const InFlightMoves& moves : core.in_flight) {
    totals.bytes_moved += moves.bytes_moved.value();
    totals.moves_failed += moves.moves_failed.value();
  }
  for (const detail::Room& room : core.rooms) totals.bytes_cached += room.bytes_used();
  return totals;
}

}  // namespace headrace::cache
