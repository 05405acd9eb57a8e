// SPDX-License-Identifier: Apache-2.0
// Tier: slots of one length in memory or in a file, the free ones, and the eviction order. Not
// here: blocks and their transfers (state.hpp).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../cache/order.hpp"
#include "block.hpp"
#include "headrace/base/atomic.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/platform/fork.hpp"
#include "headrace/platform/shared_file.hpp"
#include "headrace/pmem/mapping.hpp"
#include "headrace/store/store.hpp"
#include "protocol.hpp"

namespace headrace::store::detail {

struct TransferBatch;

/// A locked and mapped file.
///
/// Ownership: the lock is released on destruction and at the end of the process.
struct TierFile {
  TierFile(platform::SharedFile open_file, pmem::Mapping mapped, const Head& checked)
      : lock(std::move(open_file)), mapping(std::move(mapped)), slots{mapping.bytes(), checked} {}

  platform::SharedFile lock;
  pmem::Mapping mapping;
  const Slots slots;
  /// Held while headers are stored, and while a removal invalidates some. Never taken by a thread
  /// with the store's mutex, as these stores may wait for the disk.
  Mutex headers;
  std::uint64_t dropped = 0;  ///< By adopt().
  Atomic<std::uint32_t> forked{0};
  platform::ForkGuard fork_guard{lock.descriptor(), forked, 1};
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
  bool published = false;
  bool outdated = false;  ///< Put: the key has the block of a later one.
};

/// A put waiting for a slot.
struct WaitingPut {
  Block* block = nullptr;
  std::span<const std::byte> source;
  std::shared_ptr<TransferBatch> batch;
  std::uint32_t index = 0;
};

/// Invariant: slot_count = free + retired without a block + being freed + lost + filling + slots
/// of blocks.
/// A slot with a block that is not in the order has been proposed for eviction.
///
/// Threading: confined: under the mutex of the store.
class Tier {
 public:
  /// Fails: as Store::make.
  [[nodiscard]] static Result<std::unique_ptr<Tier>> make(const TierOptions& options,
                                                          std::size_t block_bytes, bool is_last);
  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;
  ~Tier();

  [[nodiscard]] std::span<std::byte> data(SlotNumber slot, std::size_t byte_count) const {
    return {first_ + std::size_t{slot - 1} * stride_bytes_, byte_count};
  }
  /// True if copies into a slot must be flushed from the processor's caches.
  [[nodiscard]] bool copies_durably() const {
    return file != nullptr && file->mapping.granularity() == pmem::Granularity::line;
  }
  [[nodiscard]] pmem::Fault fault() const {
    return file != nullptr ? file->mapping.fault() : pmem::Fault::none;
  }
  [[nodiscard]] bool is_broken() const { return fault() != pmem::Fault::none; }

  /// Sets the block of a slot and makes it evictable.
  void add(SlotNumber slot, Block& block);
  /// Clears the slot's block and removes the slot from the order.
  void remove(SlotNumber slot);
  /// Takes the next slot to evict out of the order; 0 if there is none.
  [[nodiscard]] SlotNumber propose();
  void put_back(SlotNumber slot);
  /// Prefetch for remove(): for a batch, first all entries, then their neighbours in the order.
  /// Always inlined, as in Index.
  [[gnu::always_inline]] void prefetch_entry(SlotNumber slot) const {
    if (slot != 0) __builtin_prefetch(&pool_[slot]);
  }
  [[gnu::always_inline]] void prefetch_beside(SlotNumber slot) const {
    if (slot == 0) return;
    prefetch_entry(pool_[slot].older);
    prefetch_entry(pool_[slot].newer);
  }
  void touch(SlotNumber slot) { order_.touch(pool_[slot], {}); }
  /// For a slot in memory, or one that held no block.
  void free_slot(SlotNumber slot) { free.push_back(slot); }

  const std::optional<NodeId> node;
  std::unique_ptr<TierFile> file;  ///< Null: memory.
  std::uint32_t slot_count = 0;
  std::vector<Block*> owner;  ///< By slot.
  std::vector<SlotNumber> free;
  std::vector<Retired> retired;  ///< File only.
  std::vector<Publication> fresh;
  std::deque<WaitingPut> waiting;
  std::size_t being_freed = 0;  ///< Slots that the flusher is about to free.
  std::size_t leaving = 0;      ///< Demotions in flight from this tier.
  std::size_t filling = 0;      ///< Slots being written by puts and moves.
  /// Eviction starts when fewer slots are free. More than 1 if freeing a slot takes time.
  std::size_t low_water = 1;
  TierStatistics statistics;

 private:
  explicit Tier(const TierOptions& options) : node(options.node), order_(options.eviction, pool_) {}
  void start(std::byte* first, std::size_t stride_bytes, std::size_t count);

  std::byte* first_ = nullptr;
  std::size_t stride_bytes_ = 0;
  std::span<std::byte> pages_;  ///< Memory only.
  std::vector<std::uint8_t> in_order_;
  cache::detail::Pool pool_;
  cache::detail::Order order_;
};

}  // namespace headrace::store::detail
