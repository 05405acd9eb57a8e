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

/// `leaving` and above: one value per shard, see leaving_from().
enum class Listing : std::uint32_t { absent, listed, dropped, leaving };

/// `leaving` and the dropper's shard in one word: read separately, the two could belong to
/// different lives of the entry.
[[nodiscard]] constexpr Listing leaving_from(std::uint16_t shard) {
  return Listing{static_cast<std::uint32_t>(Listing::leaving) + shard};
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

/// Leases `entry` in an empty slot of the calling thread. Returns whether it is listed: if not,
/// the caller must vacate the slot.
[[nodiscard]] inline bool occupy(Slot& slot, LeasedEntry& entry, Barriers barriers) {
  const auto word = reinterpret_cast<std::uintptr_t>(&entry);
  slot.share_count.store_relaxed(1);  // relaxed: no other thread knows the lease yet.
  if (barriers == Barriers::unequal) [[likely]] {
    // edge: lease-ended (release)
    slot.word.store_release(word);
    platform::light_barrier();
  } else {
    // seq_cst: slot before listing here, listing before slots in the dropper; see above.
    // edge: lease-ended (acq_rel)
    slot.word.exchange_seq_cst(word);
  }
  // edge: entry-listed (acquire)
  return entry.listing.load_seq_cst() == Listing::listed;
}

/// Empties the slot. Returns the entry if the caller must end it: it was dropped, and this was its
/// last lease.
[[nodiscard]] inline LeasedEntry* vacate(Slot& slot) {
  // edge: lease-ended (acq_rel)
  const std::uintptr_t word = slot.word.exchange_acq_rel(0);
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
    // edge: lease-shared (acq_rel)
    if (slot.share_count.fetch_sub_acq_rel(1) != 1) return nullptr;
  }
  return vacate(slot);
}

/// Dropper: from now on readers ignore the entry. Sets its holder_count to `count`.
inline void mark_leaving(LeasedEntry& entry, std::uint16_t shard, std::uint32_t count) {
  entry.holder_count.store_relaxed(count);  // relaxed: no slot is marked yet.
  // seq_cst, and a barrier before the slots are read: see above.
  entry.listing.exchange_seq_cst(leaving_from(shard));
}
/// Dropper, in a scan: whether it has marked this entry.
[[nodiscard]] inline bool is_leaving(const LeasedEntry& entry, std::uint16_t shard) {
  // relaxed: this value is set and replaced only under the caller's mutex.
  return entry.listing.load_relaxed() == leaving_from(shard);
}
/// Dropper, under its mutex: the entry will end. Without it the next dropper would take the entry
/// for one of its own and mark passing readers: it would end twice.
inline void mark_dropped(LeasedEntry& entry) {
  // relaxed: a reader that sees the previous value ignores the entry, too.
  entry.listing.store_relaxed(Listing::dropped);
}
/// Dropper: readers may use the entry again.
inline void list_again(LeasedEntry& entry) {
  // edge: entry-listed (release)
  entry.listing.store_release(Listing::listed);
}
/// Dropper: releases its part of holder_count. Returns whether it must end the entry.
[[nodiscard]] inline bool leave_to_holders(LeasedEntry& entry) {
  // edge: entry-released (acq_rel)
  return entry.holder_count.fetch_sub_acq_rel(1) == 1;
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
  /// Aligned to kApartBytes.
  Slot* slots = nullptr;
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
  void add(Chunk& chunk) {
    // relaxed: the exchange decides.
    Chunk* head = head_.load_relaxed();
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
        // edge: lease-ended (acquire)
        const std::uintptr_t word = slot.word.load_seq_cst();
        if (word != 0) visit(slot, word);
      }
    }
  }

 private:
  const Barriers barriers_;
  Atomic<Chunk*> head_{nullptr};
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
      : barriers_(registry.barriers()), place_(index), registry_(registry) {
    grow();
  }
  Reader& operator=(Reader&&) = delete;

  /// The reader of the calling thread, which lives as long as the process.
  [[nodiscard]] static Reader& mine() { return this_one_ != nullptr ? *this_one_ : attach(); }
  /// The registry that droppers scan.
  [[nodiscard]] static Registry& registry();

  [[nodiscard]] Barriers barriers() const { return barriers_; }
  /// Unique among readers.
  [[nodiscard]] ReaderPlace place() const { return place_; }
  /// An empty slot, most likely the last one used. Allocates only if half of them are occupied.
  [[nodiscard]] Slot& take() {
    Slot& slot = *last_;
    // edge: lease-ended (acquire)
    if (slot.word.load_acquire() == 0) [[likely]]
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
  const Barriers barriers_;
  const ReaderPlace place_;
  Registry& registry_;
  std::uint32_t chunk_count_ = 0;
  std::uint32_t slot_count_ = 0;
  /// Where search() continues.
  std::uint32_t chunk_index_ = 0;
  std::uint32_t slot_index_ = 0;
  /// Each as long as all before it together.
  std::array<Chunk*, kChunkMax> chunks_{};
};

}  // namespace headrace::cache::detail
