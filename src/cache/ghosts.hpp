// SPDX-License-Identifier: Apache-2.0
// Ghosts: which regions were given up not long ago. It may take one for another now and then, and
// forget one a little early or late: advice, in 4 bytes each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace headrace::cache::detail {

/// Fingerprints of addresses: 32 bits of a hash. The fingerprints are divided among buckets in
/// ascending order, and each bucket has its newest first; 0 is none. Up to 128 there is one bucket,
/// and the order is exact; beyond that each has 32, which is two lines, and remembers the last 32
/// of its own: about the last of all, because the hash spreads them evenly.
///
/// Threading: confined.
class Ghosts {
 public:
  /// Remembers `address` as the newest of about `count_max`. Without memory it remembers nothing.
  void add(std::uintptr_t address, std::uint32_t count_max) noexcept;
  /// Forgets `address`. Returns whether it was remembered.
  [[nodiscard]] bool take(std::uintptr_t address);

 private:
  using Bucket = std::span<std::uint32_t>;

  [[nodiscard]] static std::uint32_t fingerprint(std::uintptr_t address);
  [[nodiscard]] Bucket bucket(std::uint32_t fingerprint);
  void remember(std::uint32_t fingerprint);
  void resize(std::uint32_t count_max);

  std::vector<std::uint32_t> slots_;
  std::uint32_t bucket_slot_count_ = 0;
};

}  // namespace headrace::cache::detail
