// SPDX-License-Identifier: Apache-2.0
#include "parking_lot.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace headrace::engine::detail {
namespace {

constexpr std::size_t kBucketCount = 64;
using Buckets = std::array<ParkingBucket, kBucketCount>;

}  // namespace

ParkingBucket& parking_bucket(const void* address) noexcept {
  // Never destroyed: a worker may still wake sleepers while static objects are being destroyed.
  // Made with the first engine; without the memory for it the process may as well end.
  static Buckets& buckets = *new Buckets;  // NOLINT(bugprone-unhandled-exception-at-new)
  // Fibonacci hashing: jobs lie at equal distances, whose low bits are all alike.
  const auto mixed = reinterpret_cast<std::uintptr_t>(address) * 0x9e3779b97f4a7c15U;
  return buckets[mixed >> 58U];
}

void unpark_all(const void* address) noexcept {
  ParkingBucket& bucket = parking_bucket(address);
  {
    const Lock lock(bucket.mutex);
  }
  bucket.condition.notify_all();
}

}  // namespace headrace::engine::detail
