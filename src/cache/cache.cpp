// SPDX-License-Identifier: Apache-2.0
// Cache: asks the policies, looks on the shelf of the node they name, starts the move if there is
// nothing, and counts. No lock is held while a policy, the memory source or the engine is called.
#include "headrace/cache/cache.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "headrace/base/check.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/platform/memory.hpp"
#include "headrace/platform/thread.hpp"
#include "state.hpp"

namespace headrace::cache {

namespace {

/// `policy`, except that what it throws is counted and chooses nobody, which fails the move.
engine::MoverPolicy guarded(engine::MoverPolicy policy, Ledger& ledger) {
  if (!policy) return {};
  return [policy = std::move(policy), &ledger](const engine::MoveContext& context,
                                               engine::MoverChoice& choice) {
    try {
      policy(context, choice);
    } catch (...) {
      ledger.policy_errors.add(1);
      choice = engine::MoverChoice();
    }
  };
}

void check_address(std::span<const std::byte> source) {
  HEADRACE_CHECK(source.data() != nullptr || source.empty(),
                 "a region that is not empty has an address", source.size());
}

/// Events that happen under a lock, to be told without it.
///
/// Threading: owned.
class Withheld {
 public:
  explicit Withheld(Ledger& ledger) : ledger_(ledger) {}
  /// One that there is no memory for is counted as an error of the observer.
  void add(EventKind kind, const Region& region, std::uint16_t shelf) noexcept {
    if (!ledger_.observer) return;
    try {
      events_.push_back({kind,
                         {reinterpret_cast<const std::byte*>(region.address), region.byte_count},
                         ledger_.nodes[shelf]});
    } catch (const std::bad_alloc&) {
      ledger_.policy_errors.add(1);
    }
  }
  void tell() noexcept {
    for (const Event& event : events_) ledger_.tell(event.kind, event.region, event.node);
  }

 private:
  Ledger& ledger_;
  std::vector<Event> events_;
};

/// What of `region` lies before and behind `lost`.
std::array<Region, 2> outside(const Region& region, const std::optional<Region>& lost) {
  if (!lost || !lost->overlaps(region)) return {region, {}};
  const std::uint64_t before =
      lost->address > region.address ? lost->address - region.address : std::uint64_t{0};
  const std::uint64_t behind =
      region.last() > lost->last() ? region.last() - lost->last() : std::uint64_t{0};
  return {Region{region.address, before}, Region{lost->last() + 1, behind}};
}

/// Several, for movers that are several; not all, because jobs are large.
constexpr std::size_t kWriteBacksAtOnce = 16;

}  // namespace

Cache::State::State(const topo::Machine& machine, engine::Engine& engine, CacheOptions options)
    : machine_(machine),
      engine_(engine),
      check_sources_(options.check_sources),
      ledger_(new Ledger) {
  mover_ = guarded(std::move(options.mover), *ledger_);
  ledger_->observer = std::move(options.observer);
  ledger_->memory = options.memory ? std::move(options.memory) : operating_system_pages();
  ledger_->granule_bytes = platform::page_bytes();
  std::vector<NodeId> nodes;
  for (const topo::Node& node : machine_.nodes) {
    if (std::find(nodes.begin(), nodes.end(), node.id) != nodes.end()) continue;
    ledger_->rooms.emplace_back(options.capacity_per_node.count());
    ledger_->nodes.push_back(node.id);
    const auto number = static_cast<std::uint16_t>(nodes.size());
    shelves_.push_back(
        std::make_unique<Shelf>(*ledger_, number, Reader::registry(), options.eviction));
    nodes.push_back(node.id);
  }
  placements_.emplace(machine_, std::move(options.placement), std::move(nodes));
}

Entry Cache::State::access(std::span<const std::byte> source, Hint hint) {
  check_address(source);
  Reader& reader = Reader::mine();
  Tally& tally = ledger_->tallies.of(reader.index());
  if (source.empty()) [[unlikely]]
    return leave_at_source(source, tally);
  Places asked;
  const Places& places = placements_->of(source, asked);
  if (places.count == 0) {
    if (places.is_error) ledger_->policy_errors.add(1);
    return leave_at_source(source, tally);
  }
  const Region region = Region::of(source);
  for (std::uint32_t i = 0; i < places.count; ++i) {
    Shelf& shelf = *shelves_[places.numbers[i]];
    if (Slot* const slot = shelf.find(reader, region, hint); slot != nullptr) [[likely]] {
      tally.hits.add_one_alone();
      ledger_->tell(EventKind::hit, source, shelf.node());
      return {source, slot, ledger_.get()};
    }
  }
  return access_absent(source, hint, places, reader, tally, nullptr);
}

Cache::State::Found Cache::State::find(const Places& places, Reader& reader,
                                       std::span<const std::byte> source, Hint hint) {
  const Region region = Region::of(source);
  for (std::uint32_t i = 0; i < places.count; ++i) {
    Shelf& shelf = *shelves_[places.numbers[i]];
    if (Slot* const slot = shelf.find(reader, region, hint); slot != nullptr) {
      return {.slot = slot, .shelf = &shelf};
    }
  }
  return {};
}

Entry Cache::State::access_gathering(std::span<const std::byte> source, Hint hint, Gather& gather) {
  check_address(source);
  Reader& reader = Reader::mine();
  Tally& tally = ledger_->tallies.of(reader.index());
  if (source.empty()) return leave_at_source(source, tally);
  Places asked;
  const Places& places = placements_->of(source, asked);
  if (places.count == 0) {
    if (places.is_error) ledger_->policy_errors.add(1);
    return leave_at_source(source, tally);
  }
  if (const Found found = find(places, reader, source, hint); found.slot != nullptr) {
    tally.hits.add_one_alone();
    ledger_->tell(EventKind::hit, source, found.shelf->node());
    return {source, found.slot, ledger_.get()};
  }
  return access_absent(source, hint, places, reader, tally, &gather);
}

Entry Cache::State::access_weak(std::span<const std::byte> source, Hint hint) {
  check_address(source);
  Reader& reader = Reader::mine();
  Tally& tally = ledger_->tallies.of(reader.index());
  static constexpr Places kNowhere{.numbers = {}};
  Places asked;
  const Places& places = source.empty() ? kNowhere : placements_->of(source, asked);
  if (places.is_error) ledger_->policy_errors.add(1);
  if (const Found found = find(places, reader, source, hint); found.slot != nullptr) {
    tally.weak_hits.add_one_alone();
    ledger_->tell(EventKind::weak_hit, source, found.shelf->node());
    return {source, found.slot, ledger_.get()};
  }
  tally.weak_misses.add_one_alone();
  ledger_->tell(EventKind::weak_miss, source, std::nullopt);
  return at_source(source);
}

Entry Cache::State::access_absent(std::span<const std::byte> source, Hint hint,
                                  const Places& places, Reader& reader, Tally& tally,
                                  Gather* gather) {
  const Region region = Region::of(source);
  Entry entry(source, nullptr, nullptr);
  Attempt attempt = Attempt::no_room;
  if (!region.is_possible()) {
    attempt = Attempt::refused;
  }
  const std::uint64_t byte_count =
      detail::footprint_bytes(region.byte_count, ledger_->granule_bytes);
  // Where there is a choice, a node that has room comes before one where entries must make it.
  for (std::uint32_t i = 0; places.count > 1 && i < places.count && attempt == Attempt::no_room;
       ++i) {
    Shelf& shelf = *shelves_[places.numbers[i]];
    if (shelf.room().bytes_free() < byte_count) continue;
    attempt = place(entry, hint, shelf, Evicting::no, reader, tally, gather);
  }
  for (std::uint32_t i = 0; i < places.count && attempt == Attempt::no_room; ++i) {
    attempt =
        place(entry, hint, *shelves_[places.numbers[i]], Evicting::yes, reader, tally, gather);
  }
  if (attempt != Attempt::placed && attempt != Attempt::gathered) {
    tally.refused.add_one_alone();
    ledger_->tell(EventKind::refused, source, std::nullopt);
  }
  return entry;
}

Cache::State::Attempt Cache::State::place(Entry& entry, Hint hint, Shelf& shelf, Evicting evicting,
                                          Reader& reader, Tally& tally, Gather* gather) {
  const std::span<const std::byte> source = entry.source_;
  const std::uint32_t number = ledger_->pool.take(tally.stash);
  EntryState& state = ledger_->pool[number];
  Batch gone;
  Slot* own = nullptr;
  Slot* present = nullptr;
  try {
    own = &shelf.prepare(reader, number, Region::of(source));
    present = shelf.insert(reader, number, hint, gone);
  } catch (...) {
    if (own != nullptr) static_cast<void>(detail::vacate(*own));
    ledger_->pool.give_back(number);
    throw;
  }
  // What made way has ended: its room is free before room is asked for.
  end(gone, EventKind::dropped);
  if (present != nullptr) {
    // Another thread was faster. Nobody can find ours, so it can go at once.
    static_cast<void>(detail::vacate(*own));
    ledger_->pool.give_back(number);
    entry = Entry(source, present, ledger_.get());
    tally.duplicates.add_one_alone();
    tally.hits.add_one_alone();
    ledger_->tell(EventKind::hit, source, shelf.node());
    return Attempt::placed;
  }
  // From here on others may find the entry and wait for it: whatever happens, its phase must end.
  Entry placed(source, own, ledger_.get());
  Attempt attempt = Attempt::refused;
  try {
    attempt = start_move(shelf, number, evicting, gather);
  } catch (...) {
    // Want of memory, or a memory source or policy of the engine that throws.
    attempt = Attempt::refused;
  }
  if (attempt == Attempt::gathered) {
    entry = std::move(placed);
  } else if (attempt == Attempt::placed) {
    entry = std::move(placed);
    tally.misses.add_one_alone();
    ledger_->tell(EventKind::miss, source, shelf.node());
  } else {
    refuse(shelf, state);
  }
  return attempt;
}

void Cache::State::refuse(Shelf& shelf, EntryState& state) {
  Batch gone;
  ledger_->free_copy(state);
  detail::end_refused(
      state.progress, [&] { shelf.erase(ledger_->pool.number_of(&state), gone); },
      [&] { static_cast<void>(clear_way(state.region())); });
  end(gone, std::nullopt);  // It never was one.
}

std::uint32_t Cache::State::number_of(const Entry& entry) const {
  return ledger_->pool.number_of(static_cast<const EntryState*>(entry.slot_->tenancy()));
}

Entry Cache::State::leave_at_source(std::span<const std::byte> source, Tally& tally) {
  tally.not_placed.add_one_alone();
  ledger_->tell(EventKind::not_placed, source, std::nullopt);
  return at_source(source);
}

Cache::State::Attempt Cache::State::start_move(Shelf& shelf, std::uint32_t number,
                                               Evicting evicting, Gather* gather) {
  EntryState& state = ledger_->pool[number];
  const Region region = state.region();
  if (check_sources_ && !platform::is_mapped({state.source(), region.byte_count})) {
    ledger_->bad_sources.add(1);
    return Attempt::refused;
  }
  const std::uint64_t byte_count =
      detail::footprint_bytes(region.byte_count, ledger_->granule_bytes);
  for (;;) {
    if (!make_room(shelf, byte_count, number, evicting)) return Attempt::no_room;
    const Ledger::Allocation allocation = ledger_->allocate_copy(state);
    if (allocation == Ledger::Allocation::done) break;
    // The capacity may be more than the node can give: then it is as full as it will be.
    if (allocation == Ledger::Allocation::failed) return Attempt::refused;
    if (evicting == Evicting::no || !evict(shelf, byte_count, number)) return Attempt::no_room;
  }
  // On a machine of one node there is no need to ask the kernel.
  const std::optional<NodeId> source_node = shelves_.size() == 1
                                                ? std::optional(shelf.node())
                                                : platform::node_of_address(state.source());
  if (gather != nullptr && region.byte_count <= kGatheredBytesMax) {
    return gather_move(*gather, shelf, number, source_node);
  }
  const engine::SubmitOptions options = options_for(shelf, source_node);
  const engine::CopyPlan plan{{state.copy, region.byte_count}, {state.source(), region.byte_count}};
  Movements::Announcement announcement(ledger_->movements, state);
  // Now that the entry can be found, and its movement, too, should it be dropped meanwhile: whoever
  // begins a change from here on waits for it.
  if (!clear_way(region)) return Attempt::refused;
  return announcement.submit(engine_, plan, options) ? Attempt::placed : Attempt::refused;
}

engine::SubmitOptions Cache::State::options_for(const Shelf& shelf,
                                                std::optional<NodeId> source_node) const {
  engine::SubmitOptions options;
  options.source_node = source_node;
  options.target_node = shelf.node();
  options.policy = mover_ ? &mover_ : nullptr;
  return options;
}

bool Cache::State::make_room(Shelf& shelf, std::uint64_t byte_count, std::uint32_t newcomer,
                             Evicting evicting) {
  if (byte_count > shelf.room().capacity_bytes()) return false;
  // Another thread may take the room that an eviction made; then somebody got on, and we try again.
  while (!shelf.room().try_reserve(byte_count)) {
    if (evicting == Evicting::no) return false;
    const std::uint64_t free_bytes = shelf.room().bytes_free();
    if (free_bytes < byte_count && !evict(shelf, byte_count - free_bytes, newcomer)) return false;
  }
  return true;
}

bool Cache::State::evict(Shelf& shelf, std::uint64_t byte_count, std::uint32_t newcomer) {
  Batch gone;
  std::uint64_t wanted_byte_count = byte_count;
  while (!shelf.evict(byte_count, newcomer, gone)) {
    // Changed entries go last, because that costs another copy. On this thread: the mover might
    // need it. As many as are enough; if some of them are held, twice as many.
    std::uint64_t hoped_byte_count = 0;
    std::uint32_t last_number = 0;
    const auto claimed = ledger_->changes.claim([&](std::uint32_t number) {
      if (!is_on(number, shelf.node())) return false;
      if (number == last_number) return true;
      if (hoped_byte_count >= wanted_byte_count) return false;
      last_number = number;
      hoped_byte_count += detail::footprint_bytes(ledger_->pool[number].region().byte_count,
                                                  ledger_->granule_bytes);
      return true;
    });
    if (claimed.empty()) return false;
    ledger_->write_back(claimed);
    wanted_byte_count *= 2;
  }
  ledger_->evictions.add(gone.count);
  end(gone, EventKind::evicted);
  return true;
}

bool Cache::State::is_on(std::uint32_t number, std::optional<NodeId> node) const {
  if (number == 0) return false;
  return !node.has_value() || ledger_->nodes[ledger_->pool[number].shelf_number()] == *node;
}

bool Cache::State::clear_way(const Region& region) {
  if (!ledger_->changes.any()) return true;
  for (;;) {
    Changes::Range range;
    switch (ledger_->changes.claim_overlapping(region, range)) {
      case Changes::Claim::busy:
        return false;
      case Changes::Claim::none:
        return true;
      case Changes::Claim::done:
        ledger_->write_back({&range, 1});
    }
  }
}

Entry Cache::State::at_source(std::span<const std::byte> source) {
  const Region region = Region::of(source);
  // What is being changed at this moment is the changer's.
  if (region.is_possible()) static_cast<void>(clear_way(region));
  return {source, nullptr, nullptr};
}

Result<Change> Cache::State::change(std::span<std::byte> source, Hint hint) {
  if (source.empty()) return Change(source, access(source, hint));
  const Region region = Region::of(source);
  if (!region.is_possible()) {
    return fail(Code::invalid_argument, "change a region", "no region is that long",
                "pass the length in bytes");
  }
  for (;;) {
    Entry entry = access(source, hint);
    entry.wait();
    const std::uint32_t number = entry.cached() ? number_of(entry) : 0;
    Changes::Range range;
    switch (ledger_->changes.begin(region, number, range)) {
      case Changes::Begin::busy:
        return fail(Code::capacity_exceeded, "change a region",
                    "another change of some of its bytes is alive", "end that one first");
      case Changes::Begin::elsewhere:
        static_cast<void>(clear_way(region));
        continue;
      case Changes::Begin::done:
        break;
    }
    if (number != 0 && !shelves_[ledger_->pool[number].shelf_number()]->is_listed(number)) {
      if (ledger_->changes.abandon(range)) ledger_->write_back({&range, 1});
      continue;
    }
    // From here on nobody can find what will be old: accesses see the change before they move.
    // Nor does a mover read what is about to be written.
    drop(std::nullopt, std::nullopt, Moves::stopped,
         [&](Shelf& shelf, Batch& gone) { shelf.drop_overlapping(range.region, gone, number); });
    // Others were dropped before, and are still being moved for their holders.
    ledger_->movements.stop_overlapping(range.region);
    std::byte* const bytes =
        number == 0 ? source.data() : const_cast<std::byte*>(entry.data().data());
    Change change({bytes, source.size()}, std::move(entry));
    ledger_->keep(1);
    change.ledger_ = ledger_.get();
    change.ticket_ = range.ticket;
    change.range_address_ = range.region.address;
    change.range_byte_count_ = range.region.byte_count;
    change.number_ = number;
    return change;
  }
}

Result<Bytes> Cache::State::write_back(const Region& region) {
  std::uint64_t byte_count = 0;
  const auto claimed = ledger_->changes.claim([&](std::uint32_t number) {
    return number != 0 && ledger_->pool[number].region().overlaps(region);
  });
  for (const Changes::Range& range : claimed) byte_count += range.region.byte_count;
  const std::size_t late_count = write_back_by_engine(claimed);
  if (late_count != 0) {
    return fail(Code::hardware_absent, "write changed bytes back",
                "they are written, but a device that did not answer may write them once more",
                "reset the device before these bytes change again");
  }
  if (ledger_->changes.is_changing(region)) {
    return fail(Code::capacity_exceeded, "write changed bytes back",
                "some of them are being changed", "end that change, and ask again");
  }
  return Bytes(byte_count);
}

std::size_t Cache::State::write_back_by_engine(std::span<const Changes::Range> claimed) {
  if (claimed.empty()) return 0;
  std::size_t late_count = 0;
  std::array<engine::Job, kWriteBacksAtOnce> jobs;
  std::array<bool, kWriteBacksAtOnce> taken{};
  for (std::size_t first = 0; first < claimed.size(); first += jobs.size()) {
    const auto some = claimed.subspan(first, std::min(jobs.size(), claimed.size() - first));
    for (std::size_t i = 0; i < some.size(); ++i) {
      engine::SubmitOptions options;
      options.source_node = ledger_->nodes[ledger_->pool[some[i].entry].shelf_number()];
      options.policy = mover_ ? &mover_ : nullptr;
      try {
        taken[i] = engine_.submit_copy(jobs[i], ledger_->way_back(some[i].entry, some[i].region),
                                       options) == engine::Submit::accepted;
      } catch (...) {
        taken[i] = false;
      }
    }
    for (std::size_t i = 0; i < some.size(); ++i) {
      const bool done = taken[i] && jobs[i].wait().state == engine::JobState::done;
      if (taken[i] && jobs[i].completion().late_write_possible) {
        // It also reads the copy then, which must not have become another's.
        ledger_->pool[some[i].entry].keep_memory();
        ledger_->late_writes.add(1);
        ++late_count;
      }
      if (done) {
        ledger_->settle(some[i]);
      } else {
        ledger_->return_bytes({&some[i], 1});
      }
    }
  }
  ledger_->tell_written_back(claimed);
  return late_count;
}

std::size_t Cache::State::flush(std::optional<NodeId> node) {
  write_back_by_engine(
      ledger_->changes.claim([&](std::uint32_t number) { return is_on(number, node); }));
  return drop(node, std::nullopt, Moves::left_alone,
              [](Shelf& shelf, Batch& gone) { shelf.drop_unheld(gone); });
}

void Cache::State::end(Batch& gone, std::optional<EventKind> kind) {
  if (gone.count == 0) return;
  ledger_->keep(gone.count);
  while (const std::uint32_t number = gone.pop(ledger_->pool)) {
    EntryState& state = ledger_->pool[number];
    if (kind.has_value()) ledger_->tell(*kind, state);
    if (detail::leave_to_holders(state)) ledger_->end_held(state);
  }
}

std::size_t Cache::State::pin(std::span<const std::byte> source, bool pinned) {
  if (source.empty()) return 0;
  std::size_t count = 0;
  for (const std::unique_ptr<Shelf>& shelf : shelves_) {
    count += shelf->pin(Region::of(source), pinned);
  }
  return count;
}

template <typename Choose>
std::size_t Cache::State::drop(std::optional<NodeId> node, const std::optional<Region>& lost,
                               Moves moves, Choose choose) {
  Withheld withheld(*ledger_);
  Batch ours;
  std::size_t count = 0;
  {
    const Lock lock(dropping_);
    Batch gone;
    for (const std::unique_ptr<Shelf>& shelf : shelves_) {
      if (!node.has_value() || shelf->node() == *node) choose(*shelf, gone);
    }
    count = gone.count;
    ledger_->keep(gone.count);
    // All are asked to stop before the first is waited for.
    for (std::uint32_t number = gone.first; number != 0; number = ledger_->pool[number].older) {
      EntryState& state = ledger_->pool[number];
      // relaxed: who acts on it ends the entry, and the decrement that does acquires.
      const bool sole = state.holder_count.load_relaxed() == 1;
      if ((sole || moves == Moves::stopped) && !ended(state.progress.now())) {
        ledger_->movements.stop(state);
      }
    }
    while (const std::uint32_t number = gone.pop(ledger_->pool)) {
      EntryState& state = ledger_->pool[number];
      // The submitter, who may be another thread, does not wait for anything that we have.
      if (moves == Moves::stopped) ledger_->wait_blocked(state);
      if (state.is_changed()) {
        // One by one, because what has begun here must not end for want of memory.
        while (const auto range = ledger_->changes.claim_one(number, lost)) {
          for (const Region& kept : outside(range->region, lost)) {
            if (kept.byte_count == 0) continue;
            ledger_->return_bytes(*range, kept);
            withheld.add(EventKind::written_back, kept, range->shelf);
          }
          ledger_->changes.settle(*range);
        }
      }
      withheld.add(EventKind::dropped, state.region(), state.shelf_number());
      if (!detail::leave_to_holders(state)) continue;
      ledger_->movements.finish(state);
      ours.push(ledger_->pool, number);
    }
  }
  // Both may call the cache.
  withheld.tell();
  while (const std::uint32_t number = ours.pop(ledger_->pool)) {
    ledger_->end_held(ledger_->pool[number]);
  }
  return count;
}

Result<std::unique_ptr<Cache>> Cache::make(const topo::Machine& machine, engine::Engine& engine,
                                           CacheOptions options) {
  if (options.capacity_per_node.count() == 0) {
    return fail(Code::invalid_argument, "make a cache", "its capacity per node is 0",
                "give it room for at least one region, or use the placement policy 'none'");
  }
  if (const Result<void> placed = detail::check(options.placement, machine); !placed) {
    return fail(placed.error());
  }
  return std::unique_ptr<Cache>(
      new Cache(std::make_unique<State>(machine, engine, std::move(options))));
}

Cache::Cache(std::unique_ptr<State> state) : state_(std::move(state)) {}

Cache::~Cache() {
  clear();
}

Entry Cache::access(std::span<const std::byte> source, Hint hint) {
  return state_->access(source, hint);
}

std::vector<Entry> Cache::access_many(std::span<const std::span<const std::byte>> sources,
                                      Hint hint) {
  return state_->access_many(sources, hint);
}

Entry Cache::access_weak(std::span<const std::byte> source, Hint hint) {
  return state_->access_weak(source, hint);
}

std::size_t Cache::pin(std::span<const std::byte> source) {
  return state_->pin(source, true);
}

std::size_t Cache::unpin(std::span<const std::byte> source) {
  return state_->pin(source, false);
}

std::size_t Cache::flush(std::optional<NodeId> node) {
  return state_->flush(node);
}

std::size_t Cache::invalidate(std::span<const std::byte> source) {
  if (source.empty()) return 0;
  Region region = Region::of(source);
  // A length beyond the end of the address space reaches its end.
  if (region.last() < region.address) region.byte_count = 0 - region.address;
  return state_->drop(std::nullopt, region, State::Moves::left_alone,
                      [&](Shelf& shelf, Batch& gone) { shelf.drop_overlapping(region, gone); });
}

std::size_t Cache::clear() {
  return state_->drop(std::nullopt, std::nullopt, State::Moves::left_alone,
                      [](Shelf& shelf, Batch& gone) { shelf.drop_all(gone); });
}

Result<Change> Cache::change(std::span<std::byte> source, Hint hint) {
  return state_->change(source, hint);
}

Result<Bytes> Cache::write_back(const Entry& entry) {
  return entry.source_.empty() ? Bytes(0) : state_->write_back(Region::of(entry.source_));
}

Result<Bytes> Cache::write_back() {
  return state_->write_back({0, ~std::uint64_t{0}});
}

CacheStatistics Cache::statistics() const {
  const Ledger& ledger = state_->ledger();
  CacheStatistics totals;
  totals.hits = ledger.tallies.total(&Tally::hits);
  totals.duplicates = ledger.tallies.total(&Tally::duplicates);
  totals.misses = ledger.tallies.total(&Tally::misses);
  totals.not_placed = ledger.tallies.total(&Tally::not_placed);
  totals.refused = ledger.tallies.total(&Tally::refused);
  totals.weak_hits = ledger.tallies.total(&Tally::weak_hits);
  totals.weak_misses = ledger.tallies.total(&Tally::weak_misses);
  totals.policy_errors = ledger.policy_errors.value();
  totals.moves_failed = ledger.moves_failed.value();
  totals.late_writes = ledger.late_writes.value();
  totals.bytes_kept = ledger.bytes_kept.value();
  totals.evictions = ledger.evictions.value();
  totals.bytes_moved = ledger.bytes_moved.value();
  totals.bad_sources = ledger.bad_sources.value();
  totals.write_backs = ledger.write_backs.value();
  totals.bytes_written_back = ledger.bytes_written_back.value();
  totals.waits = ledger.waits.value();
  totals.waited_ns = ledger.waited_ns.value();
  for (const detail::Room& room : ledger.rooms) totals.bytes_cached += room.bytes_used();
  return totals;
}

}  // namespace headrace::cache
