// SPDX-License-Identifier: Apache-2.0
// Ghosts: remembers recently evicted regions, in 4 bytes each. Approximate: it may confuse two
// regions, or forget one a little early or late.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace headrace::cache::detail {

/// Stores fingerprints of addresses: 32 bits of a hash; 0 is none. Each bucket holds a contiguous
/// range of fingerprints, newest first. Up to 128 there is one bucket, and the order is exact.
/// Beyond that each bucket has 32 slots, which is two lines, and remembers its last 32: about the
/// last of all, because the hash spreads them evenly.
///
/// Threading: confined.
class Ghosts {
 public:
  /// Remembers `address` as the newest of about `count_max`. Without memory the capacity stays as
  /// it is.
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
