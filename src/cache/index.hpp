// SPDX-License-Identifier: Apache-2.0
// Index: finds the entries of a shard by the bytes that they cover. Readers take no lock.
//
// An entry of n bytes is of class k if 2^(k-1) < n <= 2^k. It overlaps at most two aligned blocks
// of 2^k bytes and is filed under each. So a lookup of a byte searches, for each class in use, the
// block of that byte: one bucket if all regions have about the same length.
//
// Buckets are chains through the entries. A reference is twice the number of an entry, plus 1 if
// the chain continues at the entry's link for its last block. A reader whose entry is removed
// concurrently may continue in another chain and miss its target; then it repeats the lookup under
// the lock.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <vector>

#include "entry.hpp"
#include "headrace/base/atomic.hpp"
#include "pool.hpp"

namespace headrace::cache::detail {

/// Threading: shared for find(); the rest under the shard's mutex.
class Index {
 public:
  /// Of one of 2^`shard_bits` shards: of as many stripes of addresses in turn, one is here.
  Index(const Pool& pool, std::uint32_t shard_bits) : pool_(pool), shard_bits_(shard_bits) {
    grow();
  }

  static constexpr std::uint32_t kStripeBits = 22;
  static constexpr int kStepMaxUnlocked = 64;
  static constexpr int kStepMaxLocked = std::numeric_limits<int>::max();

  /// A recent count for threads without the lock.
  [[nodiscard]] std::uint32_t count() const { return count_.load_relaxed(); }
  /// False once there is an entry. A line that lookups read anyway.
  [[nodiscard]] bool is_empty() const { return classes_.load_relaxed() == 0; }

  /// Result of a lookup. replaceable: nothing was found, but entries with the same address may
  /// exist.
  enum class Found : std::uint8_t { nothing, replaceable, entry };
  /// Calls `accept(entry)` for entries that contain `region`, the shortest class first, until it
  /// returns true. Abandons a chain after `step_max` entries: without the lock it may be cyclic.
  template <typename Accept>
  [[gnu::always_inline]] Found find(const Region& region, int step_max, Accept accept) const {
    const Table& table = *table_.load_acquire();  // edge: table-grown (acquire)
    const std::uint32_t own = class_of(region.byte_count);
    // relaxed: a lookup that misses a class just coming into use is repeated under the lock.
    const std::uint64_t all = classes_.load_relaxed();
    bool is_replaceable = (all & ((std::uint64_t{1} << own) - 1)) != 0;
    for (std::uint64_t classes = all >> own << own; classes != 0; classes &= classes - 1) {
      const auto k = static_cast<std::uint32_t>(std::countr_zero(classes));
      const std::uint64_t byte_count_max = std::uint64_t{1} << k;
      // edge: entry-listed (acquire)
      std::uint32_t reference = table.bucket(k, region.address).load_acquire();
      for (int step = 0; reference != 0 && step < step_max; ++step) {
        EntryState& entry = pool_[reference >> 1U];
        const Region whole = entry.region();
        // Longer entries belong to a later class and only share the bucket.
        if (whole.byte_count <= byte_count_max && whole.contains(region) && accept(entry)) {
          return Found::entry;
        }
        if (whole.address == region.address) is_replaceable = true;
        reference = entry.next[reference & 1U].load_acquire();  // edge: entry-listed (acquire)
      }
    }
    return is_replaceable ? Found::replaceable : Found::nothing;
  }

  /// Calls `visit(number)` for every entry of at most `class_max` that overlaps `region`, perhaps
  /// twice; `visit` may remove this entry and no other.
  template <typename Visit>
  void for_each_overlapping(const Region& region, std::uint32_t class_max, Visit visit) const {
    for (std::uint64_t classes = classes_.load_relaxed(); classes != 0; classes &= classes - 1) {
      const auto k = static_cast<std::uint32_t>(std::countr_zero(classes));
      if (k > class_max) return;
      const std::uint64_t last = region.last() >> k;
      for (std::uint64_t block = region.address >> k;; ++block) {
        for_each_in_block(k, block << k, region, visit);
        if (block == last) break;
      }
    }
  }
  /// Number of blocks that for_each_overlapping() would search.
  [[nodiscard]] std::uint64_t block_count(const Region& region) const;

  /// Call before add(), which then cannot fail.
  void reserve_one() {
    // At least two buckets per entry keep chains at one link.
    if (2 * std::uint64_t{count()} >= std::uint64_t{1} << bits_) grow();
  }
  void add(std::uint32_t number, EntryState& entry);
  void remove(std::uint32_t number, const EntryState& entry);

  /// Class of a length that is not 0.
  [[nodiscard]] static std::uint32_t class_of(std::uint64_t byte_count) {
    return log2_floor(2 * byte_count - 1);
  }

 private:
  static constexpr std::uint64_t kInStripe = (std::uint64_t{1} << kStripeBits) - 1;
  static constexpr std::uint32_t kFirstBits = 4;
  /// Buckets of a cache line.
  static constexpr std::uint64_t kInLine = std::uint64_t{1} << kFirstBits;
  /// Each table is four times as large as the one before: rehashing waits for memory at each step,
  /// and so does a miss that passes other entries, of which there are then fewer.
  static constexpr std::uint32_t kGrowthBits = 2;

  /// A power of two of buckets, stored right behind it: one load less.
  class alignas(64) Table {
   public:
    struct Delete {
      void operator()(const Table* table) const {
        ::operator delete(const_cast<Table*>(table), std::align_val_t{alignof(Table)});
      }
    };
    using Owner = std::unique_ptr<const Table, Delete>;

    [[nodiscard]] static Owner make(std::uint32_t bits, std::uint32_t shard_bits) {
      const std::size_t count = std::size_t{1} << bits;
      void* const memory = ::operator new(sizeof(Table) + count * sizeof(Atomic<std::uint32_t>),
                                          std::align_val_t{alignof(Table)});
      const auto* const table = ::new (memory) Table(64 - bits, shard_bits);
      std::uninitialized_value_construct_n(table->heads(), count);
      return Owner(table);
    }
    /// Of the block of class `k` that contains `address`.
    [[nodiscard]] Atomic<std::uint32_t>& bucket(std::uint32_t k, std::uint64_t address) const {
      // The stripes of this shard are numbered without gaps: its bits are left out, by exclusive
      // or, with fewer instructions. Consecutive blocks share a line: a thread that passes through
      // an array seldom writes what others read. Fibonacci hashing spreads consecutive lines
      // evenly.
      const std::uint64_t gap = (address ^ address >> shard_bits_) & ~kInStripe;
      const std::uint64_t block = (address ^ gap) >> k;
      return heads()[block / kInLine * 0x9e3779b97f4a7c15U >> shift_ ^ block % kInLine];
    }
    [[nodiscard]] Atomic<std::uint32_t>* heads() const {
      return reinterpret_cast<Atomic<std::uint32_t>*>(const_cast<Table*>(this) + 1);
    }

   private:
    Table(std::uint32_t shift, std::uint32_t shard_bits) : shift_(shift), shard_bits_(shard_bits) {}
    const std::uint32_t shift_;
    const std::uint32_t shard_bits_;
  };

  template <typename Visit>
  void for_each_in_block(std::uint32_t k, std::uint64_t address, const Region& region,
                         Visit& visit) const {
    // relaxed, here and below: under the lock.
    std::uint32_t reference = table_.load_relaxed()->bucket(k, address).load_relaxed();
    while (reference != 0) {
      const std::uint32_t number = reference >> 1U;
      const EntryState& entry = pool_[number];
      reference = entry.next[reference & 1U].load_relaxed();
      if (class_of(entry.region().byte_count) == k && entry.region().overlaps(region)) {
        visit(number);
      }
    }
  }
  static inline void link(const Table& table, std::uint32_t number, EntryState& entry,
                          const Region& region, std::uint32_t k);
  inline void unlink(std::uint32_t k, std::uint64_t address, std::uint32_t reference);
  void grow();

  const Pool& pool_;
  const std::uint32_t shard_bits_;
  Atomic<const Table*> table_{nullptr};
  /// Bit k: there may be entries of class k.
  Atomic<std::uint64_t> classes_{0};
  /// From here on only for insertions and drops, in lines that hits do not read.
  alignas(64) Atomic<std::uint32_t> count_{0};
  std::uint32_t bits_ = kFirstBits - kGrowthBits;
  std::array<std::uint32_t, 64> class_counts_{};
  /// The last one is in use. Readers may still use the others, which together are a third of its
  /// size.
  std::vector<Table::Owner> tables_;
};

// Inline, to save calls on a miss.

inline void Index::link(const Table& table, std::uint32_t number, EntryState& entry,
                        const Region& region, std::uint32_t k) {
  const bool is_in_two = region.address >> k != region.last() >> k;
  for (std::uint32_t which = 0; which <= (is_in_two ? 1U : 0U); ++which) {
    Atomic<std::uint32_t>& head = table.bucket(k, which == 0 ? region.address : region.last());
    // Release: a reader may arrive here through a stale link.
    // edge: entry-listed (release)
    entry.next[which].store_release(head.load_relaxed());  // relaxed: under the lock.
    head.store_release(number << 1U | which);              // edge: entry-listed (release)
  }
}

inline void Index::add(std::uint32_t number, EntryState& entry) {
  const Region region = entry.region();
  const std::uint32_t k = class_of(region.byte_count);
  link(*tables_.back(), number, entry, region, k);
  count_.store_relaxed(count() + 1);  // relaxed: under the lock, and advice without.
  if (class_counts_[k]++ == 0) {
    // relaxed: written under the lock, read as advice.
    classes_.store_relaxed(classes_.load_relaxed() | std::uint64_t{1} << k);
  }
}

}  // namespace headrace::cache::detail
