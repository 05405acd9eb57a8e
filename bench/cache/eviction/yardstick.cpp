// SPDX-License-Identifier: Apache-2.0
#include "yardstick.hpp"

#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

namespace headrace::bench {
namespace {

/// Hits of a cache that evicts the region with the lowest `key`, taken at its last access.
template <typename Key>
std::uint64_t hits(std::span<const std::uint32_t> accesses, std::size_t capacity, Key key) {
  std::unordered_map<std::uint32_t, std::int64_t> keys;
  std::set<std::pair<std::int64_t, std::uint32_t>> order;
  std::uint64_t hit_count = 0;
  for (std::size_t i = 0; i < accesses.size(); ++i) {
    const std::uint32_t region = accesses[i];
    if (const auto found = keys.find(region); found != keys.end()) {
      ++hit_count;
      order.erase({found->second, region});
    } else if (keys.size() == capacity) {
      keys.erase(order.begin()->second);
      order.erase(order.begin());
    }
    keys[region] = key(i);
    order.emplace(key(i), region);
  }
  return hit_count;
}

}  // namespace

std::uint64_t lru_hits(std::span<const std::uint32_t> accesses, std::size_t capacity) {
  return hits(accesses, capacity, [](std::size_t i) { return static_cast<std::int64_t>(i); });
}

std::uint64_t min_hits(std::span<const std::uint32_t> accesses, std::size_t capacity) {
  std::vector<std::int64_t> next(accesses.size());
  std::unordered_map<std::uint32_t, std::size_t> later;
  for (std::size_t i = accesses.size(); i-- > 0;) {
    const auto [place, is_last] = later.try_emplace(accesses[i], accesses.size());
    next[i] = static_cast<std::int64_t>(place->second);
    place->second = i;
  }
  return hits(accesses, capacity, [&](std::size_t i) { return -next[i]; });
}

}  // namespace headrace::bench
