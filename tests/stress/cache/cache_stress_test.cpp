// SPDX-License-Identifier: Apache-2.0
// Threads use every function of one cache concurrently, and compare every byte. Detects copies
// freed too early or never, waiters left asleep and wrong counts; sanitizers detect races and use
// after free.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "headrace/base/atomic.hpp"
#include "headrace/base/random.hpp"
#include "headrace/cache/cache.hpp"
#include "support/cache_stage.hpp"
#include "support/seed.hpp"
#include "support/watchdog.hpp"

namespace headrace::cache {
namespace {

constexpr std::size_t kThreadCount = 4;
constexpr std::size_t kStepCount = 4000;
constexpr std::size_t kRegionCount = 24;
constexpr std::size_t kRegionBytesMax = 16384;

/// One thread's part. The regions overlap, and an address is accessed with several lengths.
void work(Cache& cache, std::span<const std::byte> source, std::uint64_t seed,
          std::uint64_t& access_count) {
  Random random(seed);
  std::vector<Entry> held;
  for (std::size_t step = 0; step < kStepCount; ++step) {
    const std::size_t first = random.below(kRegionCount) * (kRegionBytesMax / 2);
    const std::size_t byte_count = 1 + random.below(4) * (kRegionBytesMax / 4 - 1);
    const auto region = source.subspan(first, byte_count);
    switch (random.below(16)) {
      case 0:
        cache.flush();
        break;
      case 1:
        cache.flush(NodeId(8));
        break;
      case 2:
        cache.invalidate(region);
        break;
      case 3:
        if (random.chance(1, 4)) cache.clear();
        break;
      case 4:
      case 5:
      case 6:
        if (!held.empty()) {
          std::swap(held[random.below(held.size())], held.back());
          held.pop_back();
        }
        break;
      default: {
        ++access_count;
        Entry entry = cache.access(region);
        if (random.chance(1, 2)) entry.wait();
        const bool ended = entry.try_wait();
        const auto data = entry.data();
        ASSERT_GE(data.size(), region.size());
        ASSERT_TRUE(test::equal(data.first(region.size()), region)) << "step " << step;
        if (ended) {
          ASSERT_EQ(entry.data().data(), data.data());
        }
        if (random.chance(1, 2)) {
          held.push_back(held.empty() || random.chance(1, 2) ? std::move(entry) : held.front());
        }
        if (held.size() > 8) held.erase(held.begin());
      }
    }
  }
}

class CacheStressByMover : public ::testing::TestWithParam<test::StagedMover::Mode> {};

TEST_P(CacheStressByMover, EveryByteIsRightAndNothingIsLeft) {
  const auto mode = GetParam();
  test::expect_ends([mode] {
    const auto source = test::numbered_bytes((kRegionCount + 2) * kRegionBytesMax / 2);
    CacheOptions options;
    Atomic<std::uint32_t> turn{0};
    options.placement = [&](const PlacementContext&) -> std::optional<NodeId> {
      // relaxed: any order of turns will do.
      const std::uint32_t now = turn.fetch_add_relaxed(1);
      if (now % 101 == 0) throw now;
      return NodeId(8 + now % 2);
    };
    // Room for about a third of the regions, so that there are evictions and refusals.
    options.capacity_per_node = Bytes(kRegionCount * kRegionBytesMax / 6);
    test::CacheStage stage(mode, std::move(options));

    Atomic<std::uint32_t> working{kThreadCount};
    std::vector<std::uint64_t> access_counts(kThreadCount, 0);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kThreadCount; ++i) {
      threads.emplace_back([&, i] {
        work(*stage.cache, source, test::seed() + i, access_counts[i]);
        working.fetch_sub_relaxed(1);  // relaxed: join() publishes what was done.
      });
    }
    // Drives the mover if it needs a thread; it fails, refuses and recovers in turn.
    for (std::uint32_t round = 0; working.load_relaxed() != 0; ++round) {
      stage.mover->refuse(round % 64 == 1);
      stage.mover->fail_with(round % 16 == 1 ? engine::Cause::device_error : engine::Cause::none);
      stage.mover->release(round % 16 == 2 ? engine::Cause::page_fault : engine::Cause::none);
      std::this_thread::yield();
    }
    for (std::thread& thread : threads) thread.join();
    stage.mover->release();

    stage.cache->clear();
    const CacheStatistics statistics = stage.statistics();
    EXPECT_EQ(statistics.hits + statistics.misses + statistics.not_placed + statistics.refused,
              std::accumulate(access_counts.begin(), access_counts.end(), std::uint64_t{0}));
    EXPECT_EQ(statistics.misses, stage.mover->accepted_count());
    EXPECT_EQ(statistics.bytes_cached, 0U);
    EXPECT_EQ(stage.memory->live_count(), 0U);
    EXPECT_GT(statistics.hits, 0U);
    EXPECT_GT(statistics.evictions, 0U);
    EXPECT_GT(statistics.policy_errors, 0U);
  });
}

std::string name_of(const ::testing::TestParamInfo<test::StagedMover::Mode>& instance) {
  switch (instance.param) {
    case test::StagedMover::Mode::at_once:
      return "AtOnce";
    case test::StagedMover::Mode::on_poll:
      return "OnPoll";
    case test::StagedMover::Mode::held:
      break;
  }
  return "Held";
}

INSTANTIATE_TEST_SUITE_P(EveryMover, CacheStressByMover,
                         ::testing::Values(test::StagedMover::Mode::at_once,
                                           test::StagedMover::Mode::on_poll,
                                           test::StagedMover::Mode::held),
                         name_of);

// The same with worker threads that copy, on pages of this machine.
TEST(CacheStress, EveryByteIsRightWithWorkersAndPagesOfTheOperatingSystem) {
  test::expect_ends([] {
    const auto source = test::numbered_bytes((kRegionCount + 2) * kRegionBytesMax / 2);
    const topo::Machine machine = topo::discover({.find_movers = false}).value();
    engine::EngineOptions engine_options;
    engine_options.threads_per_node = 2;
    engine_options.piece = kib(4);
    engine_options.queue_depth_max = 8;
    const auto engine = engine::Engine::make(machine, engine_options).value();
    CacheOptions options;
    options.placement = placement::on(machine.nodes.front().id);
    options.capacity_per_node = Bytes(kRegionCount * kRegionBytesMax / 6);
    const auto cache = Cache::make(machine, *engine, std::move(options)).value();
    std::vector<std::uint64_t> access_counts(kThreadCount, 0);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kThreadCount; ++i) {
      threads.emplace_back([&, i] { work(*cache, source, test::seed() + i, access_counts[i]); });
    }
    for (std::thread& thread : threads) thread.join();
    cache->clear();
    const CacheStatistics statistics = cache->statistics();
    EXPECT_EQ(statistics.hits + statistics.misses + statistics.not_placed + statistics.refused,
              std::accumulate(access_counts.begin(), access_counts.end(), std::uint64_t{0}));
    EXPECT_EQ(statistics.misses, engine->statistics().jobs_submitted);
    EXPECT_EQ(statistics.moves_failed, engine->statistics().jobs_stopped);
    EXPECT_EQ(statistics.bytes_cached, 0U);
    EXPECT_GT(statistics.evictions, 0U);
  });
}

/// Counters in cached memory, each in a separate region.
void count(Cache& cache, std::span<std::byte> source, std::uint64_t seed, std::size_t step_count,
           std::vector<std::uint64_t>& counted) {
  constexpr std::size_t kCounterBytes = 1024;
  Random random(seed);
  for (std::size_t step = 0; step < step_count; ++step) {
    const std::size_t which = random.below(counted.size());
    const auto region = source.subspan(which * kCounterBytes, kCounterBytes);
    switch (random.below(24)) {
      case 0:
        cache.flush();
        break;
      case 1:
        static_cast<void>(cache.write_back());
        break;
      case 2:
        if (random.chance(1, 4)) cache.clear();
        break;
      case 3:
      case 4: {
        // Overlaps the end of the counter's entry.
        const auto reaching = source.subspan(which * kCounterBytes + 100, kCounterBytes);
        cache.access(reaching).wait();
        break;
      }
      case 5:
        // Contains several counters.
        cache.access(source.subspan(which / 4 * 4 * kCounterBytes, 4 * kCounterBytes)).wait();
        break;
      default: {
        Result<Change> change = cache.change(region);
        if (!change.has_value()) break;  // Another thread is changing it.
        std::uint64_t value = 0;
        std::memcpy(&value, change->data().data(), sizeof value);
        ++value;
        std::memcpy(change->data().data(), &value, sizeof value);
        ++counted[which];
      }
    }
  }
}

/// Threads keep the memory of evicted entries for their next misses; others take it back.
TEST(CacheStress, NoMemoryOfAFullNodeHasTwoOwners) {
  test::expect_ends([] {
    constexpr std::size_t kPage = 4096;
    constexpr std::size_t kPages = 8192;
    const auto source = test::numbered_bytes((kPages + 1) * kPage);
    CacheOptions options;
    options.placement = placement::on(NodeId(8));
    options.capacity_per_node = Bytes(kPages * kPage / 2);
    test::CacheStage stage(test::StagedMover::Mode::at_once, std::move(options));
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kThreadCount; ++i) {
      threads.emplace_back([&, i] {
        Random random(test::seed() + i);
        std::vector<std::pair<std::optional<Entry>, std::span<const std::byte>>> held(16);
        for (std::size_t step = 0; step < 8 * kStepCount; ++step) {
          const std::size_t pages = random.chance(1, 256) ? 2 : 1;
          const auto region =
              std::span(source).subspan(random.below(kPages) * kPage, pages * kPage);
          if (random.chance(1, 64)) stage.cache->invalidate(region);
          if (random.chance(1, 4096)) stage.cache->flush();
          auto& [entry, accessed] = held[step % held.size()];
          // Still as it was when it was accessed.
          if (entry.has_value()) {
            ASSERT_TRUE(test::equal(entry->data().first(accessed.size()), accessed));
          }
          entry = stage.cache->access(region);
          accessed = region;
          entry->wait();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(stage.statistics().refused, 0U);
    EXPECT_GT(stage.statistics().evictions, 0U);
    EXPECT_EQ(stage.statistics().bytes_cached, stage.memory->bytes_live());
    stage.cache->clear();
    EXPECT_EQ(stage.statistics().bytes_cached, 0U);
    EXPECT_EQ(stage.memory->live_count(), 0U);
  });
}

TEST(CacheStress, AMoveThatIsRefusedMeetsAChangeThatWouldWaitForIt) {
  test::expect_ends([] {
    CacheOptions options;
    options.placement = placement::on(NodeId(8));
    test::CacheStage stage(test::StagedMover::Mode::at_once, std::move(options));
    // Long enough for changes to arrive before a move's refusal is known.
    stage.mover->refuse(true, std::chrono::microseconds(100));
    std::vector<std::byte> source(4096);
    Atomic<bool> over{false};
    std::thread reader([&] {
      while (!over.load_relaxed()) {  // relaxed: only the end matters.
        const Entry entry = stage.cache->access(source);
        EXPECT_FALSE(entry.cached());
      }
    });
    for (int i = 0; i < 500; ++i) {
      const Result<Change> change = stage.cache->change(std::span(source).first(64));
      EXPECT_TRUE(change.has_value());
    }
    over.store_relaxed(true);  // relaxed: as above.
    reader.join();
  });
}

TEST_P(CacheStressByMover, NoChangeIsLost) {
  const auto mode = GetParam();
  test::expect_ends([mode] {
    constexpr std::size_t kCounterCount = 16;
    std::vector<std::byte> source((kCounterCount + 4) * 1024);
    CacheOptions options;
    Atomic<std::uint32_t> turn{0};
    options.placement = [&](const PlacementContext&) {
      // relaxed: any order of turns will do.
      return std::optional(NodeId(8 + turn.fetch_add_relaxed(1) / 64 % 2));
    };
    options.capacity_per_node = Bytes(6 * 4096);
    test::CacheStage stage(mode, std::move(options));
    // Each awaited move costs two sleeps.
    const std::size_t step_count =
        mode == test::StagedMover::Mode::held ? kStepCount / 4 : kStepCount;
    // Changes, write-backs and drops wait for moves: the mover needs a separate thread until the
    // cache is destroyed.
    Atomic<bool> over{false};
    std::thread releasing([&] {
      while (!over.load_relaxed()) {  // relaxed: only the end matters.
        stage.mover->release();
        std::this_thread::yield();
      }
    });
    std::vector<std::vector<std::uint64_t>> counted(kThreadCount,
                                                    std::vector<std::uint64_t>(kCounterCount));
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kThreadCount; ++i) {
      threads.emplace_back(
          [&, i] { count(*stage.cache, source, test::seed() + i, step_count, counted[i]); });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(stage.cache->write_back().has_value());
    for (std::size_t which = 0; which < kCounterCount; ++which) {
      std::uint64_t expected = 0;
      for (const auto& own : counted) expected += own[which];
      std::uint64_t value = 0;
      std::memcpy(&value, &source[which * 1024], sizeof value);
      EXPECT_EQ(value, expected) << "counter " << which;
      EXPECT_GT(expected, 0U);
    }
    EXPECT_GT(stage.statistics().write_backs, 0U);
    EXPECT_GT(stage.statistics().evictions, 0U);
    stage.cache.reset();
    over.store_relaxed(true);  // relaxed: as above.
    releasing.join();
  });
}

}  // namespace
}  // namespace headrace::cache
