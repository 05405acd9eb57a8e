// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>
#include <vector>

#include <sched.h>

#include "headrace/cache/cache.hpp"
#include "headrace/platform/memory.hpp"
#include "headrace/topo/machine.hpp"
#include "support/cache_stage.hpp"
#include "support/watchdog.hpp"

namespace headrace::cache {
namespace {

using test::CacheStage;
using test::StagedMover;

void expect_all_accesses_counted(const CacheStatistics& statistics, std::uint64_t access_count) {
  EXPECT_EQ(statistics.hits + statistics.misses + statistics.not_placed + statistics.refused,
            access_count);
}

TEST(Access, AMissMovesTheRegionToTheNodeOfThePolicy) {
  const auto source = test::numbered_bytes(10000);
  CacheStage stage;
  const Entry entry = stage.cache->access(source);
  entry.wait();
  ASSERT_TRUE(entry.cached());
  EXPECT_EQ(entry.node(), NodeId(8));
  EXPECT_NE(entry.data().data(), source.data());
  EXPECT_EQ(stage.memory->node_of(entry.data().data()), NodeId(8));
  EXPECT_TRUE(test::equal(entry.data(), source));
  EXPECT_EQ(stage.statistics().bytes_moved, 10000U);
}

TEST(Access, AllConsumersOfARegionShareOneCopy) {
  const auto source = test::numbered_bytes(10000);
  CacheStage stage(StagedMover::Mode::held);
  const Entry first = stage.cache->access(source);
  const Entry second = stage.cache->access(source);
  const Entry third = second;
  EXPECT_EQ(stage.mover->release(), 1U);
  EXPECT_EQ(first.data().data(), second.data().data());
  EXPECT_EQ(first.data().data(), third.data().data());
  EXPECT_EQ(stage.mover->accepted_count(), 1U);
  EXPECT_EQ(stage.memory->live_count(), 1U);
  EXPECT_EQ(stage.statistics().misses, 1U);
  EXPECT_EQ(stage.statistics().hits, 1U);
}

TEST(Access, AShorterRegionAtTheSameAddressIsAHitAndALongerOneMakesANewEntry) {
  const auto source = test::numbered_bytes(10000);
  CacheStage stage;
  const Entry middle = stage.cache->access(std::span(source).first(5000));
  const Entry shorter = stage.cache->access(std::span(source).first(10));
  EXPECT_EQ(shorter.data().data(), middle.data().data());
  EXPECT_EQ(shorter.data().size(), 10U);
  const Entry longer = stage.cache->access(source);
  EXPECT_NE(longer.data().data(), middle.data().data());
  EXPECT_TRUE(test::equal(longer.data(), source));
  // Holders of the superseded entry keep it; a new access gets the longer one.
  EXPECT_TRUE(test::equal(middle.data(), std::span(source).first(5000)));
  EXPECT_EQ(stage.cache->access(std::span(source).first(5000)).data().data(), longer.data().data());
  EXPECT_EQ(stage.statistics().misses, 2U);
  EXPECT_EQ(stage.statistics().hits, 2U);
}

TEST(Access, APartOfAnEntryIsAHitAndItsDataIsThatPart) {
  const auto source = test::numbered_bytes(20000);
  CacheStage stage;
  const Entry whole = stage.cache->access(std::span(source).subspan(1000, 10000));
  for (const auto& [first, byte_count] :
       {std::pair(1000, 1), std::pair(1000, 10000), std::pair(5000, 100), std::pair(10999, 1)}) {
    const auto part = std::span(source).subspan(static_cast<std::size_t>(first),
                                                static_cast<std::size_t>(byte_count));
    const Entry entry = stage.cache->access(part);
    EXPECT_TRUE(entry.cached());
    EXPECT_EQ(entry.data().data(), whole.data().data() + (first - 1000));
    EXPECT_TRUE(test::equal(entry.data(), part));
  }
  EXPECT_EQ(stage.statistics().misses, 1U);
  EXPECT_EQ(stage.statistics().hits, 4U);
}

TEST(Access, ARegionThatReachesOverTheEndOfAnEntryIsAMissWithACopyOfItsOwn) {
  const auto source = test::numbered_bytes(20000);
  CacheStage stage;
  const Entry first = stage.cache->access(std::span(source).subspan(1000, 10000));
  const Entry before = stage.cache->access(std::span(source).subspan(999, 2));
  const Entry after = stage.cache->access(std::span(source).subspan(10999, 2));
  EXPECT_EQ(stage.statistics().misses, 3U);
  EXPECT_TRUE(test::equal(before.data(), std::span(source).subspan(999, 2)));
  EXPECT_TRUE(test::equal(after.data(), std::span(source).subspan(10999, 2)));
}

TEST(Access, OfSeveralEntriesThatContainARegionTheShortestClassIsTaken) {
  const auto source = test::numbered_bytes(20000);
  // At many addresses, because entries of several classes may share a bucket.
  for (std::size_t place = 130; place < 19000; place += 130) {
    CacheStage stage;
    const Entry shorter = stage.cache->access(std::span(source).subspan(place, 100));
    const Entry longer = stage.cache->access(source);
    const Entry part = stage.cache->access(std::span(source).subspan(place + 10, 10));
    ASSERT_EQ(part.data().data(), shorter.data().data() + 10) << place;
  }
}

TEST(Access, ALengthThatNoRegionCanHaveIsRefused) {
  const std::byte byte{};
  CacheStage stage;
  for (const std::size_t length :
       {~std::size_t{0}, std::size_t{1} << 63U, (std::size_t{1} << 57U) + 1}) {
    const Entry entry = stage.cache->access({&byte, length});
    EXPECT_TRUE(entry.try_wait());
    EXPECT_EQ(entry.data().data(), &byte);
  }
  EXPECT_EQ(stage.statistics().refused, 3U);
  EXPECT_EQ(stage.cache->invalidate({&byte, ~std::size_t{0}}), 0U);
}

TEST(Access, ASupersededEntryThatIsNotHeldIsFreed) {
  const auto source = test::numbered_bytes(10000);
  CacheStage stage;
  static_cast<void>(stage.cache->access(std::span(source).first(5000)));
  static_cast<void>(stage.cache->access(source));
  EXPECT_EQ(stage.memory->live_count(), 1U);
}

TEST(Access, ASupersededEntryThatStillMovesIsNotWaitedForAndFreedLater) {
  const auto source = test::numbered_bytes(10000);
  CacheStage stage(StagedMover::Mode::held);
  static_cast<void>(stage.cache->access(std::span(source).first(5000)));
  static_cast<void>(stage.cache->access(source));
  EXPECT_EQ(stage.memory->live_count(), 2U);
  EXPECT_EQ(stage.mover->release(), 2U);
  static_cast<void>(stage.cache->access(std::span(source).subspan(1)));
  EXPECT_EQ(stage.memory->live_count(), 2U);
  stage.mover->release();
  EXPECT_EQ(stage.cache->clear(), 2U);
  EXPECT_EQ(stage.memory->live_count(), 0U);
}

TEST(Access, AFailedMoveLeavesItsEntryAtTheSourceAndTheNextAccessTriesAgain) {
  const auto source = test::numbered_bytes(10000);
  CacheStage stage;
  stage.mover->fail_with(engine::Cause::device_error);
  const Entry entry = stage.cache->access(source);
  entry.wait();
  EXPECT_FALSE(entry.cached());
  EXPECT_FALSE(entry.node().has_value());
  EXPECT_EQ(entry.data().data(), source.data());
  EXPECT_EQ(entry.data().size(), source.size());
  EXPECT_EQ(stage.statistics().moves_failed, 1U);
  EXPECT_EQ(stage.statistics().bytes_moved, 0U);

  stage.mover->fail_with(engine::Cause::none);
  const Entry again = stage.cache->access(source);
  EXPECT_TRUE(again.cached());
  EXPECT_EQ(entry.data().data(), source.data());
  EXPECT_EQ(stage.statistics().misses, 2U);
}

TEST(Access, AFullQueueRefusesTheAccessAndKeepsNothing) {
  const auto source = test::numbered_bytes(10000);
  CacheStage stage;
  stage.mover->refuse(true);
  const Entry entry = stage.cache->access(source);
  EXPECT_TRUE(entry.try_wait());
  EXPECT_EQ(entry.data().data(), source.data());
  EXPECT_EQ(stage.statistics().refused, 1U);
  EXPECT_EQ(stage.statistics().misses, 0U);
  EXPECT_EQ(stage.memory->live_count(), 0U);
  EXPECT_EQ(stage.cache->clear(), 0U);

  stage.mover->refuse(false);
  EXPECT_TRUE(stage.cache->access(source).cached());
}

TEST(Access, ANodeWithoutMemoryRefusesTheAccess) {
  const auto source = test::numbered_bytes(10000);
  CacheStage stage;
  stage.memory->fill_up(NodeId(8));
  const Entry entry = stage.cache->access(source);
  EXPECT_EQ(entry.data().data(), source.data());
  EXPECT_EQ(stage.statistics().refused, 1U);
  EXPECT_EQ(stage.statistics().bytes_cached, 0U);
}

TEST(Access, MemoryThatThrowsRefusesTheAccess) {
  class Thrower final : public MemorySource {
   public:
    Result<std::span<std::byte>> allocate(std::size_t /*byte_count*/, NodeId /*node*/) override {
      throw std::bad_alloc();
    }
    void free(std::span<std::byte> /*memory*/) noexcept override {}
  };
  const auto source = test::numbered_bytes(10000);
  const CacheStage stage;
  CacheOptions options;
  options.placement = placement::on(NodeId(8));
  options.memory = std::make_shared<Thrower>();
  const auto cache = Cache::make(stage.machine, *stage.engine, std::move(options)).value();
  const Entry entry = cache->access(source);
  EXPECT_EQ(entry.data().data(), source.data());
  EXPECT_EQ(cache->statistics().refused, 1U);
  EXPECT_EQ(cache->statistics().bytes_cached, 0U);
}

TEST(Access, APlacementPolicyThatThrowsOrNamesAMissingNodeIsCountedAndTheSourceUsed) {
  const auto source = test::numbered_bytes(100);
  const std::array<PlacementPolicy, 3> policies{
      [](const PlacementContext&) -> std::optional<NodeId> { throw std::runtime_error("x"); },
      [](const PlacementContext&) -> std::optional<NodeId> { throw 1; },
      placement::on(NodeId(77)),
  };
  for (const PlacementPolicy& policy : policies) {
    CacheOptions options;
    options.placement = policy;
    CacheStage stage(StagedMover::Mode::at_once, std::move(options));
    EXPECT_EQ(stage.cache->access(source).data().data(), source.data());
    EXPECT_EQ(stage.statistics().policy_errors, 1U);
    expect_all_accesses_counted(stage.statistics(), 1);
  }
}

TEST(Access, AMoverPolicyThatThrowsOrChoosesNobodyFailsTheMove) {
  const auto source = test::numbered_bytes(100);
  const std::array<engine::MoverPolicy, 3> policies{
      [](const engine::MoveContext&, engine::MoverChoice& choice) {
        choice.add(0);
        throw std::runtime_error("x");
      },
      [](const engine::MoveContext&, engine::MoverChoice&) {},
      [](const engine::MoveContext&, engine::MoverChoice& choice) { choice.add(9); },
  };
  std::uint64_t errors_expected = 1;
  for (const engine::MoverPolicy& policy : policies) {
    CacheOptions options;
    options.mover = policy;
    CacheStage stage(StagedMover::Mode::at_once, std::move(options));
    const Entry entry = stage.cache->access(source);
    entry.wait();
    EXPECT_EQ(entry.data().data(), source.data());
    EXPECT_EQ(stage.statistics().policy_errors, std::exchange(errors_expected, 0));
    EXPECT_EQ(stage.statistics().moves_failed, 1U);
    EXPECT_EQ(stage.mover->accepted_count(), 0U);
    expect_all_accesses_counted(stage.statistics(), 1);
  }
}

TEST(Access, AMoverPolicySeesBothNodesAndTheLength) {
  const auto source = test::numbered_bytes(10000);
  CacheOptions options;
  std::size_t byte_count = 0;
  std::optional<NodeId> target_node;
  options.mover = [&](const engine::MoveContext& context, engine::MoverChoice& choice) {
    byte_count = context.byte_count;
    target_node = context.target_node;
    choice.add(0);
  };
  CacheStage stage(StagedMover::Mode::at_once, std::move(options));
  EXPECT_TRUE(stage.cache->access(source).cached());
  EXPECT_EQ(byte_count, 10000U);
  EXPECT_EQ(target_node, NodeId(8));
}

TEST(Access, CopiesGoIntoTheProcessorsCacheIfTheCacheIsToldSo) {
  const auto source = test::numbered_bytes(10000);
  for (const bool into_cache : {false, true}) {
    CacheOptions options;
    options.into_cache = into_cache;
    CacheStage stage(StagedMover::Mode::held, std::move(options));
    const Entry entry = stage.cache->access(source);
    EXPECT_EQ(stage.mover->into_cache_count(), into_cache ? 1U : 0U);
    stage.mover->release();
  }
}

TEST(Access, MoversAreChosenBySizeUnlessTheCacheOrItsEngineHasAPolicy) {
  // A mover on each of two nodes with processors; the caller's node is neither source nor target.
  const auto movers_used = [](engine::MoverPolicy of_engine, engine::MoverPolicy of_cache) {
    std::vector<std::unique_ptr<engine::Mover>> movers;
    std::array<StagedMover*, 2> staged{};
    unsigned node = 0;
    EXPECT_EQ(::getcpu(nullptr, &node), 0);
    for (std::size_t i = 0; i < staged.size(); ++i) {
      auto mover = std::make_unique<StagedMover>(StagedMover::Mode::at_once,
                                                 NodeId(i == 0 ? node + 1 : node));
      staged[i] = mover.get();
      movers.push_back(std::move(mover));
    }
    const auto engine = engine::Engine::make(std::move(movers), std::move(of_engine)).value();
    const topo::Machine machine = test::hand_made_machine();
    CacheOptions options;
    options.placement = placement::on(NodeId(8));
    options.memory = std::make_shared<test::CountedMemory>();
    options.mover = std::move(of_cache);
    const auto cache = Cache::make(machine, *engine, std::move(options)).value();
    const auto source = test::numbered_bytes(1000);
    for (int i = 0; i < 4; ++i) {
      cache->access(source).wait();
      cache->clear();
    }
    return std::array{staged[0]->accepted_count(), staged[1]->accepted_count()};
  };
  using Counts = std::array<std::size_t, 2>;
  const engine::MoverPolicy first = [](const engine::MoveContext&, engine::MoverChoice& choice) {
    choice.add(0);
  };
  EXPECT_EQ(movers_used({}, {}), (Counts{0, 4}));
  EXPECT_EQ(movers_used(first, {}), (Counts{4, 0}));
  EXPECT_EQ(movers_used(engine::movers::by_size, first), (Counts{4, 0}));
}

TEST(Access, ASourceThatIsNotMappedOrNoLongerIsRefusedAndCounted) {
  const std::size_t page_bytes = platform::page_bytes();
  CacheStage stage;
  std::span<std::byte> pages = platform::allocate_pages(4 * page_bytes, std::nullopt).value();
  EXPECT_TRUE(stage.cache->access(pages.subspan(10, 100)).cached());
  EXPECT_EQ(stage.cache->clear(), 1U);
  // The third page is missing, then all are.
  platform::free_pages(pages.subspan(2 * page_bytes, page_bytes));
  EXPECT_FALSE(stage.cache->access(pages).cached());
  EXPECT_FALSE(stage.cache->access(pages.subspan(page_bytes, page_bytes + 1)).cached());
  EXPECT_TRUE(stage.cache->access(pages.first(2 * page_bytes)).cached());
  EXPECT_EQ(stage.cache->invalidate(pages), 1U);
  platform::free_pages(pages.first(2 * page_bytes));
  platform::free_pages(pages.last(page_bytes));
  const Entry entry = stage.cache->access(pages.subspan(1, 1));
  EXPECT_EQ(entry.data().data(), pages.data() + 1);
  EXPECT_EQ(stage.statistics().bad_sources, 3U);
  EXPECT_EQ(stage.statistics().refused, 3U);
  EXPECT_EQ(stage.mover->accepted_count(), 2U);
  EXPECT_EQ(stage.memory->live_count(), 0U);
}

TEST(Access, AnEmptyRegionHasAnEmptyEntry) {
  CacheStage stage;
  const Entry null = stage.cache->access({});
  null.wait();
  EXPECT_TRUE(null.data().empty());
  const auto source = test::numbered_bytes(10);
  const Entry empty = stage.cache->access(std::span(source).first(0));
  EXPECT_TRUE(empty.try_wait());
  EXPECT_TRUE(empty.data().empty());
  EXPECT_FALSE(empty.cached());
  expect_all_accesses_counted(stage.statistics(), 2);
}

TEST(AccessDeathTest, ANullRegionThatIsNotEmptyIsABrokenContract) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  CacheStage stage;
  const std::span<const std::byte> null(static_cast<const std::byte*>(nullptr), 1);
  EXPECT_DEATH(static_cast<void>(stage.cache->access(null)), "has an address");
}

TEST(Access, TheSameRegionOnTwoNodesIsTwoEntries) {
  const auto source = test::numbered_bytes(10000);
  NodeId target(8);
  CacheOptions options;
  options.placement = [&](const PlacementContext&) { return std::optional(target); };
  CacheStage stage(StagedMover::Mode::at_once, std::move(options));
  const Entry near = stage.cache->access(source);
  target = NodeId(9);
  const Entry far = stage.cache->access(source);
  EXPECT_EQ(near.node(), NodeId(8));
  EXPECT_EQ(far.node(), NodeId(9));
  EXPECT_EQ(stage.statistics().misses, 2U);
  EXPECT_EQ(stage.memory->live_count(), 2U);
}

TEST(Access, ACacheWithoutCapacityIsRefusedWithTheRemedy) {
  const CacheStage stage;
  CacheOptions options;
  options.capacity_per_node = Bytes(0);
  const auto cache = Cache::make(stage.machine, *stage.engine, std::move(options));
  ASSERT_FALSE(cache.has_value());
  EXPECT_EQ(cache.error().code, Code::invalid_argument);
  EXPECT_NE(cache.error().message().find("capacity"), std::string::npos);
}

/// With an engine that copies.
class AccessMany : public ::testing::Test {
 protected:
  AccessMany() {
    engine::EngineOptions engine_options;
    engine_options.threads_per_node = 1;
    engine_ = engine::Engine::make(machine_, engine_options).value();
    CacheOptions options;
    options.placement = placement::on(machine_.nodes.front().id);
    options.capacity_per_node = Bytes(80 * 4096);
    cache_ = Cache::make(machine_, *engine_, std::move(options)).value();
  }
  std::vector<std::span<const std::byte>> regions(std::size_t count) const {
    std::vector<std::span<const std::byte>> made;
    for (std::size_t i = 0; i < count; ++i) {
      made.push_back(std::span(source_).subspan(i * 1024, 1024));
    }
    return made;
  }
  const std::vector<std::byte> source_ = test::numbered_bytes(1 << 20);
  const topo::Machine machine_ = topo::discover({.find_movers = false}).value();
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<Cache> cache_;
};

TEST_F(AccessMany, GivesTheEntriesInOrderByOneJob) {
  const auto wanted = regions(64);
  const std::vector<Entry> entries = cache_->access_many(wanted);
  ASSERT_EQ(entries.size(), 64U);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    entries[i].wait();
    EXPECT_TRUE(entries[i].cached());
    EXPECT_TRUE(test::equal(entries[i].data(), wanted[i]));
  }
  EXPECT_EQ(engine_->statistics().jobs_submitted, 1U);
  EXPECT_EQ(cache_->statistics().misses, 64U);
  EXPECT_EQ(cache_->statistics().bytes_moved, 64U * 1024);
  for (const Entry& entry : cache_->access_many(wanted)) EXPECT_TRUE(entry.cached());
  EXPECT_EQ(cache_->statistics().hits, 64U);
  EXPECT_EQ(cache_->clear(), 64U);
}

TEST_F(AccessMany, TakesDuplicatesNothingAndMoreThanThereIsRoomFor) {
  EXPECT_TRUE(cache_->access_many({}).empty());
  auto wanted = regions(200);
  wanted[1] = wanted[0];
  wanted[2] = {};
  const std::vector<Entry> entries = cache_->access_many(wanted);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    entries[i].wait();
    EXPECT_TRUE(test::equal(entries[i].data(), wanted[i]));
  }
  EXPECT_TRUE(entries[1].cached());
  const CacheStatistics statistics = cache_->statistics();
  EXPECT_EQ(statistics.hits, 1U);
  EXPECT_EQ(statistics.not_placed, 1U);
  EXPECT_EQ(statistics.misses, 80U);
  EXPECT_EQ(statistics.refused, 118U);
}

TEST_F(AccessMany, HandlesMayGoBeforeTheirMovesHaveEnded) {
  for (std::size_t round = 0; round < 50; ++round) {
    std::vector<Entry> entries = cache_->access_many(regions(32));
    entries.resize(round % 2 == 0 ? 0 : 7, entries.front());
    EXPECT_EQ(cache_->clear(), 32U);
  }
  EXPECT_EQ(cache_->statistics().bytes_cached, 0U);
}

TEST_F(AccessMany, AChangeAmongItsRegionsIsSeen) {
  std::vector<std::byte> source = source_;
  const auto region = std::span(source).subspan(1000, 100);
  {
    const Change change = cache_->change(region).value();
    std::fill(change.data().begin(), change.data().end(), std::byte{0xee});
    const std::vector<Entry> refused =
        cache_->access_many(std::vector<std::span<const std::byte>>{std::span(source).first(2048)});
    EXPECT_FALSE(refused.front().cached());
  }
  const std::vector<Entry> entries = cache_->access_many(std::vector<std::span<const std::byte>>{
      std::span(source).first(2048), std::span(source).subspan(4096, 100)});
  entries[0].wait();
  EXPECT_EQ(entries[0].data()[1050], std::byte{0xee});
}

TEST_F(AccessMany, AnEngineThatTakesNothingLeavesAllAtTheSource) {
  engine_->stop();
  const auto wanted = regions(2);
  const std::vector<Entry> entries = cache_->access_many(wanted);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(entries[i].try_wait());
    EXPECT_EQ(entries[i].data().data(), wanted[i].data());
  }
  EXPECT_EQ(cache_->statistics().refused, 2U);
  EXPECT_EQ(cache_->statistics().bytes_cached, 0U);
}

TEST(Access, APolicyOfTheEngineThatThrowsLeavesTheSourceAndTheCacheEnds) {
  test::expect_ends([] {
    const topo::Machine machine = topo::discover().value();
    bool throws = true;
    const engine::MoverPolicy policy = [&](const engine::MoveContext&, engine::MoverChoice& made) {
      if (throws) throw std::runtime_error("x");
      made.add(0);
    };
    const auto engine = engine::Engine::make(machine, {.policy = policy}).value();
    CacheOptions options;
    options.placement = placement::local;
    const auto cache = Cache::make(machine, *engine, std::move(options)).value();
    auto source = test::numbered_bytes(std::size_t{1} << 20U);
    const std::span<std::byte> first = std::span(source).first(4096);
    const std::array<std::span<const std::byte>, 2> both = {first, std::span(source).last(4096)};
    EXPECT_FALSE(cache->access(source).cached());
    for (const Entry& entry : cache->access_many(both)) EXPECT_FALSE(entry.cached());
    EXPECT_EQ(cache->statistics().refused, 3U);
    throws = false;
    std::fill(first.begin(), first.end(), std::byte{1});
    {
      const Change change = cache->change(first).value();
      std::fill(change.data().begin(), change.data().end(), std::byte{2});
    }
    throws = true;
    cache->flush();
    EXPECT_EQ(first.front(), std::byte{2});
  });
}

}  // namespace
}  // namespace headrace::cache
