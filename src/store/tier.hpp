// SPDX-License-Identifier: Apache-2.0
// Tier: slots of one length in memory or in a file, which of them are free, and which block goes
// first. Not for: blocks and their transfers (state.hpp).
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
#include "headrace/platform/fork.hpp"
#include "headrace/platform/shared_file.hpp"
#include "headrace/pmem/mapping.hpp"
#include "headrace/store/store.hpp"
#include "layout.hpp"

namespace headrace::store::detail {

struct Flight;

/// A file that is locked and mapped.
///
/// Ownership: the lock ends with it, and with the process.
struct TierFile {
  TierFile(platform::SharedFile open_file, pmem::Mapping mapped, const Head& checked)
      : lock(std::move(open_file)), mapping(std::move(mapped)), head(checked) {}

  [[nodiscard]] std::byte* header(SlotNumber slot) const {
    return mapping.bytes().data() + kHeadBytes + std::size_t{slot - 1} * kSlotHeaderBytes;
  }
  [[nodiscard]] bool is_broken() const { return mapping.fault() != pmem::Fault::none; }

  platform::SharedFile lock;
  pmem::Mapping mapping;
  const Head head;
  Atomic<std::uint32_t> forked{0};
  platform::ForkGuard fork_guard{lock.descriptor(), forked, 1};
};

/// What the keeper makes durable: a block that a put, or a move, has copied into a slot.
struct Publication {
  Block* block = nullptr;
  SlotNumber slot = 0;
  std::shared_ptr<Flight> flight;  ///< Null: it is a move.
  std::uint32_t index = 0;         ///< In the batch.
  std::uint8_t from = 0;           ///< Of a move.
  bool published = false;
};

/// A put that waits for room.
struct WaitingPut {
  Block* block = nullptr;
  std::span<const std::byte> source;
  std::shared_ptr<Flight> flight;
  std::uint32_t index = 0;
};

/// Invariant: slot_count = free + given_up + being settled + lost + filling + slots of blocks.
/// A slot that has a block and is not in `order` has been proposed and is being emptied.
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
  /// True if what is copied into a slot has to leave the caches of the processor by itself.
  [[nodiscard]] bool copies_durably() const {
    return file != nullptr && file->mapping.granularity() == pmem::Granularity::line;
  }
  [[nodiscard]] bool is_broken() const { return file != nullptr && file->is_broken(); }

  /// The block of a slot may be evicted from now on.
  void add(SlotNumber slot, Block& block);
  /// Takes the slot out of the order. `evicted`: it was proposed.
  void remove(SlotNumber slot);
  /// The slot to be given up next, or 0; it is out of the order then.
  [[nodiscard]] SlotNumber propose();
  void put_back(SlotNumber slot);
  /// Begins to load what remove() needs: of a batch, first the entries of all, then what lies
  /// beside them in the order. In line as those of Index.
  [[gnu::always_inline]] void prefetch_entry(SlotNumber slot) const {
    if (slot != 0) __builtin_prefetch(&pool_[slot]);
  }
  [[gnu::always_inline]] void prefetch_beside(SlotNumber slot) const {
    if (slot == 0) return;
    prefetch_entry(pool_[slot].older);
    prefetch_entry(pool_[slot].newer);
  }
  void touch(SlotNumber slot) { order_.touch(pool_[slot], {}); }
  /// Of a slot that held no block, or one in memory.
  void free_slot(SlotNumber slot) { free.push_back(slot); }

  const std::optional<NodeId> node;
  std::unique_ptr<TierFile> file;  ///< Null: memory.
  std::uint32_t slot_count = 0;
  std::vector<Block*> owner;  ///< By slot.
  std::vector<SlotNumber> free;
  /// Of a file: their headers have lost their check, not yet durably.
  std::vector<SlotNumber> given_up;
  std::vector<Publication> fresh;
  std::deque<WaitingPut> waiting;
  std::size_t settling = 0;  ///< Slots that the keeper is about to free.
  std::size_t leaving = 0;   ///< Demotions in flight from here.
  std::size_t filling = 0;   ///< Slots that puts and moves write to.
  /// Eviction begins when fewer are free. More than 1 where a slot is not free at once.
  std::size_t low_water = 1;
  TierStatistics statistics;

 private:
  explicit Tier(const TierOptions& options) : node(options.node), order_(options.eviction, pool_) {}
  void start(std::byte* first, std::size_t stride_bytes, std::size_t count);

  std::byte* first_ = nullptr;
  std::size_t stride_bytes_ = 0;
  std::span<std::byte> pages_;  ///< Of memory.
  std::vector<std::uint8_t> in_order_;
  cache::detail::Pool pool_;
  cache::detail::Order order_;
};

}  // namespace headrace::store::detail
