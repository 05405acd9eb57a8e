// SPDX-License-Identifier: Apache-2.0
// Room: the memory accounting of a cache on one node, without the memory. Victims are chosen by the
// library's eviction policy. Not for: dirty or pinned copies.
#pragma once

#include <cstdint>
#include <memory>

namespace headrace::sim {

/// Threading: confined.
class Room {
 public:
  /// Uses the cache's default eviction policy (CacheOptions::eviction).
  explicit Room(double capacity_bytes);
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  ~Room();

  /// Reserves room for a copy of [address, address + bytes), which is held until release().
  ///
  /// Returns: its number, or 0 if evicting all unheld copies would not make enough room.
  [[nodiscard]] std::uint32_t take(std::uint64_t address, double bytes);
  /// The copy is no longer held; it stays until evicted.
  void release(std::uint32_t number);

  [[nodiscard]] double used_bytes() const;
  [[nodiscard]] std::uint64_t eviction_count() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace headrace::sim
