// SPDX-License-Identifier: Apache-2.0
#include "ghosts.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace headrace::cache::detail {
namespace {

constexpr std::uint32_t kExactMax = 128;
constexpr std::uint32_t kBucketSlotCount = 32;

}  // namespace

std::uint32_t Ghosts::fingerprint(std::uintptr_t address) {
  // Fibonacci hashing, as in Index: spreads neighbours far apart.
  const auto hash = static_cast<std::uint32_t>((address * 0x9e3779b97f4a7c15U) >> 32U);
  return hash != 0 ? hash : 1;
}

Ghosts::Bucket Ghosts::bucket(std::uint32_t fingerprint) {
  const std::uint64_t bucket_count = slots_.size() / bucket_slot_count_;
  const std::uint64_t index = (fingerprint * bucket_count) >> 32U;
  return Bucket(slots_).subspan(index * bucket_slot_count_, bucket_slot_count_);
}

void Ghosts::remember(std::uint32_t fingerprint) {
  const Bucket place = bucket(fingerprint);
  std::copy_backward(place.begin(), place.end() - 1, place.end());
  place.front() = fingerprint;
}

void Ghosts::resize(std::uint32_t count_max) {
  const std::uint32_t bucket_count =
      count_max <= kExactMax ? 1 : (count_max + kBucketSlotCount - 1) / kBucketSlotCount;
  const std::uint32_t slot_count = (count_max + bucket_count - 1) / bucket_count;
  const std::vector<std::uint32_t> old =
      std::exchange(slots_, std::vector<std::uint32_t>(std::size_t{bucket_count} * slot_count));
  bucket_slot_count_ = slot_count;
  // From the back, so that the newest of each bucket is inserted last. The order is kept only
  // within an old bucket: good enough, and rare.
  for (auto place = old.rbegin(); place != old.rend(); ++place) {
    if (*place != 0) remember(*place);
  }
}

void Ghosts::add(std::uintptr_t address, std::uint32_t count_max) noexcept {
  try {
    // With slack, so that the amortized cost of an addition is constant.
    const std::size_t present = slots_.size();
    if (present < count_max || present / 4 > count_max) resize(count_max + count_max / 4);
  } catch (const std::bad_alloc&) {
    // Keep the old capacity.
  }
  if (!slots_.empty()) remember(fingerprint(address));
}

bool Ghosts::take(std::uintptr_t address) {
  if (slots_.empty()) return false;
  const std::uint32_t wanted = fingerprint(address);
  const Bucket place = bucket(wanted);
  const auto found = std::find(place.begin(), place.end(), wanted);
  if (found == place.end()) return false;
  std::copy(found + 1, place.end(), found);
  place.back() = 0;
  return true;
}

}  // namespace headrace::cache::detail
