// SPDX-License-Identifier: Apache-2.0
// Ghosts: remembers recently evicted regions, in 4 bytes each. Approximate: it may confuse two
// regions, or forget one a little early or late.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

namespace headrace::cache::detail {

/// Stores fingerprints of addresses: 32 bits of a hash; 0 is none. Each bucket holds a contiguous
/// range of fingerprints, newest first, in a line, and remembers its last 16: about the last of
/// all, because the hash spreads them evenly.
///
/// Threading: confined.
class Ghosts {
 public:
  /// Remembers `address` as the newest of about `count_max`. Without memory the capacity stays as
  /// it is.
  void add(std::uintptr_t address, std::uint32_t count_max) noexcept {
    // With slack, so that the amortized cost of an addition is constant.
    const std::size_t count = buckets_.size() * kSlotCount;
    if (count < count_max || count / 4 > count_max) [[unlikely]]
      resize(count_max + count_max / 4);
    if (!buckets_.empty()) remember(fingerprint(address));
  }
  /// Forgets `address`. Returns whether it was remembered.
  [[nodiscard]] bool take(std::uintptr_t address) {
    if (buckets_.empty()) return false;
    const std::uint32_t wanted = fingerprint(address);
    Bucket& slots = bucket(wanted);
    Quad found{};
    for (std::size_t i = 0; i < kSlotCount; i += 4) found |= load(slots, i) == wanted;
    const auto halves = std::bit_cast<std::array<std::uint64_t, 2>>(found);
    if ((halves[0] | halves[1]) == 0) [[likely]]
      return false;
    auto place = std::find(slots.begin(), slots.end(), wanted);
    std::copy(place + 1, slots.end(), place);
    slots.back() = 0;
    return true;
  }

 private:
  static constexpr std::size_t kSlotCount = 16;
  struct alignas(64) Bucket : std::array<std::uint32_t, kSlotCount> {};
  using Quad [[gnu::vector_size(16)]] = std::uint32_t;  ///< Compared or moved at once.

  [[nodiscard]] static Quad load(const Bucket& slots, std::size_t first) {
    Quad quad;
    std::memcpy(&quad, &slots[first], sizeof(quad));
    return quad;
  }
  [[nodiscard]] static std::uint32_t fingerprint(std::uintptr_t address) {
    // Fibonacci hashing, as in Index: spreads neighbours far apart.
    return static_cast<std::uint32_t>((address * 0x9e3779b97f4a7c15U) >> 32U) | 1U;
  }
  [[nodiscard]] Bucket& bucket(std::uint32_t fingerprint) {
    return buckets_[(fingerprint * buckets_.size()) >> 32U];
  }
  void remember(std::uint32_t fingerprint) {
    Bucket& slots = bucket(fingerprint);
    const std::array quads{load(slots, 0), load(slots, 4), load(slots, 8), load(slots, 11)};
    std::memcpy(&slots[1], quads.data(), 3 * sizeof(Quad));
    std::memcpy(&slots[12], &quads[3], sizeof(Quad));
    slots[0] = fingerprint;
  }
  [[gnu::noinline]] void resize(std::size_t count_max) noexcept {
    try {
      const auto old = std::exchange(buckets_, std::vector<Bucket>(count_max / kSlotCount + 1));
      // The order is kept only within an old bucket: good enough, and rare.
      for (const Bucket& slots : old) {
        for (auto slot = slots.rbegin(); slot != slots.rend(); ++slot) {
          if (*slot != 0) remember(*slot);
        }
      }
    } catch (const std::bad_alloc&) {
      // Keep the old capacity.
    }
  }

  std::vector<Bucket> buckets_;
};

}  // namespace headrace::cache::detail
