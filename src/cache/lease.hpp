// SPDX-License-Identifier: Apache-2.0
// Leases: record which entries are in use, without a count that all users write.
//
// Purpose. A hit must not write what a hit on another processor writes, not even for the same
// entry. So a thread that uses an entry records it in its own slot, and a thread that drops the
// entry scans all slots: hits are many and drops are few.
//
// Progress. occupy() and vacate() are wait-free, a scan is wait-free for a given number of slots
// and lets the kernel interrupt the process's other threads once.
//
// Agents. The *reader* that finds an entry and occupies a slot; *holders*, who have handles on the
// slot, on any thread; the *dropper*, one at a time per shard, under the shard's mutex: it never
// takes a listing that another shard's dropper, or an earlier one, wrote for its own `leaving`.
//
// | listing | set by                              | a reader that sees it       | slots with it |
// | -------- | ----------------------------------- | --------------------------- | ------------- |
// | absent   | constructor, and the end            | vacates                     | passing only  |
// | listed   | the inserter, also of one that was  |                             |               |
// |          | dropped without holders; a dropper  | has the entry               | any           |
// |          | that leaves it to its holders       |                             |               |
// | leaving  | dropper, before it scans            | vacates                     | any           |
// | dropped  | dropper, after it has marked them,  | vacates                     | marked ones,  |
// |          | before it releases its mutex; or it |                             | passing ones; |
// |          | will make it `leaving` later        |                             | then any      |
//
// No reader is missed: the reader writes its slot and then reads the listing; the dropper writes
// the listing and then reads the slots; between the two the reader has a light barrier and the
// dropper a heavy one (platform/barrier.hpp). So either the reader sees `leaving` and vacates, or
// the dropper sees the slot. Without a heavy barrier all four are sequentially consistent, which
// costs each hit a full barrier. Once an entry is not listed, the number of its slots only falls,
// because a copied handle shares the slot of its original.
//
// Reclamation. Slots are never freed. Entries are in a pool that lives as long as their cache, so a
// reader may look at one that has ended or was reused: it trusts only what it read after it saw
// `listed` with its slot occupied. ABA: a slot that names a reused entry only delays the end of its
// new life.
//
// Rejected: a count in the entry (two threads that use the same entries wait for its line at each
// hit: bench/cache/versus_seed); hazard pointers and epochs of libcds or xenium, see
// docs/decisions/0007-leases.md. Model test: tests/model/cache.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "headrace/base/atomic.hpp"
#include "headrace/platform/barrier.hpp"

namespace headrace::cache::detail {

/// `leaving` and above: one value per dropper, see leaving_from().
enum class Listing : std::uint32_t { absent, listed, dropped, leaving };

/// As a dropper, the holder of a turn has a number above those of shards.
[[nodiscard]] constexpr std::uint32_t dropper_of(std::uint64_t turn) {
  return 0x10000U + static_cast<std::uint32_t>(turn % 0x40000000U);
}

/// `leaving` and the dropper in one word: read separately, the two could belong to different lives
/// of the entry. A dropper is the holder of a shard's mutex, or of a turn.
[[nodiscard]] constexpr Listing leaving_from(std::uint32_t dropper) {
  return Listing{static_cast<std::uint32_t>(Listing::leaving) + dropper};
}

/// The part of an entry that leases use.
///
/// Threading: shared.
struct LeasedEntry {
  Atomic<Listing> listing{Listing::absent};
  /// While the entry is dropped: the number of marked slots, plus 1 until the dropper is done. The
  /// thread that decrements it to 0 ends the entry.
  Atomic<std::uint32_t> holder_count{0};
};

/// Distance between data that different threads write at every hit. Two lines, because processors
/// that miss one also fetch its neighbour.
inline constexpr std::size_t kApartBytes = 128;

/// One lease: the address of the entry, 0 if none, and whether its end must be reported.
///
/// Threading: shared. Only the thread that owns the slot's chunk occupies it.
struct alignas(16) Slot {
  static constexpr std::uintptr_t kMark = 1;

  Atomic<std::uintptr_t> word{0};
  /// Handles that share the lease.
  Atomic<std::uint32_t> share_count{0};

  /// The leased entry. The caller must hold a share.
  [[nodiscard]] LeasedEntry* entry() const {
    // relaxed: the caller's share keeps the address constant; only the mark may change.
    return entry_of(word.load_relaxed());
  }
  [[nodiscard]] static LeasedEntry* entry_of(std::uintptr_t word) {
    return reinterpret_cast<LeasedEntry*>(word & ~kMark);
  }
};

/// How readers and droppers synchronize: all operations sequentially consistent, or a light barrier
/// for readers and a heavy one for droppers.
enum class Barriers : std::uint8_t { equal, unequal };

/// What droppers know about a reader without a barrier. It is
///
/// - active from its next access on, which has a light barrier: a dropper needs its turn,
/// - parking, set by a dropper before its heavy barrier: a dropper needs its turn,
/// - parked, set by that dropper after it, by a thread that ends, and at first: a dropper sees its
///   slots. The next access has a full barrier, and makes the reader active if barriers are
///   unequal.
///
/// A reader that has seen a turn uses no entry that was marked before it, and its earlier slots are
/// visible to the dropper that sees that. Threads see a turn at each miss; those that rest are
/// parked.
struct Presence {
  static constexpr std::uint32_t kActive = 0;
  static constexpr std::uint32_t kParked = 1;
  static constexpr std::uint32_t kParking = 2;

  explicit Presence(Barriers barriers)
      : when_active(barriers == Barriers::unequal ? kActive : kParked) {}

  Atomic<std::uint32_t> state{kParked};
  const std::uint32_t when_active;
  Atomic<std::uint64_t> seen_turn{0};

  void see(std::uint64_t turn) {
    // relaxed: only the reader writes it.
    // edge: turn-seen (release)
    if (seen_turn.load_relaxed() != turn) seen_turn.store_release(turn);
  }
  /// Dropper: whether it sees all slots of entries that were marked before `turn`.
  [[nodiscard]] bool has_seen(std::uint64_t turn) const {
    // seq_cst: listing before state here, state before listing in occupy().
    // edge: turn-seen (acquire)
    return state.load_seq_cst() == kParked || seen_turn.load_acquire() >= turn;
  }
};

/// Leases `entry` in an empty slot of the calling thread. Returns whether it is listed: if not,
/// the caller must vacate the slot.
[[nodiscard]] inline bool occupy(Slot& slot, LeasedEntry& entry, Presence& presence) {
  auto word = reinterpret_cast<std::uintptr_t>(&entry);
  slot.share_count.store_relaxed(1);  // relaxed: no other thread knows the lease yet.
  slot.word.store_release(word);      // edge: lease-ended (release)
  platform::light_barrier();
  // relaxed: ordered by that barrier.
  if (presence.state.load_relaxed() != Presence::kActive) [[unlikely]] {
    presence.state.exchange_seq_cst(presence.when_active);
    // seq_cst: slot before listing here, listing before slots in the dropper. Fails if marked.
    // edge: lease-ended (acq_rel)
    slot.word.compare_exchange_seq_cst(word, word);
  }
  return entry.listing.load_seq_cst() == Listing::listed;  // edge: entry-listed (acquire)
}

/// Empties the slot. Returns the entry if the caller must end it: it was dropped, and this was its
/// last lease.
[[nodiscard]] inline LeasedEntry* vacate(Slot& slot) {
  const std::uintptr_t word = slot.word.exchange_acq_rel(0);  // edge: lease-ended (acq_rel)
  if ((word & Slot::kMark) == 0) return nullptr;
  LeasedEntry* const entry = Slot::entry_of(word);
  // edge: entry-released (acq_rel)
  return entry->holder_count.fetch_sub_acq_rel(1) == 1 ? entry : nullptr;
}

/// Half the range of the count, so that concurrent increments beyond the limit do not overflow it.
inline constexpr std::uint32_t kShareCountMax = std::uint32_t{1} << 31U;

/// Adds a handle to the caller's lease. False if there are too many.
inline bool share(Slot& slot) {
  // relaxed, here and below: the caller's share keeps the lease alive.
  if (slot.share_count.fetch_add_relaxed(1) < kShareCountMax) [[likely]]
    return true;
  slot.share_count.fetch_sub_relaxed(1);
  return false;
}

/// Removes a handle. Returns as vacate().
[[nodiscard]] inline LeasedEntry* give_back(Slot& slot) {
  // The only share needs no subtraction: no other thread can copy it.
  // edge: lease-shared (acquire)
  if (slot.share_count.load_acquire() != 1) {
    if (slot.share_count.fetch_sub_acq_rel(1) != 1) return nullptr;  // edge: lease-shared (acq_rel)
  }
  return vacate(slot);
}

/// Dropper: from now on readers ignore the entry. Sets its holder_count to `count`.
inline void mark_leaving(LeasedEntry& entry, std::uint32_t dropper, std::uint32_t count) {
  entry.holder_count.store_relaxed(count);  // relaxed: no slot is marked yet.
  // seq_cst, and a barrier before the slots are read: see above.
  entry.listing.exchange_seq_cst(leaving_from(dropper));
}
/// Dropper of an entry that all readers see dropped: makes it its own, with a holder_count of 1.
inline void claim_dropped(LeasedEntry& entry, std::uint32_t dropper) {
  entry.holder_count.store_relaxed(1);  // relaxed: no slot is marked, and readers ignore the entry.
  entry.listing.store_relaxed(leaving_from(dropper));  // relaxed: as above.
}
/// Dropper, in a scan: whether it has marked this entry.
[[nodiscard]] inline bool is_leaving(const LeasedEntry& entry, std::uint32_t dropper) {
  // relaxed: this value is set and replaced only by the caller, or under its mutex.
  return entry.listing.load_relaxed() == leaving_from(dropper);
}
/// Dropper, under its mutex: the entry will end. Without it the next dropper would take the entry
/// for one of its own and mark passing readers: it would end twice.
inline void mark_dropped(LeasedEntry& entry) {
  // relaxed: a reader that sees the previous value ignores the entry, too.
  entry.listing.store_relaxed(Listing::dropped);
}
/// Dropper: readers may use the entry again.
inline void list_again(LeasedEntry& entry) {
  entry.listing.store_release(Listing::listed);  // edge: entry-listed (release)
}
/// Dropper: releases its part of holder_count. Returns whether it must end the entry.
[[nodiscard]] inline bool leave_to_holders(LeasedEntry& entry) {
  return entry.holder_count.fetch_sub_acq_rel(1) == 1;  // edge: entry-released (acq_rel)
}

/// Marks the lease of `entry`, which is leaving, in a slot that had `word`. The dropper has a
/// part of holder_count.
inline void mark(Slot& slot, std::uintptr_t word, LeasedEntry& entry) {
  entry.holder_count.fetch_add_relaxed(1);  // relaxed: the exchange publishes it.
  // edge: entry-released (acq_rel)
  if (!slot.word.compare_exchange_acq_rel(word, word | Slot::kMark)) {
    // The lease ended meanwhile.
    entry.holder_count.fetch_sub_relaxed(1);  // relaxed: not the last one, that is the dropper's.
  }
}

/// Slots, owned by one thread at a time. Never freed.
///
/// Threading: shared, per field: `next` and `slot_count` are constant once the chunk is registered;
/// `used_count` is written by the owner.
struct alignas(64) Chunk {
  static constexpr std::uint32_t kSlotCountMin = 64;

  Chunk* next = nullptr;  ///< In the registry.
  std::uint32_t slot_count = 0;
  /// Slots from this index on were never occupied.
  Atomic<std::uint32_t> used_count{0};
  Slot* slots = nullptr;         ///< Aligned to kApartBytes.
  Presence* presence = nullptr;  ///< Of the owner.
};

/// All chunks of the process.
///
/// Threading: shared.
class Registry {
 public:
  explicit Registry(Barriers barriers) : barriers_(barriers) {}

  [[nodiscard]] Barriers barriers() const { return barriers_; }
  /// Dropper: the barrier between the listing and the slots.
  void separate() const {
    if (barriers_ == Barriers::unequal) platform::heavy_barrier();
  }
  /// Dropper: begins a turn, after it has marked entries as leaving.
  [[nodiscard]] std::uint64_t begin_turn() {
    return turn_.fetch_add_acq_rel(1) + 1;  // edge: turn-begun (acq_rel)
  }
  // edge: turn-begun (acquire)
  [[nodiscard]] std::uint64_t turn() const { return turn_.load_acquire(); }
  /// Whether each reader has seen `turn`: then what was marked before it needs no barrier.
  [[nodiscard]] bool is_seen(std::uint64_t turn) const {
    // edge: chunk-registered (acquire)
    for (const Chunk* chunk = head_.load_seq_cst(); chunk != nullptr; chunk = chunk->next) {
      if (!chunk->presence->has_seen(turn)) return false;
    }
    return true;
  }
  /// As separate(); parks all readers. `turn` is the caller's.
  void separate_and_park(std::uint64_t turn) const {
    const std::uint32_t parking = Presence::kParking + dropper_of(turn);
    const auto replace = [&](std::uint32_t from, std::uint32_t to) {
      // edge: chunk-registered (acquire)
      for (const Chunk* chunk = head_.load_seq_cst(); chunk != nullptr; chunk = chunk->next) {
        std::uint32_t expected = from;
        chunk->presence->state.compare_exchange_seq_cst(expected, to);
      }
    };
    replace(Presence::kActive, parking);
    separate();
    replace(parking, Presence::kParked);
  }
  void add(Chunk& chunk) {
    Chunk* head = head_.load_relaxed();  // relaxed: the exchange decides.
    do {
      chunk.next = head;
      // seq_cst, as occupy(): a thread that occupies its slots sees a dropper that misses them.
      // edge: chunk-registered (release)
    } while (!head_.compare_exchange_seq_cst(head, &chunk));
  }
  /// Calls `visit(slot, word)` for every occupied slot.
  template <typename Visit>
  void for_each_lease(Visit visit) const {
    // edge: chunk-registered (acquire)
    for (const Chunk* chunk = head_.load_seq_cst(); chunk != nullptr; chunk = chunk->next) {
      const std::uint32_t count = chunk->used_count.load_seq_cst();
      for (std::uint32_t i = 0; i < count; ++i) {
        Slot& slot = chunk->slots[i];
        const std::uintptr_t word = slot.word.load_seq_cst();  // edge: lease-ended (acquire)
        if (word != 0) visit(slot, word);
      }
    }
  }

 private:
  const Barriers barriers_;
  Atomic<Chunk*> head_{nullptr};
  Atomic<std::uint64_t> turn_{0};
};

/// The place of a reader in arrays of segments, of which number k has kFirstCount << k elements.
///
/// Threading: immutable.
struct ReaderPlace {
  static constexpr std::uint32_t kFirstCount = 16;

  std::uint32_t segment;
  std::uint32_t offset;

  explicit ReaderPlace(std::uint32_t index)
      : segment(static_cast<std::uint32_t>(std::bit_width(index / kFirstCount + 1)) - 1),
        offset(index + kFirstCount - (kFirstCount << segment)) {}
};

/// The slots of one thread, and which of them to take next.
///
/// Threading: owned by the thread that it is attached to.
class alignas(kApartBytes) Reader {
 public:
  Reader(Registry& registry, std::uint32_t index)
      : presence_(registry.barriers()), place_(index), registry_(registry) {
    grow();
  }
  Reader& operator=(Reader&&) = delete;

  /// The reader of the calling thread, which lives as long as the process.
  [[nodiscard]] static Reader& mine() { return this_one_ != nullptr ? *this_one_ : attach(); }
  [[nodiscard]] static Registry& registry();  ///< The registry that droppers scan.

  [[nodiscard]] Presence& presence() { return presence_; }
  /// Unique among readers.
  [[nodiscard]] ReaderPlace place() const { return place_; }
  /// Between accesses: this thread sees what has been marked.
  void see_turn() { presence_.see(registry_.turn()); }
  /// An empty slot, most likely the last one used. Allocates only if half of them are occupied.
  [[nodiscard]] Slot& take() {
    Slot& slot = *last_;
    if (slot.word.load_acquire() == 0) [[likely]]  // edge: lease-ended (acquire)
      return slot;
    return search();
  }

 private:
  static constexpr std::size_t kChunkMax = 26;

  friend struct Attachment;

  [[nodiscard]] static Reader& attach();
  [[nodiscard]] Slot& search();
  void grow();

  // A plain pointer, because access to an object with a destructor first checks its initialization.
  // initial-exec, because otherwise each access is a call.
  [[gnu::tls_model("initial-exec")]] static thread_local constinit Reader* this_one_;

  Slot* last_ = nullptr;
  Presence presence_;
  const ReaderPlace place_;
  Registry& registry_;
  std::uint32_t chunk_count_ = 0;
  std::uint32_t slot_count_ = 0;
  std::uint32_t chunk_index_ = 0;  ///< Where search() continues.
  std::uint32_t slot_index_ = 0;
  /// Each as long as all before it together.
  std::array<Chunk*, kChunkMax> chunks_{};
};

}  // namespace headrace::cache::detail
