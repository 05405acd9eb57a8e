// SPDX-License-Identifier: Apache-2.0
// CacheState: implements Cache. It calls the policies, searches the shards of the nodes that they
// name, starts a move on a miss, and counts. No lock is held while a policy, the memory source or
// the engine is called.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core.hpp"
#include "entry.hpp"
#include "headrace/base/atomic.hpp"
#include "headrace/base/counter.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/cache/cache.hpp"
#include "placement.hpp"
#include "shard.hpp"

namespace headrace::cache {

using detail::Core;
using detail::DeferredEvents;
using detail::DirtyRanges;
using detail::EntryList;
using detail::EntryState;
using detail::InFlightMoves;
using detail::Newcomer;
using detail::Phase;
using detail::Placements;
using detail::Places;
using detail::Reader;
using detail::Region;
using detail::Reservation;
using detail::Shard;
using detail::Slot;
using detail::ThreadCounts;

/// Threading: shared. The machine, the policies and the list of shards are constant.
class CacheState {
 public:
  CacheState(const topo::Machine& machine, engine::Engine& engine, CacheOptions options);

  [[nodiscard]] Entry access(std::span<const std::byte> source, Hint hint);
  [[nodiscard]] Entry access_weak(std::span<const std::byte> source, Hint hint);
  [[nodiscard]] std::vector<Entry> access_many(std::span<const std::span<const std::byte>> sources,
                                               Hint hint);
  std::size_t pin(std::span<const std::byte> source, bool pinned);
  [[nodiscard]] Result<Change> change(std::span<std::byte> source, Hint hint);
  [[nodiscard]] Result<Bytes> write_back(const Region& region);
  std::size_t flush(std::optional<NodeId> node);
  std::size_t invalidate(const Region& region);
  std::size_t clear();
  [[nodiscard]] CacheStatistics statistics() const;

 private:
  struct LetGo {
    void operator()(Core* core) const { core->let_go(); }
  };

  /// Shards of a node: one for each kStripedBytes of its capacity, but kStripeMin if each then has
  /// an eighth of kStripedBytes, at most kStripeMax, and one more. An eviction takes an eighth of
  /// one at most: with more of them than this it would be less than a 64th of the node.
  static constexpr std::uint64_t kStripedBytes = std::uint64_t{64} << 20U;
  static constexpr std::uint64_t kStripeMin = 8;
  static constexpr std::uint32_t kStripeMaxBits = 5;
  static constexpr std::uint64_t kStripeMax = std::uint64_t{1} << kStripeMaxBits;
  static constexpr std::uint32_t kStripeBits = detail::Index::kStripeBits;

  /// Longer copies of access_many() are submitted alone.
  static constexpr std::uint64_t kGatheredBytesMax = std::uint64_t{64} << 10U;
  /// Maximum copies of access_many() in one batch, so that a queue can take it.
  static constexpr std::size_t kGatheredCountMax = 1024;

  /// Outcome of placing an entry on a node. found: another thread has placed one.
  enum class Attempt : std::uint8_t { reserved, placed, gathered, found, no_room, refused };
  /// Whether unused entries may be evicted.
  enum class Evicting : std::uint8_t { no, yes };

  /// Moves of one call of access_many() to one node, not yet submitted.
  struct Gathered {
    struct Member {
      std::uint32_t number = 0;
      std::size_t index = 0;  ///< Index of the entry in the result of the call.
    };
    Shard* shard = nullptr;
    std::optional<NodeId> source_node = std::nullopt;
    InFlightMoves::Gathering registered_moves;
    std::vector<Member> members = {};
  };
  /// State of one call of access_many().
  struct Gather {
    std::vector<Entry> entries = {};
    std::vector<Gathered> groups = {};
  };

  /// What to do with moves of entries that have handles; the others are stopped in any case.
  enum class Moves : std::uint8_t { left_alone, stopped };
  /// Drops the entries that `choose` takes from the shards that may have some of `where`, or from
  /// those of `node`, or of all nodes. Their dirty bytes are written back, except for those in
  /// `lost`. Returns the number of entries.
  template <typename Choose>
  std::size_t drop(std::optional<NodeId> node, const std::optional<Region>& where,
                   const std::optional<Region>& lost, Moves moves, Choose choose);
  void end_retired() const;  ///< Drops what invalidate() retired, and frees the spares.
  /// The shards are those of node 0, of node 1, ... If a node has several, each has the entries of
  /// some stripes, see Index, and the last one those that reach over the boundary of two. So
  /// threads that miss write different lines, mostly.
  /// A node is given by the number of its first shard.
  [[nodiscard]] Shard& shard_of(std::size_t node, const Region& region) const {
    const std::uint64_t stripe = region.address >> kStripeBits;
    if (stripe != region.last() >> kStripeBits) [[unlikely]]
      return wide_shard_of(node);
    // As many stripes in turn as there are shards are in different ones; see Index.
    return *shards_[node + ((stripe ^ stripe >> kStripeMaxBits) & stripe_mask_)];
  }
  [[nodiscard]] Shard& wide_shard_of(std::size_t node) const {
    return *shards_[node + shards_per_node_ - 1];
  }
  [[nodiscard]] std::size_t node_of(const Shard& shard) const {
    return shard.number() / shards_per_node_ * shards_per_node_;
  }
  [[nodiscard]] std::span<const std::unique_ptr<Shard>> shards_of(const Shard& shard) const {
    return std::span(shards_).subspan(node_of(shard), shards_per_node_);
  }
  /// Calls `visit(shard)` for every shard that may have entries that overlap `region`.
  template <typename Visit>
  void for_each_shard(const Region& region, Visit visit) const;
  struct Miss {
    std::span<const std::byte> source;
    Region region;
    Newcomer newcomer;
    Reader& reader;
    ThreadCounts& counts;
    Gather* gather = nullptr;
    std::uint64_t footprint_bytes = 0;
  };
  [[nodiscard]] Entry leave_at_source(std::span<const std::byte> source, ThreadCounts& counts);
  struct Found {
    Slot* slot = nullptr;
    Shard* shard = nullptr;
  };
  /// The lookup of all accesses except access(), which inlines its own: with a second inlined
  /// caller of Shard::find() the compiler inlines neither (8 % more instructions).
  [[nodiscard, gnu::noinline]] Found find(const Places& places, Reader& reader,
                                          std::span<const std::byte> source, Hint hint);
  /// As find(), for what reaches over a boundary of stripes and is longer than `region`.
  [[nodiscard, gnu::noinline]] Found find_wide(const Places& places, Reader& reader,
                                               std::span<const std::byte> source, Hint hint) const;
  /// As access(), but the move may be left to submit_gathered().
  [[nodiscard]] Entry access_gathering(std::span<const std::byte> source, Hint hint,
                                       Gather& gather);
  [[nodiscard]] Entry access_absent(Miss& miss, const Places& places);
  /// A miss is reserve() -> Shard::publish() -> submit(): an entry has its memory before others can
  /// find it. `slot` becomes a lease of the entry that was placed or found.
  [[gnu::always_inline, nodiscard]] inline Attempt place(const Miss& miss, Shard& shard,
                                                         Evicting evicting, Slot*& slot);
  /// Gets room and memory for the copy, if necessary by make_room().
  [[gnu::always_inline, nodiscard]] inline Attempt reserve(const Miss& miss, Shard& shard,
                                                           Evicting evicting, Reservation& memory,
                                                           Slot*& slot);
  /// Makes room on a full node: drops what the entry will replace, and the next time evicts. False
  /// if that is impossible. `slot` becomes a lease of another thread's entry, if there is one.
  [[nodiscard]] bool make_room(const Miss& miss, Shard& shard, Evicting evicting,
                               bool& has_made_way, Reservation& memory, Slot*& slot);
  [[gnu::always_inline, nodiscard]] inline Attempt submit(const Miss& miss, Shard& shard,
                                                          std::uint32_t number,
                                                          InFlightMoves::Move& move);
  /// Takes over an listed move that is submitted with others.
  void gather_move(Gather& gather, Shard& shard, std::uint32_t number,
                   std::optional<NodeId> source_node,
                   InFlightMoves::RegisteredMove& registered_move);
  void submit_gathered(Gathered& group, std::vector<Entry>& entries);
  void refuse(Shard& shard, std::uint32_t number, EntryState& state);
  [[nodiscard]] engine::SubmitOptions options_for(const Shard& shard,
                                                  std::optional<NodeId> source_node) const;
  /// Evicts `byte_count` bytes or more for a miss. Those of the length that it needs become spares.
  [[nodiscard]] bool evict(const Miss& miss, Shard& shard, std::uint64_t byte_count);
  /// Frees what was taken off earlier, if that needs no barrier, and takes the next entries off.
  /// Returns the bytes that were freed.
  [[gnu::noinline]] std::uint64_t evict_ahead(const Miss& miss, Shard& shard);
  /// Half of a bulk is taken off ahead; not on a small node, nor with an observer.
  static constexpr std::uint32_t kBulkShare = 2;
  [[nodiscard]] std::uint32_t bulk_share(const Miss& miss, Shard& shard) const {
    const std::uint64_t half = shard.room().capacity_bytes() / Shard::kBulkOneOf / kBulkShare;
    return core_->observer || half < miss.footprint_bytes ? 1 : kBulkShare;
  }
  [[nodiscard]] std::span<const std::unique_ptr<Shard>> shard_to_evict_from(Shard& shard);
  /// Frees entries that all readers see dropped; holders keep theirs. Those of `spare_bytes` become
  /// spares. Returns the bytes of those without holders.
  std::uint64_t free_off(detail::Room& room, detail::Room::Off off,
                         std::uint64_t spare_bytes) const;
  std::uint64_t free_with_barrier(detail::Room& room, detail::Room::Off off,
                                  std::uint64_t spare_bytes) const;
  [[nodiscard]] bool is_on(std::uint32_t number, std::optional<NodeId> node) const;
  /// Writes the dirty bytes of `source` back. Returns a handle without an entry.
  [[nodiscard]] Entry at_source(std::span<const std::byte> source);
  /// Returns the number of ranges to which an abandoned device may still write old bytes.
  std::size_t write_back_by_engine(std::span<const DirtyRanges::Range> claimed);
  /// Number of the entry of a handle of this cache.
  [[nodiscard]] std::uint32_t number_of(const Entry& entry) const;
  /// Ends entries without handles; the others end with their last handle.
  void end(EntryList& gone, std::optional<EventKind> kind) const;

  const topo::Machine machine_;
  engine::Engine& engine_;
  std::optional<Placements> placements_;
  engine::MoverPolicy mover_;  ///< Empty: the engine's.
  /// Whether movers are chosen by the nodes of a copy. False if there is at most one mover of each
  /// kind.
  bool has_choice_ = true;
  const bool check_sources_;
  const std::unique_ptr<Core, LetGo> core_;
  std::vector<std::unique_ptr<Shard>> shards_;  ///< By number.
  std::uint64_t stripe_mask_ = 0;
  std::uint32_t shards_per_node_ = 1;
  /// Which shard of a node gives way next, if it has more entries than the one that needs room.
  Counter turns_;
  /// Calls of drop() that have not returned.
  Atomic<std::uint32_t> dropping_count_{0};
  /// Held from taking entries off the shards until their moves have ended, so that a later drop
  /// returns only when the moves of an earlier one have ended, too. Not taken by access().
  Mutex dropping_;
};

}  // namespace headrace::cache
