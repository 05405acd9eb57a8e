// SPDX-License-Identifier: Apache-2.0
// A node with several shards: entries at the boundary of two stripes of addresses, and copies that
// are freed together.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "headrace/cache/cache.hpp"
#include "support/cache_stage.hpp"

namespace headrace::cache {
namespace {

using test::CacheStage;
using test::StagedMover;

constexpr std::size_t kStripe = std::size_t{4} << 20U;
constexpr std::size_t kPage = 4096;

class Stripes : public ::testing::Test {
 protected:
  /// `count` pages, from `first` pages behind a boundary of stripes.
  [[nodiscard]] std::span<std::byte> pages(std::ptrdiff_t first, std::size_t count) {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data()) + kStripe;
    std::byte* const boundary = bytes_.data() + kStripe + (kStripe - address % kStripe) % kStripe;
    return {boundary + first * std::ptrdiff_t{kPage}, count * kPage};
  }
  std::vector<std::byte> bytes_ = test::numbered_bytes(3 * kStripe);
  CacheStage stage_;
};

TEST_F(Stripes, AnEntryOverABoundaryIsFoundByItsParts) {
  static_cast<void>(stage_.cache->access(pages(-2, 4)));
  for (const std::ptrdiff_t first : {-2, -1, 0, 1}) {
    const Entry part = stage_.cache->access(pages(first, 1));
    EXPECT_TRUE(part.cached());
    EXPECT_TRUE(std::ranges::equal(part.data(), pages(first, 1)));
    EXPECT_TRUE(stage_.cache->access_weak(pages(first, 1)).cached());
  }
  EXPECT_EQ(stage_.statistics().misses, 1U);
  EXPECT_EQ(stage_.statistics().hits, 4U);
}

TEST_F(Stripes, ALongerEntryOverABoundaryReplacesAShorterOneAndTakesItsPin) {
  static_cast<void>(stage_.cache->access(pages(-1, 1)));
  EXPECT_EQ(stage_.cache->pin(pages(-1, 1)), 1U);
  static_cast<void>(stage_.cache->access(pages(-1, 2)));
  EXPECT_EQ(stage_.statistics().bytes_cached, 2 * kPage);
  EXPECT_EQ(stage_.cache->flush(), 0U) << "it is pinned";
  EXPECT_EQ(stage_.cache->unpin(pages(0, 1)), 1U);
  EXPECT_EQ(stage_.cache->flush(), 1U);
}

TEST_F(Stripes, AChangeAndInvalidateReachEveryShard) {
  const auto fill = [&] {
    for (const auto& [first, count] : {std::pair{-1, 2}, {-2, 1}, {-1, 1}, {0, 1}, {1, 1}}) {
      static_cast<void>(stage_.cache->access(pages(first, static_cast<std::size_t>(count))));
    }
  };
  fill();
  EXPECT_EQ(stage_.cache->invalidate(pages(-1, 2)), 1U) << "parts were found in the longer entry";
  fill();
  EXPECT_EQ(stage_.cache->invalidate(bytes_), 3U);
  static_cast<void>(stage_.cache->access(pages(-1, 1)));
  static_cast<void>(stage_.cache->access(pages(0, 1)));
  stage_.cache->change(pages(-1, 2)).value().data().front() = std::byte{99};
  EXPECT_EQ(stage_.cache->access(pages(-1, 1)).data().front(), std::byte{99});
  EXPECT_EQ(stage_.cache->clear(), 1U) << "all that overlapped the change was dropped";
  EXPECT_EQ(pages(-1, 1).front(), std::byte{99});
}

TEST_F(Stripes, AFullNodeEvictsFromAllOfItsShards) {
  CacheOptions options;
  options.capacity_per_node = Bytes(std::uint64_t{128} << 20U);
  CacheStage stage(StagedMover::Mode::at_once, std::move(options));
  const std::vector<std::byte> bytes((std::size_t{256} << 20U) + kStripe);
  // From a boundary on, so that no short region reaches over one.
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  const auto source =
      std::span(bytes).subspan((kStripe - address % kStripe) % kStripe, bytes.size() - kStripe);
  const std::size_t count = source.size() / kStripe;
  std::optional<Entry> held = stage.cache->access(source.first(kPage));
  for (std::size_t i = 1; i < count; ++i) {
    static_cast<void>(stage.cache->access(source.subspan(i * kStripe, kStripe / 2)));
  }
  EXPECT_EQ(stage.statistics().refused, 0U);
  const std::uint64_t evictions = stage.statistics().evictions;
  const auto long_one = source.subspan(kPage, (std::size_t{128} << 20U) - kPage);
  EXPECT_TRUE(stage.cache->access(long_one).cached());
  EXPECT_GT(stage.statistics().evictions, evictions + 30);
  EXPECT_FALSE(stage.cache->access(long_one.subspan(kPage)).data().empty());
  EXPECT_FALSE(stage.cache->access(source.last(std::size_t{128} << 20U)).cached())
      << "not while an entry is held";
  EXPECT_TRUE(stage.cache->access(long_one).cached()) << "a refusal drops nothing";
}

TEST_F(Stripes, CopiesThatAreInvalidatedAreFreedTogether) {
  std::vector<Entry> held;
  for (std::ptrdiff_t i = 0; i < 300; ++i) {
    Entry entry = stage_.cache->access(pages(i, 1));
    if (i % 10 == 0) held.push_back(std::move(entry));
  }
  for (std::ptrdiff_t i = 0; i < 300; ++i) EXPECT_EQ(stage_.cache->invalidate(pages(i, 1)), 1U);
  EXPECT_GT(stage_.memory->live_count(), 30U) << "one barrier for several";
  EXPECT_LT(stage_.memory->live_count(), 256U) << "but not for all";
  EXPECT_EQ(stage_.statistics().bytes_cached, 30 * kPage) << "the figures free them";
  for (std::size_t i = 0; i < held.size(); ++i) {
    EXPECT_TRUE(std::ranges::equal(held[i].data(), pages(static_cast<std::ptrdiff_t>(10 * i), 1)));
  }
  held.clear();
  EXPECT_EQ(stage_.memory->live_count(), 0U);
}

}  // namespace
}  // namespace headrace::cache
