// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "headrace/cache/cache.hpp"
#include "support/cache_stage.hpp"
#include "support/watchdog.hpp"

namespace headrace::cache {
namespace {

using test::CacheStage;
using test::ObservedThread;
using test::StagedMover;

TEST(Lifetime, TheCopyIsFreedWithTheLastHandle) {
  const auto source = test::numbered_bytes(10000);
  CacheStage stage;
  std::optional<Entry> first = stage.cache->access(source);
  std::optional<Entry> second = first;
  EXPECT_EQ(stage.statistics().bytes_cached, 12288U);
  EXPECT_EQ(stage.cache->clear(), 1U);
  EXPECT_EQ(stage.memory->live_count(), 1U);
  first.reset();
  EXPECT_EQ(stage.memory->live_count(), 1U);
  EXPECT_TRUE(test::equal(second->data(), source));
  second.reset();
  EXPECT_EQ(stage.memory->live_count(), 0U);
  EXPECT_EQ(stage.statistics().bytes_cached, 0U);
}

TEST(Lifetime, HandlesAreCopiedMovedAndAssigned) {
  const auto source = test::numbered_bytes(100);
  const auto other = test::numbered_bytes(200);
  CacheStage stage;
  Entry a = stage.cache->access(source);
  Entry b = stage.cache->access(other);
  const std::byte* const copy = b.data().data();
  a = b;
  EXPECT_EQ(a.data().data(), copy);
  Entry c = std::move(a);
  a = std::move(b);
  b = c;
  EXPECT_EQ(a.data().data(), copy);
  EXPECT_EQ(b.data().data(), copy);
  const Entry& same = c;
  c = same;
  EXPECT_EQ(c.data().data(), copy);
  EXPECT_EQ(stage.cache->flush(), 1U);
  EXPECT_EQ(stage.cache->clear(), 1U);
  EXPECT_EQ(stage.memory->live_count(), 1U);
}

TEST(Lifetime, FlushDropsWhatNobodyHoldsAndNothingElse) {
  const auto sources =
      std::array{test::numbered_bytes(100), test::numbered_bytes(200), test::numbered_bytes(300)};
  CacheStage stage;
  static_cast<void>(stage.cache->access(sources[0]));
  const Entry held = stage.cache->access(sources[1]);
  static_cast<void>(stage.cache->access(sources[2]));
  const std::byte* const copy = held.data().data();
  EXPECT_EQ(stage.cache->flush(), 2U);
  EXPECT_EQ(stage.memory->live_count(), 1U);
  EXPECT_EQ(stage.cache->access(sources[1]).data().data(), copy);
  EXPECT_EQ(stage.cache->flush(), 0U);
}

TEST(Lifetime, FlushOfOneNodeLeavesTheOthers) {
  const auto source = test::numbered_bytes(100);
  NodeId target(8);
  CacheOptions options;
  options.placement = [&](const PlacementContext&) { return std::optional(target); };
  CacheStage stage(StagedMover::Mode::at_once, std::move(options));
  static_cast<void>(stage.cache->access(source));
  target = NodeId(9);
  static_cast<void>(stage.cache->access(source));
  EXPECT_EQ(stage.cache->flush(NodeId(8)), 1U);
  EXPECT_EQ(stage.cache->flush(NodeId(8)), 0U);
  EXPECT_EQ(stage.cache->flush(NodeId(77)), 0U);
  EXPECT_EQ(stage.statistics().bytes_cached, 4096U);
  EXPECT_EQ(stage.cache->flush(), 1U);
  EXPECT_EQ(stage.statistics().bytes_cached, 0U);
}

TEST(Lifetime, FlushStopsAMoveThatNobodyHolds) {
  test::expect_ends([] {
    const auto source = test::numbered_bytes(10000);
    CacheStage stage(StagedMover::Mode::on_poll);
    static_cast<void>(stage.cache->access(source));
    EXPECT_EQ(stage.cache->flush(), 1U);
    EXPECT_EQ(stage.memory->live_count(), 0U);
    EXPECT_EQ(stage.statistics().moves_failed, 1U);
  });
}

TEST(Lifetime, InvalidateReachesEveryEntryThatOverlapsByOneByteAndNoOther) {
  const auto source = test::numbered_bytes(4000);
  const std::span<const std::byte> all(source);
  CacheStage stage;
  const auto fill = [&] {
    // Different lengths, so that a long one starts before short ones: [0, 3000), [1000, 1100),
    // [2000, 2001), [3000, 4000). The short ones are accessed first: later they would be hits.
    static_cast<void>(stage.cache->access(all.subspan(1000, 100)));
    static_cast<void>(stage.cache->access(all.subspan(2000, 1)));
    static_cast<void>(stage.cache->access(all.first(3000)));
    static_cast<void>(stage.cache->access(all.subspan(3000, 1000)));
  };
  struct Case {
    std::size_t first;
    std::size_t byte_count;
    std::size_t dropped_count;
  };
  for (const Case& expected :
       {Case{0, 1, 1}, Case{2999, 1, 1}, Case{3000, 1, 1}, Case{2999, 2, 2}, Case{3999, 1, 1},
        Case{999, 1, 1}, Case{999, 2, 2}, Case{1099, 1, 2}, Case{1100, 1, 1}, Case{2000, 1, 2},
        Case{2001, 1, 1}, Case{0, 4000, 4}, Case{1050, 0, 0}, Case{1999, 1, 1}}) {
    fill();
    EXPECT_EQ(stage.cache->invalidate(all.subspan(expected.first, expected.byte_count)),
              expected.dropped_count)
        << "[" << expected.first << ", +" << expected.byte_count << ")";
    EXPECT_EQ(stage.cache->clear(), 4 - expected.dropped_count);
  }
  EXPECT_EQ(stage.memory->live_count(), 0U);
}

TEST(Lifetime, InvalidateDropsTheEntriesOfEveryNode) {
  const auto source = test::numbered_bytes(100);
  NodeId target(8);
  CacheOptions options;
  options.placement = [&](const PlacementContext&) { return std::optional(target); };
  CacheStage stage(StagedMover::Mode::at_once, std::move(options));
  static_cast<void>(stage.cache->access(source));
  target = NodeId(9);
  static_cast<void>(stage.cache->access(source));
  EXPECT_EQ(stage.cache->invalidate(std::span(source).subspan(50, 1)), 2U);
}

TEST(Lifetime, AnInvalidatedEntryStaysWithItsHoldersAndTheNextAccessSeesTheNewBytes) {
  auto source = test::numbered_bytes(10000);
  CacheStage stage;
  const Entry before = stage.cache->access(source);
  const std::byte old_byte = source[7];
  source[7] = ~old_byte;
  EXPECT_EQ(stage.cache->invalidate(std::span(source).subspan(7, 1)), 1U);
  const Entry after = stage.cache->access(source);
  EXPECT_EQ(before.data()[7], old_byte);
  EXPECT_EQ(after.data()[7], ~old_byte);
}

TEST(Lifetime, TheLastHandleStopsAMoveThatRunsAndWaitsForIt) {
  test::expect_ends([] {
    const auto source = test::numbered_bytes(10000);
    CacheStage stage(StagedMover::Mode::held);
    std::optional<Entry> entry = stage.cache->access(source);
    EXPECT_EQ(stage.cache->clear(), 1U);
    ObservedThread dropper([&] { entry.reset(); });
    dropper.await_asleep();
    // The mover may still write: the copy must be there.
    EXPECT_EQ(stage.memory->live_count(), 1U);
    EXPECT_EQ(stage.mover->release(), 1U);
    dropper.join();
    EXPECT_EQ(stage.memory->live_count(), 0U);
    EXPECT_EQ(stage.statistics().bytes_cached, 0U);
  });
}

TEST(Lifetime, EntriesOutliveTheirCache) {
  test::expect_ends([] {
    const auto source = test::numbered_bytes(10000);
    const auto other = test::numbered_bytes(20000);
    CacheStage stage(StagedMover::Mode::on_poll);
    std::optional<Entry> ready = stage.cache->access(source);
    ready->wait();
    std::optional<Entry> moving = stage.cache->access(other);
    stage.cache.reset();
    EXPECT_TRUE(test::equal(ready->data(), source));
    EXPECT_FALSE(moving->cached());
    moving->wait();
    EXPECT_TRUE(moving->cached());
    EXPECT_TRUE(test::equal(moving->data(), other));
    ready.reset();
    moving.reset();
    EXPECT_EQ(stage.memory->live_count(), 0U);
  });
}

TEST(Lifetime, ACacheIsDestroyedWhileMovesRunThatNobodyHolds) {
  test::expect_ends([] {
    const auto source = test::numbered_bytes(100000);
    CacheStage stage(StagedMover::Mode::on_poll);
    for (std::size_t i = 0; i < 10; ++i) {
      static_cast<void>(stage.cache->access(std::span(source).subspan(i * 10000, 10000)));
    }
    EXPECT_EQ(stage.memory->live_count(), 10U);
    stage.cache.reset();
    EXPECT_EQ(stage.memory->live_count(), 0U);
  });
}

TEST(Lifetime, InvalidateReachesAMoveWhoseEntryMadeWayForALongerOne) {
  test::expect_ends([] {
    const auto source = test::numbered_bytes(20000);
    CacheStage stage(StagedMover::Mode::on_poll);
    static_cast<void>(stage.cache->access(std::span(source).first(10000)));
    static_cast<void>(stage.cache->access(source));
    EXPECT_EQ(stage.cache->invalidate(source), 2U);
    // The source is no longer read: its owner may free it.
    const engine::EngineStatistics jobs = stage.engine->statistics();
    EXPECT_EQ(jobs.jobs_done + jobs.jobs_failed + jobs.jobs_stopped, jobs.jobs_submitted);
  });
}

/// A mover inside a piece, which no stop can interrupt, until the test releases it.
class Latched final : public engine::Mover {
 public:
  [[nodiscard]] const engine::MoverInfo& info() const override { return info_; }
  [[nodiscard]] engine::Submit post(engine::Request& request) noexcept override {
    request_ = &request;
    return engine::Submit::accepted;
  }
  void stop() noexcept override {}
  [[nodiscard]] bool stop_requested() const { return request_->stop_requested(); }
  void end() { request_->complete({.state = engine::JobState::stopped}); }

 private:
  const engine::MoverInfo info_{.name = "latched"};
  engine::Request* request_ = nullptr;
};

TEST(Lifetime, InvalidateWaitsForAMoveThatAFlushIsStoppingAlready) {
  test::expect_ends([] {
    const topo::Machine machine = test::hand_made_machine();
    auto made = std::make_unique<Latched>();
    Latched& mover = *made;
    std::vector<std::unique_ptr<engine::Mover>> movers;
    movers.push_back(std::move(made));
    const auto engine = engine::Engine::make(std::move(movers)).value();
    CacheOptions options;
    options.placement = placement::on(NodeId(8));
    options.memory = std::make_shared<test::CountedMemory>();
    const auto cache = Cache::make(machine, *engine, options).value();
    const auto source = test::numbered_bytes(10000);
    static_cast<void>(cache->access(source));

    Atomic<bool> invalidated{false};
    std::thread flushing([&] { static_cast<void>(cache->flush()); });
    while (!mover.stop_requested()) std::this_thread::yield();  // The flush is in progress.
    ObservedThread invalidating([&] {
      static_cast<void>(cache->invalidate(source));
      invalidated.store_release(true);
    });
    // It must not return before the move has ended: it sleeps.
    invalidating.await_asleep();
    EXPECT_FALSE(invalidated.load_acquire());
    mover.end();
    flushing.join();
    invalidating.join();
    EXPECT_TRUE(invalidated.load_acquire());
  });
}

TEST(Lifetime, EntriesOutliveAnEngineThatWasStopped) {
  const auto source = test::numbered_bytes(10000);
  CacheStage stage(StagedMover::Mode::held);
  const Entry stopped = stage.cache->access(source);
  stage.engine.reset();
  EXPECT_TRUE(stopped.try_wait());
  EXPECT_EQ(stopped.data().data(), source.data());
}

TEST(Lifetime, ManySmallEntriesComeAndGoWithoutATrace) {
  const auto source = test::numbered_bytes(5000);
  CacheStage stage;
  for (std::size_t i = 0; i < source.size(); ++i) {
    static_cast<void>(stage.cache->access(std::span(source).subspan(i, 1)));
  }
  EXPECT_EQ(stage.statistics().bytes_cached, 5000U * 4096U);
  EXPECT_EQ(stage.cache->invalidate(source), 5000U);
  EXPECT_EQ(stage.statistics().bytes_cached, 0U);
  EXPECT_EQ(stage.memory->bytes_live(), 0U);
}

}  // namespace
}  // namespace headrace::cache
