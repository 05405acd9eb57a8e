// SPDX-License-Identifier: Apache-2.0
// Weak accesses and weak waits: they start nothing and wait for nothing; what they return. Waiting:
// waiting_test.cpp.
#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "headrace/cache/cache.hpp"
#include "support/cache_stage.hpp"
#include "support/watchdog.hpp"

namespace headrace::cache {
namespace {

using test::CacheStage;
using test::StagedMover;

TEST(Weak, AnAccessFindsWhatIsThereAndStartsNothing) {
  const auto source = test::numbered_bytes(10000);
  CacheStage stage;
  const Entry absent = stage.cache->access_weak(source);
  EXPECT_FALSE(absent.cached());
  EXPECT_TRUE(absent.try_wait());
  EXPECT_EQ(absent.data().data(), source.data());
  EXPECT_EQ(stage.mover->accepted_count(), 0U);

  const Entry entry = stage.cache->access(source);
  const Entry part = stage.cache->access_weak(std::span(source).subspan(100, 50));
  EXPECT_TRUE(part.cached());
  EXPECT_EQ(part.data().data(), entry.data().data() + 100);
  EXPECT_EQ(stage.mover->accepted_count(), 1U);

  const CacheStatistics statistics = stage.statistics();
  EXPECT_EQ(statistics.weak_hits, 1U);
  EXPECT_EQ(statistics.weak_misses, 1U);
  EXPECT_EQ(statistics.hits, 0U);
  EXPECT_EQ(statistics.misses, 1U);
}

TEST(Weak, AnAccessFindsAMoveThatRunsAndNoneThatFailed) {
  const auto source = test::numbered_bytes(10000);
  CacheStage stage(StagedMover::Mode::held);
  const Entry entry = stage.cache->access(source);
  const Entry found = stage.cache->access_weak(source);
  EXPECT_FALSE(found.try_wait());
  EXPECT_EQ(stage.mover->release(engine::Cause::device_error), 1U);
  EXPECT_TRUE(found.try_wait());
  EXPECT_FALSE(found.cached());
  static_cast<void>(stage.cache->access_weak(source));
  EXPECT_EQ(stage.statistics().weak_hits, 1U);
  EXPECT_EQ(stage.statistics().weak_misses, 1U);
}

TEST(Weak, AnAccessHoldsWhatItFound) {
  const auto source = test::numbered_bytes(10000);
  CacheStage stage;
  static_cast<void>(stage.cache->access(source));
  std::optional<Entry> found = stage.cache->access_weak(source);
  EXPECT_EQ(stage.cache->flush(), 0U);
  EXPECT_EQ(stage.cache->clear(), 1U);
  EXPECT_TRUE(test::equal(found->data(), source));
  EXPECT_EQ(stage.memory->live_count(), 1U);
  found.reset();
  EXPECT_EQ(stage.memory->live_count(), 0U);
}

TEST(Weak, AnAccessOfNothingAndOneThatIsPlacedNowhereAreAtTheSource) {
  const auto source = test::numbered_bytes(100);
  CacheOptions options;
  options.placement = [](const PlacementContext& context) -> std::optional<NodeId> {
    if (context.source.size() == 50) throw 1;
    return context.source.size() == 40 ? std::optional(NodeId(77)) : std::nullopt;
  };
  CacheStage stage(StagedMover::Mode::at_once, std::move(options));
  for (const std::size_t byte_count : {0U, 40U, 50U, 60U}) {
    const Entry entry = stage.cache->access_weak(std::span(source).first(byte_count));
    EXPECT_EQ(entry.data().data(), source.data());
    EXPECT_EQ(entry.data().size(), byte_count);
  }
  EXPECT_EQ(stage.statistics().weak_misses, 4U);
  EXPECT_EQ(stage.statistics().policy_errors, 2U);
}

TEST(Weak, AWaitReturnsAtOnceWithTheSourceWhileTheMoveRunsAndWithTheCopyAfterIt) {
  test::expect_ends([] {
    const auto source = test::numbered_bytes(10000);
    CacheStage stage(StagedMover::Mode::held);
    const Entry entry = stage.cache->access(source);
    EXPECT_EQ(entry.wait_weak().data(), source.data());
    EXPECT_EQ(stage.mover->release(), 1U);
    EXPECT_NE(entry.wait_weak().data(), source.data());
    EXPECT_TRUE(test::equal(entry.wait_weak(), source));
    EXPECT_EQ(stage.statistics().waits, 0U);
  });
}

TEST(Weak, AWaitDrivesAMoverThatAdvancesOnlyWhenPolled) {
  const auto source = test::numbered_bytes(10000);
  CacheStage stage(StagedMover::Mode::on_poll);
  const Entry entry = stage.cache->access(source);
  EXPECT_NE(entry.wait_weak().data(), source.data());
}

TEST(Weak, OnlyWaitsThatBlockAreCountedAndTimed) {
  const auto source = test::numbered_bytes(10000);
  CacheStage stage(StagedMover::Mode::on_poll);
  const Entry entry = stage.cache->access(source);
  entry.wait();
  const CacheStatistics first = stage.statistics();
  EXPECT_EQ(first.waits, 1U);
  EXPECT_GT(first.waited_ns, 0U);
  entry.wait();
  EXPECT_EQ(stage.statistics().waits, 1U);
  EXPECT_EQ(stage.statistics().waited_ns, first.waited_ns);
}

}  // namespace
}  // namespace headrace::cache
