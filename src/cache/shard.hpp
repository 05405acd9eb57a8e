// SPDX-License-Identifier: Apache-2.0
// Shard: entries of one node, found by the bytes of their source: all of the node, or those of some
// addresses (see Stripes). It never moves, waits or frees: it hands dropped entries to its caller,
// which ends them with no lock held.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core.hpp"
#include "entry.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/cache/cache.hpp"
#include "index.hpp"
#include "lease.hpp"
#include "order.hpp"

namespace headrace::cache::detail {

/// Threading: confined.
struct Newcomer {
  Hint hint;
  bool is_gathered = false;  ///< Its move is submitted with others.
};

/// index_ and order_ have the same entries, which are listed. An entry that is replaced by a longer
/// one while its move runs cannot end at once, because that might wait: it goes to superseded_ and
/// is dropped from there at the first insertion after its move. What retire_overlapping() took off
/// waits in retired_ until there is much of it, or for an eviction: then in the room.
///
/// Threading: shared.
class Shard {
 public:
  static constexpr std::uint64_t kBulkOneOf = 64;

  /// One of `share` shards of its node. Of 2^`shard_bits` stripes in turn one is its own.
  Shard(Core& core, std::uint16_t number, Registry& registry, Eviction eviction,
        std::uint32_t share, std::uint32_t shard_bits)
      : core_(core),
        number_(number),
        node_(core.nodes[number]),
        room_(*core.room_of[number]),
        moves_(core.in_flight[number]),
        retired_max_(std::min(kRetiredMax, room_.capacity_bytes() / kBulkOneOf / share)),
        registry_(registry),
        index_(core.pool, shard_bits),
        order_(eviction, core.pool, share) {}

  [[nodiscard]] Room& room() { return room_; }
  [[nodiscard]] NodeId node() const { return node_; }
  [[nodiscard]] std::uint16_t number() const { return number_; }
  [[nodiscard]] bool is_empty() const { return index_.is_empty(); }
  [[nodiscard]] std::uint32_t count() const { return index_.count(); }

  /// A lease of an entry that contains `region` and whose move has not failed, or null. No lock.
  [[nodiscard]] Slot* find(Reader& reader, const Region& region, Hint hint);
  /// Prepares an absent entry that has its memory. Returns a lease of it.
  [[nodiscard]] Slot& prepare(Reader& reader, EntryState& entry, const Region& region,
                              bool is_pinned);
  struct Published {
    Slot* present = nullptr;              ///< A lease of another entry, or
    InFlightMoves::Move* move = nullptr;  ///< the registered move of this one.
  };
  /// Lists a prepared entry and registers its move, unless another entry contains its region. Drops
  /// what it replaces as make_way().
  ///
  /// Fails: throws std::bad_alloc; then nothing has changed.
  [[nodiscard]] Published publish(Reader& reader, std::uint32_t number, EntryState& entry,
                                  const Newcomer& newcomer, EntryList& gone);
  /// Drops the entries that an entry of `region` replaces: those with its address that are shorter,
  /// or whose move failed. Sets `is_pinned` if one of them is pinned. If an entry contains
  /// `region`, drops nothing and returns a lease of it.
  [[nodiscard]] Slot* make_way(Reader& reader, const Region& region, Hint hint, bool& is_pinned,
                               EntryList& gone);
  void erase(std::uint32_t number, EntryList& gone);

  /// Takes unused entries of `shards` (of one node, by number) off and marks them as leaving: what
  /// was retired, and others in eviction order, `byte_count` bytes or more in all, up to one of
  /// `share` parts of kBulkCount entries or one kBulkOneOf-th of what is used. If they are not
  /// enough, takes none and returns false. Allocates nothing and calls no kernel. Unused: not seen
  /// held, not pinned, dirty or moving. `newcomer` is the hint of the entry that needs the room.
  static bool evict(std::span<const std::unique_ptr<Shard>> shards, std::uint64_t byte_count,
                    std::uint32_t share, Hint newcomer, Room::Off& off);
  void drop_unheld(EntryList& gone);
  struct Retired {
    std::size_t count = 0;
    bool is_all = true;
    bool is_much = false;  ///< So much waits in the room that it is worth a barrier.
  };
  /// Takes the entries that overlap `region` off, if they are clean and not moving, and drops them
  /// some time later. `is_all` if there were no others.
  [[nodiscard]] Retired retire_overlapping(const Region& region);
  void give_retired();  ///< Gives what was retired to the room.
  void drop_overlapping(const Region& region, EntryList& gone, std::uint32_t except = 0);
  void drop_all(EntryList& gone);
  /// Pins or unpins the entries that contain `region`. Returns how many.
  std::size_t pin(const Region& region, bool pinned);

  [[nodiscard]] bool is_listed(std::uint32_t number);

 private:
  static constexpr std::uint32_t kBulkCount = 256;
  /// At most this share of the entries of one shard at once.
  static constexpr std::uint32_t kBulkShareMax = 8;
  static constexpr std::uint64_t kRetiredMax = std::uint64_t{1} << 20U;

  [[nodiscard]] Slot* lease(Reader& reader, EntryState& entry, const Region& region, Hint hint);
  /// As find(), under the lock: misses no listed entry.
  [[nodiscard]] Index::Found find_locked(Reader& reader, const Region& region, Hint hint,
                                         Slot*& found) HEADRACE_REQUIRES(moves_.mutex);
  /// evict() in two steps. The first returns how many bytes it gained, in proposed_.
  [[nodiscard]] std::uint64_t propose(std::uint64_t byte_count, std::uint32_t share, Hint newcomer)
      HEADRACE_REQUIRES(moves_.mutex);
  void decide(bool is_evicted, Room::Off& off) HEADRACE_REQUIRES(moves_.mutex);
  void retire(std::uint32_t number, EntryState& entry) HEADRACE_REQUIRES(moves_.mutex);
  void put_off(std::uint32_t number, EntryState& entry, Room::Off& off)
      HEADRACE_REQUIRES(moves_.mutex);
  std::uint64_t put_retired() HEADRACE_REQUIRES(moves_.mutex);
  void take_retired(Room::Off& off) HEADRACE_REQUIRES(moves_.mutex);
  /// Takes off what an entry of `region` replaces. Returns whether some of it is pinned.
  bool replace(const Region& region, EntryList& leaving) HEADRACE_REQUIRES(moves_.mutex);
  void pass_by(Slot& slot);  ///< Empties a slot whose entry was not available.
  /// Calls `visit(number)` for every listed entry that overlaps `region`; `visit` may remove it.
  template <typename Visit>
  void for_each_overlapping(const Region& region, Visit visit);
  /// Removes a listed entry from index_ and order_ and marks it as leaving. Unannotated,
  /// because Clang's analysis does not see the mutex in the visitors that call it.
  void take_off(std::uint32_t number, EntryList& leaving);
  /// Drops entries that were marked with a holder_count of 1: marks their leases.
  void drop(EntryList& leaving, EntryList& gone) HEADRACE_REQUIRES(moves_.mutex);
  template <typename Condition>
  void take_superseded(EntryList& leaving, Condition condition) HEADRACE_REQUIRES(moves_.mutex);
  /// Calls `visit(slot, word, entry)` for every lease of an entry that the caller marked.
  template <typename Visit>
  void for_each_leaving(Visit visit);

  Core& core_;
  const std::uint16_t number_;
  const NodeId node_;
  Room& room_;
  InFlightMoves& moves_;             ///< Contains the mutex of the shard.
  const std::uint64_t retired_max_;  ///< Bytes that need not be dropped yet.
  Registry& registry_;
  alignas(64) Index index_;  ///< Guarded by the mutex, except Index::find() and Order::touch().
  Order order_;
  EntryList superseded_ HEADRACE_GUARDED_BY(moves_.mutex);
  EntryList retired_ HEADRACE_GUARDED_BY(moves_.mutex);
  std::uint64_t retired_bytes_ HEADRACE_GUARDED_BY(moves_.mutex) = 0;
  EntryList proposed_ HEADRACE_GUARDED_BY(moves_.mutex);  ///< Between propose() and decide().
  EntryList passed_over_ HEADRACE_GUARDED_BY(moves_.mutex);
  /// The holder_count of listed entries that the last propose() saw held.
  std::uint32_t round_ HEADRACE_GUARDED_BY(moves_.mutex) = 0;
};

// Inline, to save calls on a hit and a miss.

inline Slot* Shard::lease(Reader& reader, EntryState& entry, const Region& region, Hint hint) {
  Slot& slot = reader.take();
  if (occupy(slot, entry, reader.presence()) && entry.region().contains(region) &&
      entry.shard_number() == number_ && entry.progress.now() != Phase::left) [[likely]] {
    order_.touch(entry, hint);
    return &slot;
  }
  pass_by(slot);
  return nullptr;
}

inline Slot& Shard::prepare(Reader& reader, EntryState& entry, const Region& region,
                            bool is_pinned) {
  entry.address.store_relaxed(region.address);  // relaxed: `listed` publishes them.
  entry.byte_count.store_relaxed(region.byte_count);
  entry.shard.store_relaxed(number_);
  entry.flags.store_relaxed(is_pinned ? EntryState::kPinned : std::uint8_t{0});
  entry.progress.expect_submission();
  Slot& slot = reader.take();
  static_cast<void>(occupy(slot, entry, reader.presence()));
  return slot;
}

[[gnu::always_inline]] inline Slot* Shard::find(Reader& reader, const Region& region, Hint hint) {
  Slot* found = nullptr;
  index_.find(region, Index::kStepMaxUnlocked, [&](EntryState& entry) {
    // relaxed: a first check; lease() decides.
    if (entry.listing.load_relaxed() != Listing::listed) return false;
    found = lease(reader, entry, region, hint);
    return found != nullptr;
  });
  return found;
}

}  // namespace headrace::cache::detail
