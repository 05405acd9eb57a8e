// SPDX-License-Identifier: Apache-2.0
// Cache: asks the policies, looks on the shelf of the node they name, starts the move if there is
// nothing, and counts. No lock is held while a policy, the memory source or the engine is called.
#include "headrace/cache/cache.hpp"

#include <map>
#include <optional>
#include <utility>

#include "entry.hpp"
#include "headrace/base/check.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/platform/memory.hpp"
#include "headrace/platform/thread.hpp"
#include "ledger.hpp"
#include "shelf.hpp"

namespace headrace::cache {

using detail::Entries;
using detail::EntryState;
using detail::Ledger;
using detail::Phase;
using detail::Shelf;

namespace {

/// `policy`, except that what it throws is counted and chooses nobody, which fails the move.
engine::MoverPolicy guarded(engine::MoverPolicy policy, std::shared_ptr<Ledger> ledger) {
  if (!policy) return {};
  return [policy = std::move(policy), ledger = std::move(ledger)](
             const engine::MoveContext& context, engine::MoverChoice& choice) {
    try {
      policy(context, choice);
    } catch (...) {
      ledger->policy_errors.add(1);
      choice = engine::MoverChoice();
    }
  };
}

/// As placement::fastest, which is asked once per node now instead of at every access.
PlacementPolicy fastest_of(const topo::Machine& machine) {
  std::map<NodeId, std::optional<NodeId>> targets;
  for (const topo::Node& node : machine.nodes) {
    targets.emplace(node.id, placement::fastest({machine, node.id, {}}));
  }
  return [targets = std::move(targets)](const PlacementContext& context) -> std::optional<NodeId> {
    return context.caller_node.has_value() ? targets.at(*context.caller_node) : std::nullopt;
  };
}

}  // namespace

/// Threading: shared. The machine, the policies and the map of shelves are constant.
class Cache::State {
 public:
  State(const topo::Machine& machine, engine::Engine& engine, CacheOptions options)
      : machine_(machine), engine_(engine), ledger_(std::make_shared<Ledger>()) {
    placement_ = options.placement ? std::move(options.placement) : fastest_of(machine_);
    mover_ = guarded(std::move(options.mover), ledger_);
    ledger_->memory = options.memory ? std::move(options.memory) : operating_system_pages();
    for (const topo::Node& node : machine_.nodes) {
      const auto [room, fresh] =
          ledger_->rooms.try_emplace(node.id, options.capacity_per_node.count());
      if (fresh) shelves_.try_emplace(node.id, room->second);
    }
  }

  [[nodiscard]] Entry access(std::span<const std::byte> source);
  /// Drops what `choose` takes from the shelves of `node`, or of all. Returns how many.
  template <typename Choose>
  std::size_t drop(std::optional<NodeId> node, Choose choose);
  [[nodiscard]] const Ledger& ledger() const { return *ledger_; }

 private:
  [[nodiscard]] std::optional<NodeId> place(std::span<const std::byte> source);
  [[nodiscard]] bool start_move(NodeId node, Shelf& shelf, EntryState& state);
  [[nodiscard]] bool make_room(Shelf& shelf, std::uint64_t byte_count);

  const topo::Machine machine_;
  engine::Engine& engine_;
  PlacementPolicy placement_;
  engine::MoverPolicy mover_;  ///< Empty: the engine's.
  const std::shared_ptr<Ledger> ledger_;
  std::map<NodeId, Shelf> shelves_;
  /// Held from taking entries off the shelves until their moves have ended: who drops after another
  /// returns only when what the other one took off is no longer moved either. Not taken by
  /// access().
  Mutex dropping_;
};

Entry Cache::State::access(std::span<const std::byte> source) {
  HEADRACE_CHECK(source.data() != nullptr || source.empty(),
                 "a region that is not empty has an address", source.size());
  const std::optional<NodeId> node = place(source);
  if (!node.has_value()) {
    ledger_->not_placed.add(1);
    return Entry(new EntryState(source, ledger_));
  }
  Shelf& shelf = shelves_.at(*node);
  if (std::optional<Entry> present = shelf.find(source); present.has_value()) {
    ledger_->hits.add(1);
    return *std::move(present);
  }
  Entry entry(new EntryState(source, ledger_));
  Entries dropped;
  if (std::optional<Entry> present = shelf.insert(entry, dropped); present.has_value()) {
    // Another thread was faster. Ours is still idle, so it can go at once.
    ledger_->duplicates.add(1);
    ledger_->hits.add(1);
    return *std::move(present);
  }
  // From here on others may find the entry and wait for it: whatever happens, its phase must end.
  bool started = false;
  // What made way has ended: its room is free before room is asked for.
  dropped.clear();
  try {
    started = start_move(*node, shelf, *entry.state_);
  } catch (...) {
    // Want of memory, or a memory source or policy of the engine that throws.
    started = false;
  }
  if (started) {
    ledger_->misses.add(1);
    entry.state_->announce_submission();
  } else {
    ledger_->refused.add(1);
    entry.state_->free_copy();
    shelf.erase(entry, dropped);
    entry.state_->end(Phase::left);
  }
  return entry;
}

std::optional<NodeId> Cache::State::place(std::span<const std::byte> source) {
  if (source.empty()) return std::nullopt;
  std::optional<NodeId> caller = platform::current_node();
  if (caller.has_value() && machine_.node(*caller) == nullptr) caller = std::nullopt;
  std::optional<NodeId> chosen;
  bool failed = false;
  try {
    chosen = placement_({machine_, caller, source});
    failed = chosen.has_value() && !shelves_.contains(*chosen);
  } catch (...) {
    failed = true;
  }
  if (!failed) return chosen;
  ledger_->policy_errors.add(1);
  return std::nullopt;
}

bool Cache::State::start_move(NodeId node, Shelf& shelf, EntryState& state) {
  const std::uint64_t byte_count = detail::footprint_bytes(state.source.size());
  if (!make_room(shelf, byte_count)) return false;
  if (!state.allocate_copy(node, shelf.room())) return false;
  engine::SubmitOptions options;
  options.source_node = platform::node_of_address(state.source.data());
  options.target_node = node;
  options.policy = mover_ ? &mover_ : nullptr;
  options.callback = &EntryState::move_ended;
  options.callback_context = &state;
  const engine::CopyPlan plan{state.copy.first(state.source.size()), state.source};
  return engine_.submit_copy(state.job, plan, options) == engine::Submit::accepted;
}

bool Cache::State::make_room(Shelf& shelf, std::uint64_t byte_count) {
  if (byte_count > shelf.room().capacity_bytes()) return false;
  // Another thread may take the room that an eviction made; then somebody got on, and we try again.
  while (!shelf.room().try_reserve(byte_count)) {
    Entries dropped;
    if (!shelf.evict(byte_count, dropped)) return false;
    ledger_->evictions.add(dropped.size());
  }
  return true;
}

template <typename Choose>
std::size_t Cache::State::drop(std::optional<NodeId> node, Choose choose) {
  const Lock lock(dropping_);
  Entries dropped;
  for (auto& [id, shelf] : shelves_) {
    if (!node.has_value() || id == *node) choose(shelf, dropped);
  }
  // All are asked to stop before the first is waited for.
  for (const Entry& entry : dropped) {
    if (entry.state_->sole()) entry.state_->stop();
  }
  return dropped.size();
}

Result<std::unique_ptr<Cache>> Cache::make(const topo::Machine& machine, engine::Engine& engine,
                                           CacheOptions options) {
  if (options.capacity_per_node.count() == 0) {
    return fail(Code::invalid_argument, "make a cache", "its capacity per node is 0",
                "give it room for at least one region, or use the placement policy 'none'");
  }
  return std::unique_ptr<Cache>(
      new Cache(std::make_unique<State>(machine, engine, std::move(options))));
}

Cache::Cache(std::unique_ptr<State> state) : state_(std::move(state)) {}

Cache::~Cache() {
  clear();
}

Entry Cache::access(std::span<const std::byte> source) {
  return state_->access(source);
}

std::size_t Cache::flush(std::optional<NodeId> node) {
  return state_->drop(node, [](Shelf& shelf, Entries& dropped) { shelf.drop_unheld(dropped); });
}

std::size_t Cache::invalidate(std::span<const std::byte> source) {
  return state_->drop(std::nullopt, [source](Shelf& shelf, Entries& dropped) {
    shelf.drop_overlapping(source, dropped);
  });
}

std::size_t Cache::clear() {
  return state_->drop(std::nullopt,
                      [](Shelf& shelf, Entries& dropped) { shelf.drop_all(dropped); });
}

CacheStatistics Cache::statistics() const {
  const Ledger& ledger = state_->ledger();
  CacheStatistics totals;
  totals.hits = ledger.hits.value();
  totals.duplicates = ledger.duplicates.value();
  totals.misses = ledger.misses.value();
  totals.not_placed = ledger.not_placed.value();
  totals.refused = ledger.refused.value();
  totals.moves_failed = ledger.moves_failed.value();
  totals.policy_errors = ledger.policy_errors.value();
  totals.evictions = ledger.evictions.value();
  totals.bytes_moved = ledger.bytes_moved.value();
  for (const auto& [id, room] : ledger.rooms) totals.bytes_cached += room.bytes_used();
  return totals;
}

}  // namespace headrace::cache
