// SPDX-License-Identifier: Apache-2.0
// Block: one version of a key's block, and the slots of its copies. Index: the blocks by key.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/platform/thread.hpp"
#include "headrace/store/store.hpp"
#include "layout.hpp"

namespace headrace::store::detail {

/// Free objects, in lists by the thread that used them last: another thread that took them would
/// fetch their lines from its processor. Not for: many more threads than lists at a time.
///
/// Threading: confined: under the mutex of the store.
template <typename T>
class FreeLists {
 public:
  /// One of the calling thread; `make()` if there is none.
  template <typename Make>
  [[nodiscard]] T& take(const Make& make) {
    const auto mine = static_cast<std::uint8_t>(platform::thread_number() % lists_.size());
    std::vector<T*>& list = lists_[mine].objects;
    if (list.empty()) [[unlikely]]
      add(list, make);
    T& taken = *list.back();
    list.pop_back();
    taken.list = mine;
    return taken;
  }
  /// One of any thread; null if there is none.
  [[nodiscard, gnu::noinline]] T* take_any() {
    for (List& list : lists_) {
      if (list.objects.empty()) continue;
      T* const taken = list.objects.back();
      list.objects.pop_back();
      return taken;
    }
    return nullptr;
  }
  void give_back(T& object) { lists_[object.list].objects.push_back(&object); }
  /// Those of the calling thread. take() returns the last one.
  [[nodiscard]] std::span<T* const> mine() const {
    return lists_[platform::thread_number() % lists_.size()].objects;
  }

 private:
  struct alignas(64) List {
    std::vector<T*> objects;
  };

  template <typename Make>
  [[gnu::noinline]] static void add(std::vector<T*>& list, const Make& make) {
    list.push_back(&make());
  }

  std::array<List, 32> lists_;
};

struct Block;

/// What outlives a block, for the next one in its memory.
struct BlockName {
  std::uint64_t hash = 0;
  Block* next = nullptr;  ///< In its bucket.
  std::string key;
  std::uint8_t list = 0;  ///< Of FreeLists.
};

/// What is zero in a new block.
struct BlockState {
  std::array<SlotNumber, kTiersMax> slots{};
  std::uint64_t sequence = 0;  ///< Of its put, and of its entries in files.
  std::uint32_t byte_count = 0;
  std::uint32_t crc = 0;
  std::uint32_t uses = 0;
  std::uint32_t pins = 0;
  std::uint32_t reads = 0;  ///< From tiers other than the first, since the last promotion.
  SlotNumber move_slot = 0;
  std::uint8_t failed_moves = 0;
  std::uint8_t move_to = 0;
  bool moving = false;  ///< At most one move at a time, to move_slot of move_to.
  bool move_is_published = false;
  bool copies = false;  ///< The move leaves the copy that it is made of.
  bool has_crc = false;
  bool live = false;
  std::uint8_t leaving = 0;  ///< Set of tiers whose copies are about to be dropped, or unreadable.
  bool ending = false;       ///< No header of it is stored any more.
  bool cleared = false;      ///< Its headers are invalid: it may be replaced or removed.

  [[nodiscard]] bool is_in(std::size_t tier) const {
    return slots[tier] != 0 && (leaving >> tier & 1U) == 0;
  }
  /// The first tier with a copy; kTiersMax if there is none.
  [[nodiscard]] std::size_t fastest() const { return is_in(0) ? 0 : next_below(0); }
  /// The next tier below with a copy; kTiersMax if there is none.
  [[nodiscard]] std::size_t next_below(std::size_t tier) const {
    ++tier;
    while (tier < kTiersMax && !is_in(tier)) ++tier;
    return tier;
  }
};

/// Lifetime: made by a put, which fills a slot; live, in the index, from the completion of the put
/// until it is replaced, removed or dropped; then kept until no transfer uses it.
///
/// Invariant: uses = gets in flight + moves in flight + copies that the flusher is about to drop +
/// threads that invalidate its headers. A block with uses is not evicted, and its slots are not
/// reused.
///
/// Threading: confined: under the mutex of the store.
struct alignas(64) Block : BlockName, BlockState {};
static_assert(sizeof(Block) == 128, "there may be millions");

/// A hash table of live blocks, and the memory of all blocks.
///
/// Threading: confined: under the mutex of the store.
class Index {
 public:
  Index() : buckets_(64) {}

  [[nodiscard]] static std::uint64_t hash_of(std::string_view key) {
    return std::hash<std::string_view>()(key);
  }
  /// Null if there is none.
  [[nodiscard]] Block* find(std::string_view key) const { return find(key, hash_of(key)); }
  [[nodiscard]] Block* find(std::string_view key, std::uint64_t hash) const {
    Block* block = bucket(hash);
    while (block != nullptr && (block->hash != hash || block->key != key)) block = block->next;
    return block;
  }
  /// Prefetch for find() and make(), so that the cache misses of a batch overlap: first the buckets
  /// of all keys, then their first blocks. Always inlined: GCC 12 treats a function of prefetches
  /// only as free of side effects, and drops calls to it.
  [[gnu::always_inline]] void prefetch_bucket(std::uint64_t hash) const {
    __builtin_prefetch(static_cast<const void*>(&buckets_[hash & (buckets_.size() - 1)]));
  }
  [[gnu::always_inline]] void prefetch_block(std::uint64_t hash) const {
    if (const Block* const block = bucket(hash); block != nullptr) prefetch(*block);
  }
  [[gnu::always_inline]] void prefetch_free(std::size_t count) const {
    if (count == 1) return;  // It is used at once.
    const std::span<Block* const> free = free_.mine();
    for (const Block* const block : free.last(std::min(count, free.size()))) prefetch(*block);
  }
  /// A block with this hash, not necessarily with the same key; null if there is none.
  [[nodiscard]] const Block* guess(std::uint64_t hash) const {
    const Block* block = bucket(hash);
    while (block != nullptr && block->hash != hash) block = block->next;
    return block;
  }
  [[gnu::always_inline]] static void prefetch(const Block& block) {
    const auto* const lines = reinterpret_cast<const std::byte*>(&block);
    __builtin_prefetch(lines);
    __builtin_prefetch(lines + 64);
  }
  /// Returns a new block, which is not live.
  [[nodiscard]] Block& make(std::string_view key, std::uint64_t hash) {
    Block& block = free_.take([this]() -> Block& { return make_or_take(); });
    block.key = key;
    block.hash = hash;
    return block;
  }
  /// The key must not have a block yet.
  void insert(Block& block) {
    if (2 * count_ == buckets_.size()) grow();
    block.next = bucket(block.hash);
    bucket(block.hash) = &block;
    block.live = true;
    ++count_;
  }
  void erase(Block& block) {
    Block** place = &bucket(block.hash);
    while (*place != &block) place = &(*place)->next;
    *place = block.next;
    block.next = nullptr;
    block.live = false;
    --count_;
  }
  /// The block must not be live nor have slots.
  void give_back(Block& block) {
    static_cast<BlockState&>(block) = {};
    free_.give_back(block);
  }
  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] std::vector<Block*> all() const {
    std::vector<Block*> blocks;
    blocks.reserve(count_);
    for (Block* first : buckets_) {
      for (Block* block = first; block != nullptr; block = block->next) blocks.push_back(block);
    }
    return blocks;
  }

 private:
  [[nodiscard]] Block*& bucket(std::uint64_t hash) {
    return buckets_[hash & (buckets_.size() - 1)];
  }
  [[nodiscard]] Block* bucket(std::uint64_t hash) const {
    return buckets_[hash & (buckets_.size() - 1)];
  }
  /// Takes that of another thread once fewer than half of all are live.
  [[nodiscard]] Block& make_or_take() {
    Block* const taken = blocks_.size() > 2 * count_ + 64 ? free_.take_any() : nullptr;
    return taken != nullptr ? *taken : blocks_.emplace_back();
  }
  void grow() {
    std::vector<Block*> before(2 * buckets_.size());
    before.swap(buckets_);
    for (Block* first : before) {
      while (first != nullptr) {
        Block* const block = first;
        first = block->next;
        block->next = bucket(block->hash);
        bucket(block->hash) = block;
      }
    }
  }

  std::deque<Block> blocks_;
  FreeLists<Block> free_;
  std::vector<Block*> buckets_;
  std::size_t count_ = 0;
};

}  // namespace headrace::store::detail
