// SPDX-License-Identifier: Apache-2.0
// Room: the memory of a cache on one node, without the memory. What makes room for a copy is chosen
// by the library's own order of eviction. Not for: copies that are changed or pinned.
#pragma once

#include <cstdint>
#include <memory>

namespace headrace::sim {

/// Threading: confined.
class Room {
 public:
  /// In the cache's default order (CacheOptions::eviction).
  explicit Room(double capacity_bytes);
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  ~Room();

  /// Takes room for a copy of [address, address + bytes), which is held from now on.
  ///
  /// Returns: its number, or 0 if what is not held is too little.
  [[nodiscard]] std::uint32_t take(std::uint64_t address, double bytes);
  /// The copy is no longer in use, and stays until it makes room.
  void release(std::uint32_t number);

  [[nodiscard]] double used_bytes() const;
  [[nodiscard]] std::uint64_t eviction_count() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace headrace::sim
