// SPDX-License-Identifier: Apache-2.0
// Hints of an access about future reads, and their effect on eviction. Order without hints:
// capacity_test.cpp and eviction_test.cpp.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "headrace/cache/cache.hpp"
#include "headrace/platform/memory.hpp"
#include "support/cache_stage.hpp"

namespace headrace::cache {
namespace {

using test::CacheStage;
using test::StagedMover;

constexpr std::size_t kRegionCount = 64;

class Hints : public ::testing::TestWithParam<Eviction> {
 protected:
  [[nodiscard]] CacheStage stage_of(std::size_t entry_count) const {
    CacheOptions options;
    options.capacity_per_node = Bytes(entry_count * page_bytes_);
    options.eviction = GetParam();
    return CacheStage(StagedMover::Mode::at_once, std::move(options));
  }
  [[nodiscard]] std::span<const std::byte> page(std::size_t index) const {
    return std::span(source_).subspan(index * page_bytes_, page_bytes_);
  }
  static void access(CacheStage& stage, std::span<const std::byte> region, Hint hint = {}) {
    static_cast<void>(stage.cache->access(region, hint));
  }
  static bool is_there(CacheStage& stage, std::span<const std::byte> region) {
    const std::uint64_t before = stage.statistics().weak_hits;
    static_cast<void>(stage.cache->access_weak(region));
    return stage.statistics().weak_hits != before;
  }
  const std::size_t page_bytes_ = platform::page_bytes();
  const std::vector<std::byte> source_ = test::numbered_bytes(kRegionCount * page_bytes_);
};

TEST_P(Hints, WhatIsReadOnceGoesBeforeWhatCameEarlier) {
  CacheStage stage = stage_of(4);
  for (std::size_t i = 0; i < 3; ++i) access(stage, page(i));
  for (std::size_t i = 10; i < 40; ++i) access(stage, page(i), Hint::once());
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(is_there(stage, page(i))) << i;
  EXPECT_EQ(stage.statistics().evictions, 29U);
}

TEST_P(Hints, AHitThatSaysOnceGivesItsEntryUpEarly) {
  CacheStage stage = stage_of(3);
  for (std::size_t i = 0; i < 3; ++i) access(stage, page(i));
  for (std::size_t i = 0; i < 3; ++i) access(stage, page(i));
  access(stage, page(0), Hint::once());
  access(stage, page(3));
  EXPECT_FALSE(is_there(stage, page(0)));
  EXPECT_TRUE(is_there(stage, page(1)));
  EXPECT_TRUE(is_there(stage, page(2)));
}

TEST_P(Hints, WhatIsFoundAgainAfterItWasToBeReadOnceIsAsAnyOther) {
  CacheStage stage = stage_of(3);
  access(stage, page(0), Hint::once());
  access(stage, page(0));
  access(stage, page(1), Hint::once());
  access(stage, page(2), Hint::once());
  access(stage, page(3), Hint::once());
  EXPECT_TRUE(is_there(stage, page(0)));
  EXPECT_FALSE(is_there(stage, page(1)));
}

TEST_P(Hints, WhatIsPromisedStaysUntilItsTimeAndNoLonger) {
  CacheStage stage = stage_of(4);
  access(stage, page(0), Hint::after(20));
  for (std::size_t i = 1; i <= 19; ++i) access(stage, page(i));
  EXPECT_TRUE(stage.cache->access_weak(page(0), Hint::after(1)).cached());
  for (std::size_t i = 20; i <= 60; ++i) access(stage, page(i));
  EXPECT_FALSE(is_there(stage, page(0)));
}

TEST_P(Hints, OfWhatIsPromisedTheLastGoesFirst) {
  CacheStage stage = stage_of(3);
  access(stage, page(0), Hint::after(30));
  access(stage, page(1), Hint::after(50));
  access(stage, page(2), Hint::after(40));
  access(stage, page(3));
  EXPECT_TRUE(is_there(stage, page(0)));
  EXPECT_FALSE(is_there(stage, page(1)));
  EXPECT_TRUE(is_there(stage, page(2)));
  // Page 3 has no hint, so it is evicted before the others.
  access(stage, page(4), Hint::after(35));
  EXPECT_FALSE(is_there(stage, page(3)));
  EXPECT_TRUE(is_there(stage, page(2)));
}

TEST_P(Hints, AnAccessThatWouldBeNeededLastIsRefused) {
  CacheStage stage = stage_of(2);
  access(stage, page(0), Hint::after(10));
  access(stage, page(1), Hint::after(11));
  access(stage, page(2), Hint::after(30));
  EXPECT_EQ(stage.statistics().refused, 1U);
  EXPECT_EQ(stage.statistics().evictions, 0U);
  EXPECT_TRUE(is_there(stage, page(0)));
  EXPECT_TRUE(is_there(stage, page(1)));
  EXPECT_EQ(stage.cache->access(page(2)).cached(), true) << "who promises nothing is let in";
}

TEST_P(Hints, AHitMayPromiseAnotherTime) {
  CacheStage stage = stage_of(2);
  access(stage, page(0), Hint::after(20));
  access(stage, page(1), Hint::after(30));
  access(stage, page(0), Hint::after(40));
  access(stage, page(2), Hint::after(10));
  EXPECT_FALSE(is_there(stage, page(0)));
  EXPECT_TRUE(is_there(stage, page(1)));
}

TEST_P(Hints, ALoopThatIsLargerThanTheCacheHitsOnlyIfItSaysWhenItComesBack) {
  const auto hits_of = [&](Hint hint) {
    CacheStage stage = stage_of(24);
    for (int round = 0; round < 10; ++round) {
      for (std::size_t i = 0; i < 32; ++i) access(stage, page(i), hint);
    }
    return stage.statistics().hits;
  };
  const std::uint64_t told = hits_of(Hint::after(31));
  RecordProperty("hits_told", static_cast<int>(told));
  // 24 of 32 can be hits in each round but the first: 216.
  EXPECT_GE(told, 200U);
  if (GetParam() != Eviction::s3_fifo) {
    EXPECT_EQ(hits_of({}), 0U);
  }
}

TEST_P(Hints, AScanThatSaysOnceLeavesTheWorkingSet) {
  const auto hits_of = [&](Hint hint) {
    CacheStage stage = stage_of(16);
    for (std::size_t step = 0; step < 400; ++step) {
      access(stage, page(step % 12));
      access(stage, page(16 + step % 48), hint);
    }
    return stage.statistics().hits;
  };
  const std::uint64_t told = hits_of(Hint::once());
  EXPECT_GE(told, 380U);
  EXPECT_GE(told, hits_of({}));
}

TEST_P(Hints, SayingThatItComesOftenKeepsAnEntryLonger) {
  // Number of other insertions before it is evicted.
  const auto endurance = [&](Hint hint) {
    CacheStage stage = stage_of(8);
    access(stage, page(0), hint);
    std::size_t i = 1;
    while (i < kRegionCount) {
      access(stage, page(i++));
      // pin() instead of a weak access, which would count as a use.
      if (stage.cache->pin(page(0)) == 0) break;
      stage.cache->unpin(page(0));
    }
    return i;
  };
  const std::size_t unknown = endurance({});
  const std::size_t many = endurance(Hint::many());
  EXPECT_GT(many, unknown);
}

TEST_P(Hints, SurviveEverythingThatDropsEntries) {
  CacheStage stage = stage_of(8);
  const Hint hints[] = {{},
                        Hint::once(),
                        Hint::many(),
                        Hint::after(0),
                        Hint::after(7),
                        Hint::after(~std::uint32_t{0})};
  for (std::size_t i = 0; i < 400; ++i) {
    access(stage, page(i * 7 % kRegionCount), hints[i % 6]);
    if (i % 50 == 10) stage.cache->flush();
    if (i % 50 == 30) stage.cache->invalidate(page(i * 7 % kRegionCount));
  }
  stage.cache->clear();
  EXPECT_EQ(stage.memory->live_count(), 0U);
  EXPECT_GT(stage.statistics().evictions, 0U);
}

INSTANTIATE_TEST_SUITE_P(EveryEviction, Hints, ::testing::Values(Eviction::lru, Eviction::s3_fifo),
                         [](const auto& instance) { return std::string(name(instance.param)); });

TEST(Pins, APinnedEntryIsNeitherEvictedNorFlushedUntilItIsUnpinned) {
  const std::size_t page_bytes = platform::page_bytes();
  const auto source = test::numbered_bytes(8 * page_bytes);
  CacheOptions options;
  options.capacity_per_node = Bytes(2 * page_bytes);
  CacheStage stage(StagedMover::Mode::at_once, std::move(options));
  const auto page = [&](std::size_t i) {
    return std::span(source).subspan(i * page_bytes, page_bytes);
  };
  EXPECT_EQ(stage.cache->pin(page(0)), 0U);
  static_cast<void>(stage.cache->access(page(0)));
  EXPECT_EQ(stage.cache->pin(page(0).subspan(10, 20)), 1U);
  for (std::size_t i = 1; i < 8; ++i) static_cast<void>(stage.cache->access(page(i)));
  EXPECT_TRUE(stage.cache->access_weak(page(0)).cached());
  EXPECT_EQ(stage.cache->flush(), 1U);
  EXPECT_TRUE(stage.cache->access_weak(page(0)).cached());
  EXPECT_EQ(stage.cache->unpin(page(0)), 1U);
  EXPECT_EQ(stage.cache->flush(), 1U);
  EXPECT_EQ(stage.memory->live_count(), 0U);
}

TEST(Pins, WhereAllIsPinnedAnAccessIsRefused) {
  const std::size_t page_bytes = platform::page_bytes();
  const auto source = test::numbered_bytes(2 * page_bytes);
  CacheOptions options;
  options.capacity_per_node = Bytes(page_bytes);
  CacheStage stage(StagedMover::Mode::at_once, std::move(options));
  static_cast<void>(stage.cache->access(std::span(source).first(page_bytes)));
  stage.cache->pin(std::span(source).first(page_bytes));
  EXPECT_FALSE(stage.cache->access(std::span(source).last(page_bytes)).cached());
  EXPECT_EQ(stage.statistics().refused, 1U);
}

TEST(Pins, InvalidateAndClearDropPinnedEntriesAndANewOneIsNotPinned) {
  const auto source = test::numbered_bytes(10000);
  CacheStage stage;
  static_cast<void>(stage.cache->access(source));
  stage.cache->pin(source);
  EXPECT_EQ(stage.cache->invalidate(source), 1U);
  static_cast<void>(stage.cache->access(source));
  EXPECT_EQ(stage.cache->flush(), 1U);
  static_cast<void>(stage.cache->access(source));
  stage.cache->pin(source);
  EXPECT_EQ(stage.cache->clear(), 1U);
  EXPECT_EQ(stage.memory->live_count(), 0U);
}

TEST(Pins, ALongerEntryInThePlaceOfAPinnedOneIsPinned) {
  const auto source = test::numbered_bytes(10000);
  CacheStage stage;
  static_cast<void>(stage.cache->access(std::span(source).first(100)));
  stage.cache->pin(std::span(source).first(100));
  static_cast<void>(stage.cache->access(source));
  EXPECT_EQ(stage.cache->flush(), 0U);
  EXPECT_EQ(stage.cache->unpin(source), 1U);
  EXPECT_EQ(stage.cache->flush(), 1U);
}

}  // namespace
}  // namespace headrace::cache
