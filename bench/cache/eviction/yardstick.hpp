// SPDX-License-Identifier: Apache-2.0
// Yardsticks for eviction: hits of an exact LRU cache, and of an optimal one that knows the future.
// Computed, not run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace headrace::bench {

/// Hits of an exact LRU.
[[nodiscard]] std::uint64_t lru_hits(std::span<const std::uint32_t> accesses, std::size_t capacity);

/// Hits of Belady's MIN, which evicts the region whose next access is furthest away. No cache that
/// inserts every miss has more.
[[nodiscard]] std::uint64_t min_hits(std::span<const std::uint32_t> accesses, std::size_t capacity);

}  // namespace headrace::bench
