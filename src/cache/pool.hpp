// SPDX-License-Identifier: Apache-2.0
// Pool: owns the entries of a cache, by number. Entries never move and are not freed before the
// pool is, so that readers may look at an entry that has ended.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <new>
#include <utility>

#include "entry.hpp"
#include "headrace/base/check.hpp"
#include "headrace/base/mutex.hpp"

namespace headrace::cache::detail {

/// The position of the highest bit; `value` must not be 0. (std::bit_width tests for 0.)
[[nodiscard]] inline std::uint32_t log2_floor(std::uint64_t value) {
  return 63U ^ static_cast<std::uint32_t>(__builtin_clzll(value));
}

/// Entries are numbered from 1; 0 is none. Segment k has 2^k times as many entries as the first.
///
/// Threading: shared.
class Pool {
 public:
  /// References to entries have one bit more than numbers.
  static constexpr std::uint32_t kCountMax = (std::uint32_t{1} << 31U) - 1;

  Pool() = default;
  Pool& operator=(Pool&&) = delete;
  ~Pool() {
    for (std::uint32_t k = 0; k < kSegmentMax; ++k) {
      // Entries have nothing to destroy.
      ::operator delete(segment(k), std::align_val_t{alignof(EntryState)});
    }
  }

  [[nodiscard]] EntryState& operator[](std::uint32_t number) const {
    const std::uint32_t from_first = number + kFirstCount - 1;
    // edge: segment-added (acquire)
    const std::uintptr_t base = bases_[log2_floor(from_first)].load_acquire();
    return *reinterpret_cast<EntryState*>(base + from_first * sizeof(EntryState));
  }
  /// The number of an entry; 0 for an address outside the pool.
  [[nodiscard]] std::uint32_t number_of(const EntryState* entry) const {
    for (std::uint32_t k = 0; k < kSegmentMax; ++k) {
      const EntryState* const first = segment(k);
      if (first == nullptr) return 0;
      const std::uint32_t count = kFirstCount << k;
      if (!std::less<>()(entry, first) && std::less<>()(entry, first + count)) {
        return static_cast<std::uint32_t>(entry - first) + count - kFirstCount + 1;
      }
    }
    return 0;
  }

  /// Absent entries reserved for one thread.
  struct Stash {
    std::uint32_t first = 0;  ///< Chained through `older`.
  };

  struct Taken {
    std::uint32_t number = 0;
    EntryState* entry = nullptr;
  };
  /// An absent entry from `stash`, which is refilled when empty: one miss in kStashCount takes the
  /// mutex.
  ///
  /// Fails: throws std::bad_alloc.
  [[nodiscard]] Taken take_entry(Stash& stash) {
    if (stash.first == 0) fill(stash);
    const std::uint32_t number = stash.first;
    EntryState& entry = (*this)[number];
    stash.first = entry.older;
    return {number, &entry};
  }
  void give_back(std::uint32_t number) noexcept {
    const Lock lock(mutex_);
    (*this)[number].older = free_;
    free_ = number;
  }

 private:
  static constexpr std::uint32_t kFirstBits = 6;
  static constexpr std::uint32_t kFirstCount = std::uint32_t{1} << kFirstBits;
  static constexpr std::uint32_t kSegmentMax = 31 - kFirstBits;
  static constexpr std::uint32_t kStashCount = 16;
  static_assert(kFirstCount % kStashCount == 0, "what is made at once lies in one segment");

  void fill(Stash& stash) {
    const Lock lock(mutex_);
    if (free_ == 0) {
      stash.first = make();
      return;
    }
    stash.first = free_;
    EntryState* last = &(*this)[free_];
    for (std::uint32_t count = 1; count < kStashCount && last->older != 0; ++count) {
      last = &(*this)[last->older];
    }
    free_ = std::exchange(last->older, 0);
  }
  /// Makes a chain of kStashCount entries, in a new segment if the last one is full. Returns the
  /// first.
  [[nodiscard]] std::uint32_t make() HEADRACE_REQUIRES(mutex_) {
    if (kCountMax - made_count_ < kStashCount) throw std::bad_alloc();
    const std::uint32_t from_first = made_count_ + kFirstCount;
    const auto segment = log2_floor(from_first) - kFirstBits;
    if (from_first == kFirstCount << segment) {
      void* const memory = ::operator new(std::size_t{from_first} * sizeof(EntryState),
                                          std::align_val_t{alignof(EntryState)});
      // edge: segment-added (release)
      bases_[segment + kFirstBits].store_release(reinterpret_cast<std::uintptr_t>(memory) -
                                                 offset_of(segment));
    }
    // Chained in ascending order, the best order to touch new memory; and only now, so that memory
    // is touched when needed.
    const std::uint32_t first = made_count_ + 1;
    EntryState* const entries = &(*this)[first];
    for (std::uint32_t i = 0; i < kStashCount; ++i) {
      ::new (entries + i) EntryState;
      entries[i].older = i + 1 < kStashCount ? first + i + 1 : 0;
    }
    made_count_ += kStashCount;
    return first;
  }

  /// Bytes of the numbers before those of a segment.
  [[nodiscard]] static std::size_t offset_of(std::uint32_t k) {
    return (std::size_t{kFirstCount} << k) * sizeof(EntryState);
  }
  /// The first entry of a segment, or null.
  [[nodiscard]] EntryState* segment(std::uint32_t k) const {
    // edge: segment-added (acquire)
    const std::uintptr_t base = bases_[k + kFirstBits].load_acquire();
    return base == 0 ? nullptr : reinterpret_cast<EntryState*>(base + offset_of(k));
  }

  /// From kFirstBits on: addresses of the segments, less offset_of(), so that lookups need not
  /// subtract it. 0: none.
  std::array<Atomic<std::uintptr_t>, kSegmentMax + kFirstBits> bases_{};
  Mutex mutex_;
  std::uint32_t free_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::uint32_t made_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

/// Entries outside their shard, chained through `older`.
///
/// Threading: confined.
struct EntryList {
  std::uint32_t first = 0;
  std::uint32_t count = 0;

  [[gnu::always_inline]] void push(const Pool& pool, std::uint32_t number) {
    push(number, pool[number]);
  }
  void push(std::uint32_t number, EntryState& entry) {
    entry.older = first;
    first = number;
    ++count;
  }
  [[nodiscard]] std::uint32_t pop(const Pool& pool) {
    const std::uint32_t number = first;
    if (number != 0) {
      first = pool[number].older;
      --count;
    }
    return number;
  }
};

}  // namespace headrace::cache::detail
