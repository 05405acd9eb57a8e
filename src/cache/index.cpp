// SPDX-License-Identifier: Apache-2.0
#include "index.hpp"

#include "headrace/base/check.hpp"

namespace headrace::cache::detail {

std::uint64_t Index::block_count(const Region& region) const {
  std::uint64_t count = 0;
  for (std::uint64_t classes = classes_.load_relaxed(); classes != 0; classes &= classes - 1) {
    const auto k = static_cast<std::uint32_t>(std::countr_zero(classes));  // relaxed: locked.
    count += (region.last() >> k) - (region.address >> k) + 1;
  }
  return count;
}

inline void Index::unlink(std::uint32_t k, std::uint64_t address, std::uint32_t reference) {
  Atomic<std::uint32_t>* place = &tables_.back()->bucket(k, address);
  for (;;) {
    const std::uint32_t here = place->load_relaxed();  // relaxed: under the lock.
    HEADRACE_CHECK(here != 0, "an entry is in the chains of its blocks");
    Atomic<std::uint32_t>& next = pool_[here >> 1U].next[here & 1U];
    if (here == reference) {
      // edge: entry-listed (release)
      place->store_release(next.load_relaxed());  // relaxed: under the lock.
      return;
    }
    place = &next;
  }
}

void Index::remove(std::uint32_t number, const EntryState& entry) {
  const Region region = entry.region();
  const std::uint32_t k = class_of(region.byte_count);
  unlink(k, region.address, number << 1U);
  if (region.address >> k != region.last() >> k) unlink(k, region.last(), number << 1U | 1U);
  count_.store_relaxed(count() - 1);  // relaxed: as add().
  if (--class_counts_[k] == 0) {
    // relaxed: written under the lock, read as advice.
    classes_.store_relaxed(classes_.load_relaxed() & ~(std::uint64_t{1} << k));
  }
}

void Index::grow() {
  Table::Owner table = Table::make(bits_ + kGrowthBits, shard_bits_);
  tables_.reserve(tables_.size() + 1);
  if (!tables_.empty()) {
    // Chain by chain; a reader in the old table may continue in the new chains and miss.
    const Table& old = *tables_.back();
    const std::size_t bucket_count = std::size_t{1} << bits_;
    std::vector<std::uint32_t> numbers;
    numbers.reserve(count());
    for (std::size_t i = 0; i < bucket_count; ++i) {
      // relaxed, here and below: under the lock.
      for (std::uint32_t at = old.heads()[i].load_relaxed(); at != 0;) {
        if ((at & 1U) == 0) numbers.push_back(at >> 1U);
        at = pool_[at >> 1U].next[at & 1U].load_relaxed();
      }
    }
    for (const std::uint32_t number : numbers) {
      EntryState& entry = pool_[number];
      link(*table, number, entry, entry.region(), class_of(entry.region().byte_count));
    }
  }
  table_.store_release(table.get());  // edge: table-grown (release)
  tables_.push_back(std::move(table));
  bits_ += kGrowthBits;
}

}  // namespace headrace::cache::detail
