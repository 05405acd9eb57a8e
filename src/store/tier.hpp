// SPDX-License-Identifier: Apache-2.0
// Tier: slots of one length in memory or in a file, the free ones, and the eviction order. Not
// here: blocks and their transfers (state.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "../cache/order.hpp"
#include "block.hpp"
#include "disk.hpp"
#include "headrace/base/atomic.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/platform/process.hpp"
#include "headrace/platform/shared_file.hpp"
#include "headrace/pmem/mapping.hpp"
#include "headrace/store/store.hpp"
#include "protocol.hpp"
#include "shared.hpp"

namespace headrace::store::detail {

struct TransferBatch;
struct Io;

/// A locked file: persistent memory, which is mapped, or on a disk.
///
/// Ownership: the lock is released on destruction and at the end of the process.
struct TierFile {
  TierFile(platform::SharedFile open_file, platform::SharedFile opened_again,
           std::optional<pmem::Mapping> mapped, std::unique_ptr<Disk> on_disk, const Head& head)
      : lock(std::move(open_file)),
        process_lock(std::move(opened_again)),
        mapping(std::move(mapped)),
        disk(std::move(on_disk)),
        slots(disk != nullptr ? disk->slots() : Slots{.bytes = mapping->bytes(), .head = head}) {}
  TierFile& operator=(TierFile&&) = delete;
  ~TierFile() {
    // A request that is late may still change the file, which must not be opened before.
    if (disk != nullptr && !disk->has_late()) lock.unlock(kOwnerLock);
  }

  /// Calls `use` with a medium of the headers.
  template <typename Use>
  auto with_medium(const Use& use) {
    if (disk != nullptr) return use(disk->medium());
    pmem::Medium medium = mapping->medium();
    return use(medium);
  }

  platform::SharedFile lock;          ///< kOwnerLock. Requests of the disk use it.
  platform::SharedFile process_lock;  ///< kProcessLock.
  std::optional<pmem::Mapping> mapping;
  std::unique_ptr<Disk> disk;
  const Slots slots;
  /// Held while headers are stored, and while a removal invalidates some. Never taken by a thread
  /// with the store's mutex, as these stores may wait for the disk.
  Mutex headers;
  std::uint64_t dropped = 0;  ///< By adopt().
  std::uint64_t stamp = 0;    ///< The last one. Of the thread that flushes the tier.
  Atomic<std::uint32_t> forked{0};
  platform::ForkGuard fork_guard{lock.descriptor(), forked, 1};
  platform::ForkGuard process_guard{process_lock.descriptor(), forked, 1};
};

/// A slot whose header the flusher must invalidate before it is free.
struct Retired {
  SlotNumber slot = 0;
  Block* block = nullptr;  ///< If not null, its copy in the slot is leaving.
};

/// The header of a slot, of any tier.
struct HeaderPlace {
  TierFile* file = nullptr;
  SlotNumber slot = 0;
};

/// A block copied into a slot by a put or move, which the flusher must make durable, or must commit
/// because it replaces a block with headers.
struct Publication {
  Block* block = nullptr;
  SlotNumber slot = 0;
  std::shared_ptr<TransferBatch> batch;  ///< Null for a move.
  std::uint32_t index = 0;               ///< Put: index in the batch.
  std::uint8_t from = 0;                 ///< Move: tier.
  bool is_move = false;
  bool published = false;
  bool failed = false;    ///< What it replaces may return.
  bool outdated = false;  ///< Put: the key has the block of a later one.
};

/// A put waiting for a slot.
struct WaitingPut {
  Block* block = nullptr;
  std::span<const std::byte> source;
  std::shared_ptr<TransferBatch> batch;
  std::uint32_t index = 0;
};

/// A block of a tier in memory that is to be written to a file.
struct Unwritten {
  Block* block = nullptr;
  std::shared_ptr<TransferBatch> batch;  ///< Has the end of the write; may be null.
  std::uint32_t index = 0;
};

/// Invariant: slot_count = free + leased + retired without a block + being freed + lost + filling +
/// slots of blocks. A slot with a block that is not in the order has been proposed for eviction.
///
/// Threading: confined: under the mutex of the store.
class Tier {
 public:
  /// Fails: as Store::make.
  [[nodiscard]] static Result<std::unique_ptr<Tier>> make(const TierOptions& options,
                                                          std::size_t block_bytes, bool is_last,
                                                          SharedCells* shared = nullptr);
  /// Of a slot in memory.
  [[nodiscard]] static std::size_t stride_of(std::size_t block_bytes) {
    constexpr std::size_t kLineBytes = 64;
    return (block_bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
  }
  Tier& operator=(Tier&&) = delete;
  ~Tier();

  /// Of a slot on a disk: the buffer that fills it.
  [[nodiscard]] std::span<std::byte> data(SlotNumber slot, std::size_t byte_count) const {
    return {disk() != nullptr ? filling_from[slot] : pool_[slot].copy, byte_count};
  }
  [[nodiscard]] Disk* disk() const { return file != nullptr ? file->disk.get() : nullptr; }
  [[nodiscard]] bool is_mapped() const { return file != nullptr && file->mapping.has_value(); }
  /// True if copies into a slot must be flushed from the processor's caches.
  [[nodiscard]] bool copies_durably() const {
    return is_mapped() && file->mapping->granularity() == pmem::Granularity::line;
  }
  [[nodiscard]] pmem::Fault fault() const {
    return is_mapped() ? file->mapping->fault() : pmem::Fault::none;
  }
  /// Whether its disk answers no request.
  [[nodiscard]] bool hangs() const {
    return disk() != nullptr && ((late != 0 && late == in_flight.size()) || disk()->hangs());
  }
  /// Whether it accepts no block now. A disk that answers again is used again.
  [[nodiscard]] bool is_broken() const {
    return fault() != pmem::Fault::none || hangs() || (failed_to_flush && free_count == 0);
  }
  /// Whether the flusher of its disk shall wait for no other blocks: enough are written, or all, or
  /// slots run out.
  [[nodiscard]] bool is_round_due() const {
    constexpr std::size_t kEnough = 64;
    return (!fresh.empty() && fresh.size() >= std::min(filling, kEnough)) ||
           (!retired.empty() && (!waiting.empty() || free_count < low_water));
  }
  /// Ends the use of the buffer that fills a slot on a disk.
  void give_buffer(SlotNumber slot) {
    if (disk() != nullptr) disk()->give_buffer(std::exchange(filling_from[slot], nullptr));
  }

  /// Sets the block of a slot and makes it evictable.
  void add(SlotNumber slot, Block& block);
  /// Clears the slot's block and removes the slot from the order.
  void remove(SlotNumber slot);
  /// Takes the next slot to evict out of the order; 0 if there is none.
  [[nodiscard]] SlotNumber propose();
  void put_back(SlotNumber slot);
  /// In memory: exchanges the bytes of two slots.
  void exchange(SlotNumber a, SlotNumber b) { std::swap(pool_[a].copy, pool_[b].copy); }
  /// Prefetch for exchange(). Always inlined, as in Index.
  [[gnu::always_inline]] void prefetch_entry(SlotNumber slot) const {
    if (slot != 0) __builtin_prefetch(&pool_[slot]);
  }
  /// Records a use. Returns the bytes of a slot in memory.
  std::byte* touch(SlotNumber slot) {
    cache::detail::EntryState& entry = pool_[slot];
    order_.touch(entry, {});
    return entry.copy;
  }
  /// For a slot in memory, or one without a valid header.
  void free_slot(SlotNumber slot) {
    if (bad.contains(slot)) [[unlikely]] {
      ++statistics.blocks_lost;
    } else if (is_leased(slot)) {
      leased.push_back(slot);
    } else {
      add_free(slot);
    }
  }
  // Of shared memory; elsewhere they do nothing.
  /// Clients find the slot's block from now on.
  void show(SlotNumber slot, const Block& block);
  /// They do not find it any more.
  void hide(SlotNumber slot) {
    if (shared != nullptr && slot != 0) shared->hide(cell_of(slot));
  }
  /// Whether a client may read a slot in place.
  [[nodiscard]] bool is_leased(SlotNumber slot) const {
    return shared != nullptr && shared->is_leased(cell_of(slot));
  }
  /// Frees the slots that clients have read in place meanwhile.
  void take_back() {
    for (const SlotNumber slot : std::exchange(leased, {})) free_slot(slot);
  }
  /// Records what clients have read in place as uses.
  void take_reads() {
    if (shared == nullptr) return;
    statistics.hits += shared->take_reads([&](Cell cell) {
      const SlotNumber slot = slot_of_cell[cell];
      if (owner[slot] != nullptr) touch(slot);
    });
  }
  /// Takes a free slot, of which there must be one: the last one that this thread freed, or else
  /// any.
  [[nodiscard]] SlotNumber take_free() {
    std::uint32_t list = list_of_thread();
    if (free_[list].slots.empty()) {
      list = static_cast<std::uint32_t>(std::countr_zero(lists_with_free));
    }
    std::vector<SlotNumber>& slots = free_[list].slots;
    const SlotNumber slot = slots.back();
    slots.pop_back();
    if (slots.empty()) lists_with_free &= ~(std::uint32_t{1} << list);
    --free_count;
    return slot;
  }
  void add_free(SlotNumber slot) {
    const std::uint32_t mine = list_of_thread();
    free_[mine].slots.push_back(slot);
    lists_with_free |= std::uint32_t{1} << mine;
    ++free_count;
  }
  /// Prefetch for `count` times take_free(). Always inlined, as in Index.
  [[gnu::always_inline]] void prefetch_free(std::size_t count) const {
    const std::span<const SlotNumber> free = free_[list_of_thread()].slots;
    for (const SlotNumber slot : free.last(std::min(count, free.size()))) prefetch_entry(slot);
  }

  const std::optional<NodeId> node;
  std::unique_ptr<TierFile> file;  ///< Null: memory.
  std::uint32_t slot_count = 0;
  std::vector<Block*> owner;     ///< By slot.
  std::vector<Retired> retired;  ///< File only.
  std::vector<Publication> fresh;
  std::deque<WaitingPut> waiting;
  std::deque<Unwritten> unwritten;  ///< Each one is a use of its block.
  std::vector<Unwritten> writing;
  std::size_t being_freed = 0;           ///< Slots that the flusher is about to free.
  SharedCells* shared = nullptr;         ///< Its memory, if it is shared.
  std::vector<SlotNumber> leased;        ///< Free, but for a client that reads them in place.
  std::vector<SlotNumber> slot_of_cell;  ///< Of the last block shown in a cell.
  std::size_t leaving = 0;               ///< Demotions in flight from this tier.
  // What each put writes, in one line.
  alignas(64) std::uint32_t free_count = 0;
  std::uint32_t lists_with_free = 0;  ///< A set.
  std::size_t filling = 0;            ///< Slots being written by puts and moves.
  TierStatistics statistics;
  // On a disk only.
  std::vector<std::byte*> filling_from;  ///< Buffers, by slot.
  std::deque<Io*> reading;               ///< Reads that wait for a buffer.
  std::deque<Io*> in_flight;             ///< The oldest first.
  std::size_t late = 0;                  ///< Of these, beyond the deadline.
  std::set<SlotNumber> bad;              ///< Slots that the disk cannot read: not used again.
  bool failed_to_flush = false;          ///< The last round of the flusher failed.
  bool file_failed = false;              ///< The last write failed, and not because of its place.
  /// Rounds that failed. What was written before or during one may be lost, though the next
  /// succeeds.
  std::uint32_t failed_flushes = 0;
  Condition flushes;  ///< There is work for the thread that flushes the tier.
  /// Eviction starts when fewer slots are free. More than 1 if freeing a slot takes time.
  std::size_t low_water = 1;

 private:
  /// Slots that one thread freed: their bytes are in its processor's caches.
  struct alignas(64) FreeList {
    std::vector<SlotNumber> slots;
  };
  explicit Tier(const TierOptions& options) : node(options.node) {}
  void start(std::byte* first, std::size_t stride_bytes, std::size_t count);
  [[nodiscard]] Cell cell_of(SlotNumber slot) const { return shared->cell_of(pool_[slot].copy); }
  [[nodiscard]] static std::uint32_t list_of_thread() { return platform::thread_number() % 32; }

  std::array<FreeList, 32> free_;
  std::span<std::byte> pages_;  ///< Memory only.
  std::vector<std::uint8_t> in_order_;
  cache::detail::Pool pool_;
  cache::detail::Order order_{cache::Eviction::s3_fifo, pool_};
};

}  // namespace headrace::store::detail
