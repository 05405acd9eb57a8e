// SPDX-License-Identifier: Apache-2.0
// Query 6 with prefetching: the answer does not depend on the fate of the copies.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "automatic.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/lab/q6.hpp"
#include "headrace/platform/memory.hpp"
#include "support/lineitem.hpp"
#include "support/machines.hpp"
#include "support/seed.hpp"

namespace headrace::query::lab {
namespace {

constexpr std::size_t kRows = 40'013;
constexpr std::size_t kChunkRows = 512;
constexpr std::uint64_t kChunks = (kRows + kChunkRows - 1) / kChunkRows;

/// A mover that copies at once, never, or wrongly.
///
/// Threading: shared.
class TestMover final : public engine::Mover {
 public:
  enum class Manner : std::uint8_t { instant, failing, refusing, stuck };
  explicit TestMover(Manner manner) : manner_(manner) {}

  [[nodiscard]] const engine::MoverInfo& info() const override { return info_; }
  [[nodiscard]] engine::Submit post(engine::Request& request) noexcept override {
    switch (manner_) {
      case Manner::instant:
        std::memcpy(request.target().data(), request.source().data(), request.byte_count());
        request.complete({.bytes_done = request.byte_count()});
        break;
      case Manner::failing:
        request.complete({.cause = engine::Cause::device_error});
        break;
      case Manner::refusing:
        return engine::Submit::full;
      case Manner::stuck: {
        const Lock lock(mutex_);
        request.next = held_;
        held_ = &request;
        break;
      }
    }
    return engine::Submit::accepted;
  }
  void stop() noexcept override {
    engine::Request* request = nullptr;
    {
      const Lock lock(mutex_);
      request = std::exchange(held_, nullptr);
    }
    while (request != nullptr) {
      engine::Request* const next = request->next;
      request->complete({.state = engine::JobState::stopped});
      request = next;
    }
  }

 private:
  const Manner manner_;
  const engine::MoverInfo info_{.name = "test", .node = NodeId(0)};
  Mutex mutex_;
  engine::Request* held_ HEADRACE_GUARDED_BY(mutex_) = nullptr;
};

std::unique_ptr<engine::Engine> make_engine(TestMover::Manner manner) {
  std::vector<std::unique_ptr<engine::Mover>> movers;
  movers.push_back(std::make_unique<TestMover>(manner));
  return engine::Engine::make(std::move(movers)).value();
}

/// A table, a machine and a cache with copies on node 0, which every machine has.
class PrefetchTest : public ::testing::Test {
 protected:
  std::unique_ptr<cache::Cache> make_cache(
      engine::Engine& engine, Bytes capacity = gib(1),
      cache::PlacementPolicy placement = cache::placement::on(NodeId(0))) const {
    cache::CacheOptions options;
    options.placement = std::move(placement);
    options.capacity_per_node = capacity;
    return cache::Cache::make(machine_, engine, std::move(options)).value();
  }
  Q6Result run(cache::Cache& cache, const Q6Options& options) const {
    const Result<Q6Result> result = run_q6(machine_, &cache, table_.columns(), {}, options);
    EXPECT_TRUE(result.has_value()) << result.error().message();
    if (!result.has_value()) return {};
    EXPECT_EQ(result->revenue, expected_.revenue);
    EXPECT_EQ(result->rows_selected, expected_.rows_selected);
    EXPECT_EQ(result->chunks_from_cache + result->chunks_from_source, 2 * kChunks);
    return *result;
  }
  static Q6Options with(Prefetch prefetch, std::size_t thread_count = 2) {
    return {.prefetch = prefetch, .chunk = kib(4), .thread_count = thread_count};
  }

  const topo::Machine machine_ = test::one_node_machine();
  test::Lineitem table_ = test::random_lineitem(kRows, test::seed());
  const test::Q6Answer expected_ = test::plain_q6(table_.columns(), {});
};

TEST_F(PrefetchTest, CopiesThatAreReadyAreUsed) {
  const auto engine = make_engine(TestMover::Manner::instant);
  const auto cache = make_cache(*engine);
  // A single worker prefetches every chunk before it scans it.
  const Q6Result first = run(*cache, with(Prefetch::on, 1));
  EXPECT_TRUE(first.prefetched);
  EXPECT_EQ(first.chunks_from_cache, 2 * kChunks);
  EXPECT_EQ(cache->statistics().misses, 2 * kChunks);
  const Q6Result again = run(*cache, with(Prefetch::on, 1));
  EXPECT_EQ(again.chunks_from_cache, 2 * kChunks);
  EXPECT_EQ(cache->statistics().hits, 2 * kChunks);
}

TEST_F(PrefetchTest, OnlyTheColumnsOfTheAggregateAreMoved) {
  const auto engine = make_engine(TestMover::Manner::instant);
  const auto cache = make_cache(*engine);
  static_cast<void>(run(*cache, with(Prefetch::on, 1)));
  EXPECT_EQ(cache->statistics().bytes_moved, 2 * kRows * sizeof(std::int64_t));
}

TEST_F(PrefetchTest, TheAnswerComesFromTheCopies) {
  const auto engine = make_engine(TestMover::Manner::instant);
  const auto cache = make_cache(*engine);
  static_cast<void>(run(*cache, with(Prefetch::on, 1)));
  // The cache was not notified, so it still serves its copies.
  for (std::int64_t& price : table_.extended_price) ++price;
  static_cast<void>(run(*cache, with(Prefetch::on, 1)));
  cache->invalidate(std::as_bytes(table_.columns().extended_price));
  const Result<Q6Result> fresh =
      run_q6(machine_, cache.get(), table_.columns(), {}, with(Prefetch::on, 1));
  ASSERT_TRUE(fresh.has_value());
  EXPECT_EQ(fresh->revenue, test::plain_q6(table_.columns(), {}).revenue);
  EXPECT_NE(fresh->revenue, expected_.revenue);
}

TEST_F(PrefetchTest, AMoverThatNeverEndsIsNotWaitedFor) {
  const auto engine = make_engine(TestMover::Manner::stuck);
  const auto cache = make_cache(*engine);
  for (const std::size_t thread_count : {1U, 2U, 8U}) {
    const Q6Result result = run(*cache, with(Prefetch::on, thread_count));
    EXPECT_EQ(result.chunks_from_cache, 0U);
  }
  // Moves in flight are bounded: three runs, at most eleven workers.
  EXPECT_LT(cache->statistics().misses, 100U);
  engine->stop();
}

TEST_F(PrefetchTest, AMoverThatFailsOrRefusesLeavesTheSource) {
  for (const auto manner : {TestMover::Manner::failing, TestMover::Manner::refusing}) {
    const auto engine = make_engine(manner);
    const auto cache = make_cache(*engine);
    const Q6Result result = run(*cache, with(Prefetch::on));
    EXPECT_EQ(result.chunks_from_cache, 0U);
    EXPECT_EQ(cache->statistics().bytes_moved, 0U);
  }
}

TEST_F(PrefetchTest, ACacheTooSmallEvictsOrRefuses) {
  const auto engine = make_engine(TestMover::Manner::instant);
  for (const Bytes capacity : {Bytes(1), kib(8), kib(64)}) {
    const auto cache = make_cache(*engine, capacity);
    for (const std::size_t thread_count : {1U, 4U}) {
      static_cast<void>(run(*cache, with(Prefetch::on, thread_count)));
    }
    const cache::CacheStatistics statistics = cache->statistics();
    EXPECT_LE(statistics.bytes_cached, capacity.count());
    EXPECT_GT(statistics.evictions + statistics.refused, 0U);
  }
}

TEST_F(PrefetchTest, ACacheSmallerThanWhatIsUnderWayEvicts) {
  // No more chunks than slots: without a bound all would be requested before any is used.
  constexpr std::size_t kFewRows = 6 * kChunkRows;
  const Q6Columns all = table_.columns();
  const Q6Columns few{all.ship_date.first(kFewRows), all.discount.first(kFewRows),
                      all.quantity.first(kFewRows), all.extended_price.first(kFewRows)};
  const test::Q6Answer expected = test::plain_q6(few, {});
  const auto engine = make_engine(TestMover::Manner::instant);
  for (const Bytes capacity : {kib(8), kib(16), kib(20)}) {
    const auto cache = make_cache(*engine, capacity);
    const auto result = run_q6(machine_, cache.get(), few, {}, with(Prefetch::on));
    ASSERT_TRUE(result.has_value());
    EXPECT_EQ(result->revenue, expected.revenue);
    EXPECT_GT(result->chunks_from_cache, 0U);
    const cache::CacheStatistics statistics = cache->statistics();
    // A slow consumer keeps its copies, so prefetches are refused instead of evicting them.
    EXPECT_GT(statistics.evictions + statistics.refused, 0U) << to_text(capacity);
  }
}

TEST_F(PrefetchTest, AfterARefusalLessIsUnderWayAndThenMoreAgain) {
  const auto engine = make_engine(TestMover::Manner::instant);
  bool first = true;
  const auto cache = make_cache(*engine, gib(1), [&](const cache::PlacementContext&) {
    return std::exchange(first, false) ? std::optional<NodeId>() : std::optional(NodeId(0));
  });
  Q6Options options = with(Prefetch::on, 1);
  options.record_timeline = true;
  const Q6Result result = run(*cache, options);
  EXPECT_EQ(result.chunks_from_source, 1U);
  std::int64_t under_way = 0;
  std::int64_t most_at_first = 0;
  std::int64_t most = 0;
  for (const Q6Event& event : result.timeline) {
    if (event.pipeline == Pipeline::prefetch) ++under_way;
    if (event.pipeline == Pipeline::aggregate) --under_way;
    most = std::max(most, under_way);
    if (event.chunk_index <= 2) most_at_first = std::max(most_at_first, under_way);
  }
  EXPECT_EQ(most_at_first, 2) << "the refused chunk, and one whose columns are copied";
  EXPECT_EQ(most, 3);
}

TEST_F(PrefetchTest, WorkerThreadsAsMoversGiveTheSameAnswer) {
  const auto engine = engine::Engine::make(machine_).value();
  const auto cache = make_cache(*engine);
  for (const std::size_t thread_count : {1U, 2U, 3U, 5U, 8U}) {
    for (int repeat = 0; repeat < 3; ++repeat) {
      static_cast<void>(run(*cache, with(Prefetch::on, thread_count)));
    }
    cache->clear();
  }
}

TEST_F(PrefetchTest, APlacementPolicyThatThrowsIsCountedAndTheSourceIsUsed) {
  const auto engine = make_engine(TestMover::Manner::instant);
  const auto cache = make_cache(
      *engine, gib(1), [](const cache::PlacementContext&) -> std::optional<NodeId> { throw 1; });
  EXPECT_EQ(run(*cache, with(Prefetch::on)).chunks_from_cache, 0U);
  EXPECT_GT(cache->statistics().policy_errors, 0U);
}

TEST_F(PrefetchTest, AutomaticMovesNothingOnAMachineWithOneKindOfMemory) {
  const auto engine = make_engine(TestMover::Manner::instant);
  const auto cache = make_cache(*engine);
  EXPECT_FALSE(run(*cache, with(Prefetch::automatic)).prefetched);
  EXPECT_EQ(cache->statistics().misses, 0U);
}

TEST_F(PrefetchTest,
       AutomaticWithoutFiguresMovesDataOutOfTheSlowerTierAndLeavesThatInTheFasterOne) {
  const auto engine = make_engine(TestMover::Manner::instant);
  const auto cache = make_cache(*engine);
  const auto decide = [&](topo::Machine machine) {
    machine.accesses.clear();
    return run_q6(machine, cache.get(), table_.columns(), {}, with(Prefetch::automatic))
        .value()
        .prefetched;
  };
  // On this machine the table is on some node, which is 0 unless there are more.
  EXPECT_TRUE(decide(test::two_tier_machine(NodeId(0), NodeId(1000))));
  // If the kernel does not report the node of data, they count as not there.
  const bool told = platform::node_of_address(table_.columns().extended_price.data()).has_value();
  EXPECT_EQ(decide(test::two_tier_machine(NodeId(1000), NodeId(0))), !told);
}

TEST_F(PrefetchTest, AutomaticMovesNothingWhoseMoveReadsTheSameBytesOfTheSameNode) {
  const auto engine = make_engine(TestMover::Manner::instant);
  const auto cache = make_cache(*engine);
  const topo::Machine machine = test::two_tier_machine(NodeId(0), NodeId(1000));
  EXPECT_FALSE(run_q6(machine, cache.get(), table_.columns(), {}, with(Prefetch::automatic))
                   .value()
                   .prefetched);
}

/// Query 6 on DDR, except for the price, which is in slow remote memory; copies go to HBM.
class Gain : public ::testing::Test {
 protected:
  Gain() {
    machine_.nodes.push_back(test::declared_node(kFar, topo::Tier::cxl));
    add(kDdr, 70, 110);
    add(kHbm, 400, 135);
  }
  void add(NodeId target, double gb_per_s, int latency_ns) {
    topo::Access access = test::declared_access(kDdr, target, BytesPerSecond(gb_per_s * 1e9));
    access.latency = std::chrono::nanoseconds(latency_ns);
    machine_.accesses.push_back(access);
  }
  [[nodiscard]] std::optional<double> gain(std::size_t workers, NodeId price = kFar) const {
    const std::array columns = {detail::ColumnReads{.home = kDdr, .bytes = 20, .is_scanned = true},
                                detail::ColumnReads{.home = price, .bytes = 8, .is_moved = true}};
    return detail::prefetch_gain(machine_, columns, kDdr, workers, kHbm);
  }

  static constexpr NodeId kDdr{0};
  static constexpr NodeId kHbm{1};
  static constexpr NodeId kFar{2};
  topo::Machine machine_ = [] {
    topo::Machine machine = test::two_tier_machine(kDdr, kHbm);
    machine.accesses.clear();
    return machine;
  }();
};

TEST_F(Gain, IsThatOfWaitingLessWhereWorkersWait) {
  add(kFar, 17.7, 1000);
  // A row waits (20 * 110 + 8 * 1000) / 2048 ns for its lines; with copies, 135 instead of 1000.
  EXPECT_NEAR(gain(1).value(), 10200.0 / 3280 - 1, 1e-9);
}

TEST_F(Gain, IsNoneWhereTheSlowNodeIsBusyEitherWay) {
  add(kFar, 17.7, 1000);
  EXPECT_NEAR(gain(64).value(), 0, 1e-9);
  EXPECT_LE(gain(64, kDdr).value(), 0);
}

TEST_F(Gain, IsNotKnownWithoutABandwidth) {
  EXPECT_FALSE(gain(1).has_value());
}

TEST_F(PrefetchTest, TheTimelineHasEachChunkOncePerPipelineAndInOrder) {
  const auto engine = engine::Engine::make(machine_).value();
  const auto cache = make_cache(*engine);
  for (const Prefetch prefetch : {Prefetch::off, Prefetch::on}) {
    Q6Options options = with(prefetch, 3);
    options.record_timeline = true;
    const Q6Result result = run(*cache, options);
    std::map<std::pair<Pipeline, std::uint32_t>, Q6Event> seen;
    std::chrono::nanoseconds last{};
    for (const Q6Event& event : result.timeline) {
      EXPECT_TRUE(seen.emplace(std::pair(event.pipeline, event.chunk_index), event).second);
      EXPECT_LT(event.worker_index, 3U);
      EXPECT_LE(last, event.begin);
      EXPECT_LE(event.begin, event.end);
      EXPECT_LE(event.end, result.time);
      last = event.begin;
    }
    std::size_t prefetch_count = 0;
    for (std::uint32_t chunk = 0; chunk < kChunks; ++chunk) {
      ASSERT_TRUE(seen.contains({Pipeline::scan, chunk}));
      ASSERT_TRUE(seen.contains({Pipeline::aggregate, chunk}));
      EXPECT_LE((seen[{Pipeline::scan, chunk}].end), (seen[{Pipeline::aggregate, chunk}].begin));
      if (!seen.contains({Pipeline::prefetch, chunk})) continue;
      ++prefetch_count;
      EXPECT_LE((seen[{Pipeline::prefetch, chunk}].end),
                (seen[{Pipeline::aggregate, chunk}].begin));
    }
    EXPECT_EQ(seen.size(), 2 * kChunks + prefetch_count);
    EXPECT_EQ(prefetch_count > 0, prefetch == Prefetch::on);
  }
}

}  // namespace
}  // namespace headrace::query::lab
