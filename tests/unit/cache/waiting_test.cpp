// SPDX-License-Identifier: Apache-2.0
// A thread that waits for a copy is always woken, whatever the submitting thread does. The first
// three tests are deadlocks of the original implementation of this cache design.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <latch>
#include <span>
#include <thread>

#include "headrace/cache/cache.hpp"
#include "support/cache_stage.hpp"
#include "support/watchdog.hpp"

namespace headrace::cache {
namespace {

using test::CacheStage;
using test::ObservedThread;
using test::StagedMover;

/// A mover policy that blocks the submitter during its submission.
struct HeldSubmission {
  [[nodiscard]] CacheOptions options() {
    CacheOptions options;
    options.mover = [this](const engine::MoveContext&, engine::MoverChoice& choice) {
      begun.count_down();
      proceed.wait();
      choice.add(0);
    };
    return options;
  }
  std::latch begun{1};
  std::latch proceed{1};
};

// Deadlock one: only the submitter could drive the move, and it never waited.
TEST(Waiting, ThreadsThatArriveDuringASubmissionAreWokenAlthoughTheSubmitterNeverWaits) {
  test::expect_ends([] {
    const auto source = test::numbered_bytes(10000);
    HeldSubmission submission;
    // This mover advances only while a thread waits for it.
    CacheStage stage(StagedMover::Mode::on_poll, submission.options());
    std::latch waited(2);
    ObservedThread submitter([&] {
      const Entry entry = stage.cache->access(source);
      waited.wait();
    });
    submission.begun.wait();
    const auto arrive = [&] {
      const Entry entry = stage.cache->access(source);
      EXPECT_FALSE(entry.try_wait());
      EXPECT_EQ(entry.data().data(), source.data());
      entry.wait();
      EXPECT_TRUE(entry.cached());
      EXPECT_TRUE(test::equal(entry.data(), source));
      waited.count_down();
    };
    ObservedThread first(arrive);
    ObservedThread second(arrive);
    first.await_asleep();
    second.await_asleep();
    submission.proceed.count_down();
    submitter.join();
    EXPECT_EQ(stage.mover->accepted_count(), 1U);
    EXPECT_EQ(stage.statistics().misses, 1U);
    EXPECT_EQ(stage.statistics().hits, 2U);
  });
}

TEST(Waiting, AWaitWithATimeoutEndsWithTheMoveOrTheTime) {
  test::expect_ends([] {
    const auto source = test::numbered_bytes(10000);
    CacheStage stage(StagedMover::Mode::held);
    const Entry entry = stage.cache->access(source);
    EXPECT_FALSE(entry.wait_for(std::chrono::milliseconds(1)));
    EXPECT_FALSE(entry.cached());
    stage.mover->release();
    EXPECT_TRUE(entry.wait_for(std::chrono::nanoseconds::max()));
    EXPECT_TRUE(entry.cached());
  });
}

// Deadlock two: the end was listed by storing the value on which the waiters sleep.
TEST(Waiting, ThreadsThatSleepOnASubmissionAreWokenWhenItIsRefused) {
  test::expect_ends([] {
    const auto source = test::numbered_bytes(10000);
    HeldSubmission submission;
    CacheStage stage(StagedMover::Mode::held, submission.options());
    stage.mover->refuse(true);
    ObservedThread submitter([&] { static_cast<void>(stage.cache->access(source)); });
    submission.begun.wait();
    const auto arrive = [&] {
      const Entry entry = stage.cache->access(source);
      entry.wait();
      EXPECT_TRUE(entry.try_wait());
      EXPECT_FALSE(entry.cached());
      EXPECT_EQ(entry.data().data(), source.data());
    };
    ObservedThread first(arrive);
    ObservedThread second(arrive);
    first.await_asleep();
    second.await_asleep();
    submission.proceed.count_down();
    first.join();
    second.join();
    submitter.join();
    EXPECT_EQ(stage.statistics().refused, 1U);
    EXPECT_EQ(stage.statistics().bytes_cached, 0U);
  });
}

// Deadlock three: an entry that lost the race into the cache waited, in its destructor, for a
// submission that no thread would make.
TEST(Waiting, AnEntryThatLosesTheRaceIntoTheCacheIsDestroyedAtOnce) {
  test::expect_ends([] {
    // Regions of one length in one block of that length: the index has them all in one chain. A
    // lock-free look-up stops on so long a chain and misses the entries at its end; the insertion
    // follows it to the end.
    constexpr std::size_t kBlockBytes = 1024;
    constexpr std::size_t kRegionBytes = 900;
    constexpr std::size_t kCount = 100;
    struct alignas(kBlockBytes) Block {
      std::array<std::byte, kBlockBytes> bytes{};
    };
    const Block block;
    const auto region = [&](std::size_t index) {
      return std::span(block.bytes).subspan(index, kRegionBytes);
    };
    CacheStage stage(StagedMover::Mode::at_once);
    for (std::size_t i = 0; i < kCount; ++i) static_cast<void>(stage.cache->access(region(i)));
    for (std::size_t i = 0; i < kCount; ++i) {
      const Entry entry = stage.cache->access(region(i));
      entry.wait();
      EXPECT_TRUE(entry.cached());
      EXPECT_TRUE(test::equal(entry.data(), region(i)));
    }
    EXPECT_GT(stage.statistics().duplicates, 0U);
    EXPECT_EQ(stage.statistics().hits, kCount);
    EXPECT_EQ(stage.mover->accepted_count(), kCount);
    EXPECT_EQ(stage.cache->clear(), kCount);
    EXPECT_EQ(stage.memory->live_count(), 0U);
  });
}

TEST(Waiting, AnEntryThatWasNeverPlacedIsReadyAndDestroyedAtOnce) {
  test::expect_ends([] {
    const auto source = test::numbered_bytes(64);
    CacheOptions options;
    options.placement = placement::none;
    CacheStage stage(StagedMover::Mode::held, std::move(options));
    const Entry entry = stage.cache->access(source);
    EXPECT_TRUE(entry.try_wait());
    entry.wait();
    EXPECT_EQ(entry.data().data(), source.data());
  });
}

TEST(Waiting, EveryWaiterOfARunningMoveIsWokenByItsEnd) {
  test::expect_ends([] {
    const auto source = test::numbered_bytes(10000);
    for (const auto cause : {engine::Cause::none, engine::Cause::device_error}) {
      CacheStage stage(StagedMover::Mode::held);
      const Entry entry = stage.cache->access(source);
      const auto wait = [&] {
        const Entry own = stage.cache->access(source);
        own.wait();
        EXPECT_EQ(own.cached(), cause == engine::Cause::none);
        EXPECT_TRUE(test::equal(own.data(), source));
      };
      ObservedThread first(wait);
      ObservedThread second(wait);
      first.await_asleep();
      second.await_asleep();
      EXPECT_FALSE(entry.try_wait());
      EXPECT_EQ(entry.data().data(), source.data());
      EXPECT_EQ(stage.mover->release(cause), 1U);
    }
  });
}

TEST(Waiting, TryWaitDrivesAMoverThatAdvancesOnlyWhenPolled) {
  const auto source = test::numbered_bytes(10000);
  CacheStage stage(StagedMover::Mode::on_poll);
  const Entry entry = stage.cache->access(source);
  EXPECT_FALSE(entry.cached());
  EXPECT_TRUE(entry.try_wait());
  EXPECT_TRUE(entry.cached());
}

TEST(Waiting, AnEntryClearedDuringItsSubmissionStillComesToThoseWhoHoldIt) {
  test::expect_ends([] {
    const auto source = test::numbered_bytes(10000);
    HeldSubmission submission;
    CacheStage stage(StagedMover::Mode::on_poll, submission.options());
    ObservedThread submitter([&] { static_cast<void>(stage.cache->access(source)); });
    submission.begun.wait();
    ObservedThread waiter([&] {
      const Entry entry = stage.cache->access(source);
      entry.wait();
      EXPECT_TRUE(entry.cached());
      EXPECT_TRUE(test::equal(entry.data(), source));
    });
    waiter.await_asleep();
    EXPECT_EQ(stage.cache->flush(), 0U);
    EXPECT_EQ(stage.cache->clear(), 1U);
    submission.proceed.count_down();
    waiter.join();
    submitter.join();
    EXPECT_EQ(stage.memory->live_count(), 0U);
  });
}

TEST(Waiting, AnEngineThatStopsLeavesItsEntriesAtTheSource) {
  test::expect_ends([] {
    const auto source = test::numbered_bytes(10000);
    CacheStage stage(StagedMover::Mode::held);
    ObservedThread waiter([&] {
      const Entry entry = stage.cache->access(source);
      entry.wait();
      EXPECT_FALSE(entry.cached());
      EXPECT_EQ(entry.data().data(), source.data());
    });
    waiter.await_asleep();
    stage.engine->stop();
    waiter.join();
    EXPECT_EQ(stage.statistics().moves_failed, 1U);
    const Entry refused = stage.cache->access(source);
    EXPECT_TRUE(refused.try_wait());
    EXPECT_EQ(refused.data().data(), source.data());
    EXPECT_EQ(stage.statistics().refused, 1U);
  });
}

}  // namespace
}  // namespace headrace::cache
