// SPDX-License-Identifier: Apache-2.0
// Yardsticks for eviction: how often a cache of so many regions would hit that keeps exactly what
// was asked for last, and one that knows the future. Computed, not run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace headrace::bench {

/// Hits of an exact LRU.
[[nodiscard]] std::uint64_t lru_hits(std::span<const std::uint32_t> accesses, std::size_t capacity);

/// Hits of Belady's MIN, which gives up what is asked for again last. No cache that takes in what
/// it missed has more.
[[nodiscard]] std::uint64_t min_hits(std::span<const std::uint32_t> accesses, std::size_t capacity);

}  // namespace headrace::bench
