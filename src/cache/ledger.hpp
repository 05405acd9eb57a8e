// SPDX-License-Identifier: Apache-2.0
// Ledger: what a cache counts, and how much room each node has. Entries share it with their cache,
// because they and their moves may outlive it. It knows nothing of what lies where: that is Shelf.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "headrace/base/atomic.hpp"
#include "headrace/base/units.hpp"
#include "headrace/cache/cache.hpp"

namespace headrace::cache::detail {

/// A total. Relaxed throughout: a count publishes nothing but itself.
///
/// Threading: shared.
class Counter {
 public:
  void add(std::uint64_t count) { value_.fetch_add_relaxed(count); }
  [[nodiscard]] std::uint64_t value() const { return value_.load_relaxed(); }

 private:
  Atomic<std::uint64_t> value_{0};
};

/// The room for copies on one node: bytes_used = sum of the reservations not yet released, and
/// never more than the capacity. Memory is reserved before it is allocated and released after it
/// has been freed.
///
/// Threading: shared.
class Room {
 public:
  explicit Room(std::uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}
  [[nodiscard]] std::uint64_t capacity_bytes() const { return capacity_bytes_; }
  [[nodiscard]] std::uint64_t bytes_used() const {
    // relaxed: a count; the memory behind it is handed over by the operating system.
    return bytes_used_.load_relaxed();
  }
  [[nodiscard]] bool try_reserve(std::uint64_t byte_count) {
    // relaxed: as above, here and below.
    std::uint64_t used = bytes_used_.load_relaxed();
    do {
      // used <= capacity, so the difference does not wrap around.
      if (byte_count > capacity_bytes_ - used) return false;
    } while (!bytes_used_.compare_exchange_relaxed(used, used + byte_count));
    return true;
  }
  void release(std::uint64_t byte_count) {
    bytes_used_.fetch_sub_relaxed(byte_count);  // relaxed: as above.
  }

 private:
  const std::uint64_t capacity_bytes_;
  Atomic<std::uint64_t> bytes_used_{0};
};

/// Threading: shared; `rooms` and `memory` are fixed before the cache is used.
struct Ledger {
  Counter hits;
  Counter duplicates;
  Counter misses;
  Counter not_placed;
  Counter refused;
  Counter moves_failed;
  Counter policy_errors;
  Counter evictions;
  Counter bytes_moved;
  std::map<NodeId, Room> rooms;
  std::shared_ptr<MemorySource> memory;
};

}  // namespace headrace::cache::detail
