// SPDX-License-Identifier: Apache-2.0
// Changing data: who may write a copy, when it is written back, and the effect on overlapping
// entries. Concurrent changes: tests/stress/cache.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "headrace/base/atomic.hpp"
#include "headrace/cache/cache.hpp"
#include "headrace/platform/memory.hpp"
#include "support/cache_stage.hpp"
#include "support/watchdog.hpp"

namespace headrace::cache {
namespace {

using test::CacheStage;
using test::equal;
using test::StagedMover;

constexpr std::byte kNew{0xee};

class Changing : public ::testing::Test {
 protected:
  [[nodiscard]] std::span<std::byte> page(std::size_t index, std::size_t count = 1) {
    return std::span(source_).subspan(index * page_bytes_, count * page_bytes_);
  }
  [[nodiscard]] CacheStage stage_of(std::size_t entry_count) const {
    CacheOptions options;
    options.capacity_per_node = Bytes(entry_count * page_bytes_);
    return CacheStage(StagedMover::Mode::at_once, std::move(options));
  }
  /// Changes all of `region`.
  static void fill(Cache& cache, std::span<std::byte> region, std::byte value = kNew) {
    const Change change = cache.change(region).value();
    std::fill(change.data().begin(), change.data().end(), value);
  }
  static bool is_all(std::span<const std::byte> bytes, std::byte value = kNew) {
    return std::all_of(bytes.begin(), bytes.end(), [&](std::byte byte) { return byte == value; });
  }
  const std::size_t page_bytes_ = platform::page_bytes();
  std::vector<std::byte> source_ = test::numbered_bytes(16 * page_bytes_);
  const std::vector<std::byte> old_ = source_;
};

TEST_F(Changing, AReadWithoutAWaitHasTheChangesThatAMissHasNotWrittenBackYet) {
  CacheOptions options;
  options.capacity_per_node = Bytes(8 * page_bytes_);
  CacheStage stage(StagedMover::Mode::held, std::move(options));
  for (const std::size_t index : {0U, 1U}) {
    static_cast<void>(stage.cache->access(page(index)));
    stage.mover->release();
    fill(*stage.cache, page(index));
  }
  const Entry first = stage.cache->access(page(0));
  // The miss waits for this write-back before it writes the second page back. Other threads can
  // find its entry meanwhile.
  test::ObservedThread writer([&] { EXPECT_TRUE(stage.cache->write_back(first).has_value()); });
  while (stage.mover->accepted_count() < 3) std::this_thread::yield();
  test::ObservedThread miss([&] { static_cast<void>(stage.cache->access(page(0, 2))); });
  miss.await_asleep();
  std::vector<std::byte> seen;
  test::ObservedThread reader([&] {
    const Entry entry = stage.cache->access(page(0, 2));
    EXPECT_FALSE(entry.cached());
    seen.assign(entry.data().begin(), entry.data().end());
  });
  reader.await_asleep();
  stage.mover->release();
  for (test::ObservedThread* each : {&writer, &miss, &reader}) each->join();
  stage.mover->release();
  EXPECT_EQ(seen.size(), 2 * page_bytes_);
  EXPECT_TRUE(is_all(seen));
}

TEST_F(Changing, EveryAccessThatIsLeftAtTheSourceSeesWhatWasChanged) {
  Atomic<bool> placed{true};
  CacheOptions options;
  options.capacity_per_node = Bytes(2 * page_bytes_);
  options.placement = [&](const PlacementContext&) {
    // relaxed: one thread.
    return placed.load_relaxed() ? std::optional(NodeId(8)) : std::nullopt;
  };
  CacheStage stage(StagedMover::Mode::at_once, std::move(options));
  const auto sees_change = [&](const Entry& entry) {
    entry.wait();
    return !entry.cached() && is_all(entry.data().first(page_bytes_));
  };
  const auto change_anew = [&] {
    std::fill(source_.begin(), source_.end(), std::byte{0});
    stage.cache->invalidate(source_);
    fill(*stage.cache, page(0));
    ASSERT_FALSE(is_all(page(0)));
  };
  change_anew();
  EXPECT_TRUE(sees_change(stage.cache->access(page(0, 4)))) << "no room";
  change_anew();
  EXPECT_TRUE(sees_change(stage.cache->access_weak(page(0, 4)))) << "weak";
  change_anew();
  placed.store_relaxed(false);  // relaxed: as above.
  EXPECT_TRUE(sees_change(stage.cache->access(page(0)))) << "not placed";
  placed.store_relaxed(true);  // relaxed: as above.
  change_anew();
  stage.memory->break_down(true);
  EXPECT_TRUE(sees_change(stage.cache->access(page(0, 2)))) << "no memory";
}

TEST_F(Changing, WritesTheCopyAndLeavesTheSourceUntilItIsWrittenBack) {
  CacheStage stage;
  {
    const Change change = stage.cache->change(page(0)).value();
    EXPECT_NE(change.data().data(), page(0).data());
    EXPECT_TRUE(change.entry().cached());
    std::fill(change.data().begin(), change.data().end(), kNew);
  }
  EXPECT_TRUE(equal(source_, old_));
  const Entry entry = stage.cache->access(page(0));
  EXPECT_TRUE(is_all(entry.data()));
  EXPECT_TRUE(entry.changed());
  EXPECT_EQ(stage.cache->write_back(entry).value().count(), page_bytes_);
  EXPECT_TRUE(is_all(page(0)));
  EXPECT_FALSE(entry.changed());
  EXPECT_TRUE(equal(page(1, 15), std::span(old_).subspan(page_bytes_)));
  EXPECT_EQ(stage.statistics().write_backs, 1U);
  EXPECT_EQ(stage.statistics().bytes_written_back, page_bytes_);
  // Nothing is left to do.
  EXPECT_EQ(stage.cache->write_back().value().count(), 0U);
  EXPECT_EQ(stage.statistics().write_backs, 1U);
}

TEST_F(Changing, WritesBackTheBytesThatWereAskedForAndNoOthersOfTheEntry) {
  CacheStage stage;
  const Entry whole = stage.cache->access(source_);
  fill(*stage.cache, std::span(source_).subspan(100, 50));
  fill(*stage.cache, std::span(source_).subspan(120, 60));
  fill(*stage.cache, std::span(source_).subspan(5000, 10));
  // Direct writes to the source outside the changed bytes are kept.
  source_[99] = std::byte{1};
  source_[180] = std::byte{2};
  EXPECT_EQ(stage.cache->write_back(whole).value().count(), 80U + 10U);
  EXPECT_EQ(source_[99], std::byte{1});
  EXPECT_EQ(source_[180], std::byte{2});
  EXPECT_TRUE(is_all(std::span(source_).subspan(100, 80)));
  EXPECT_TRUE(is_all(std::span(source_).subspan(5000, 10)));
  EXPECT_EQ(stage.statistics().write_backs, 2U);
  EXPECT_EQ(stage.mover->accepted_count(), 3U) << "one move there, two back, by the engine";
}

TEST_F(Changing, IsForOneAtATimeWhereRegionsOverlap) {
  CacheStage stage;
  static_cast<void>(stage.cache->access(source_));
  std::optional<Change> first = stage.cache->change(page(0, 2)).value();
  const Result<Change> second = stage.cache->change(page(1, 2));
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, Code::capacity_exceeded);
  EXPECT_TRUE(stage.cache->change(page(2)).has_value()) << "the next bytes of the same entry";
  first.reset();
  EXPECT_TRUE(stage.cache->change(page(1, 2)).has_value());
}

TEST_F(Changing, DropsEveryOtherEntryThatOverlaps) {
  std::uint32_t node = 8;
  CacheOptions options;
  options.placement = [&](const PlacementContext&) { return std::optional(NodeId(node)); };
  CacheStage stage(StagedMover::Mode::at_once, std::move(options));
  node = 9;
  const Entry elsewhere = stage.cache->access(page(0));
  node = 8;
  static_cast<void>(stage.cache->access(page(0, 4)));
  const Entry overlapping = stage.cache->access(page(3, 2));
  const Entry beside = stage.cache->access(page(5));
  fill(*stage.cache, page(0, 4));
  EXPECT_TRUE(equal(elsewhere.data(), std::span(old_).first(page_bytes_))) << "holders keep theirs";
  EXPECT_FALSE(stage.cache->access_weak(page(4)).cached());
  EXPECT_TRUE(stage.cache->access_weak(page(5)).cached());
  node = 9;
  // The source is written back first, so the new copy is not stale.
  EXPECT_TRUE(is_all(stage.cache->access(page(0)).data()));
  EXPECT_EQ(stage.statistics().write_backs, 1U);
}

TEST_F(Changing, AnAccessThatTheCopyDoesNotContainGetsTheNewBytes) {
  CacheStage stage;
  fill(*stage.cache, page(1, 2));
  const Entry reaching_in = stage.cache->access(page(0, 2));
  EXPECT_TRUE(reaching_in.cached());
  EXPECT_TRUE(is_all(reaching_in.data().subspan(page_bytes_)));
  EXPECT_TRUE(is_all(page(1, 2)));
  // A longer one at the same address.
  fill(*stage.cache, page(5));
  EXPECT_TRUE(is_all(stage.cache->access(page(5, 2)).data().first(page_bytes_)));
}

TEST_F(Changing, AnAccessThatReachesOverTheCopyIsRefusedWhileTheChangeIsAlive) {
  CacheStage stage;
  std::optional<Change> change = stage.cache->change(page(1, 2)).value();
  std::fill(change->data().begin(), change->data().end(), kNew);
  const Entry reaching_in = stage.cache->access(page(0, 2));
  EXPECT_FALSE(reaching_in.cached());
  EXPECT_EQ(reaching_in.data().data(), source_.data());
  EXPECT_EQ(stage.statistics().refused, 1U);
  EXPECT_TRUE(is_all(stage.cache->access(page(2)).data())) << "a part of the copy is a hit";
  change.reset();
  EXPECT_TRUE(stage.cache->access(page(0, 2)).cached());
}

TEST_F(Changing, StopsAndAwaitsTheMovesOfWhatOverlapsEvenIfTheyAreHeld) {
  test::expect_ends([this] {
    CacheStage stage(StagedMover::Mode::held);
    const Entry moving = stage.cache->access(page(0, 2));
    // No memory for a copy, so the source is changed.
    stage.memory->fill_up(NodeId(8));
    test::ObservedThread thread([&] { fill(*stage.cache, page(1, 2)); });
    thread.await_asleep();
    EXPECT_TRUE(equal(source_, old_)) << "a mover may be reading it";
    EXPECT_EQ(stage.mover->release(), 1U);
    thread.join();
    EXPECT_FALSE(moving.cached());
    EXPECT_EQ(moving.data().data(), source_.data());
    EXPECT_TRUE(is_all(page(1, 2)));
  });
}

TEST_F(Changing, StopsAndAwaitsTheMovesOfWhatWasDroppedBeforeAndIsHeld) {
  test::expect_ends([this] {
    for (const bool cleared : {true, false}) {
      source_ = old_;
      CacheStage stage(StagedMover::Mode::held);
      const Entry moving = stage.cache->access(page(0, 2));
      const Entry beside = stage.cache->access(page(3));
      static_cast<void>(cleared ? stage.cache->clear() : stage.cache->invalidate(source_));
      stage.memory->fill_up(NodeId(8));
      Atomic<bool> changed{false};
      test::ObservedThread thread([&] {
        fill(*stage.cache, page(1, 2));
        changed.store_relaxed(true);  // relaxed: join() publishes it.
      });
      thread.await_asleep();
      EXPECT_FALSE(changed.load_relaxed()) << "a mover may be reading it";
      EXPECT_EQ(stage.mover->release(), 2U);
      thread.join();
      EXPECT_TRUE(changed.load_relaxed());
      EXPECT_FALSE(moving.cached());
      EXPECT_EQ(moving.data().data(), source_.data());
      EXPECT_TRUE(equal(beside.data(), page(3)));
      EXPECT_TRUE(beside.cached()) << "its move was left alone";
      EXPECT_TRUE(is_all(page(1, 2)));
    }
  });
}

/// Memory whose allocate() calls `meanwhile`, between the look-up of an entry and its submission.
///
/// Threading: shared, but for `meanwhile`.
class MemoryWithAMeanwhile final : public MemorySource {
 public:
  Result<std::span<std::byte>> allocate(std::size_t byte_count, NodeId node) override {
    if (meanwhile) {
      std::exchange(meanwhile, nullptr)();
      return upstream_->allocate(byte_count, node);
    }
    return fail(Code::unsupported, "allocate", "the test says so", "ask the test");
  }
  void free(std::span<std::byte> memory) noexcept override { upstream_->free(memory); }

  std::function<void()> meanwhile;

 private:
  const std::shared_ptr<MemorySource> upstream_ = operating_system_pages();
};

TEST_F(Changing, AMissDoesNotReadWhatIsChangedBeforeItsSubmission) {
  test::expect_ends([this] {
    const topo::Machine machine = test::hand_made_machine();
    auto mover = std::make_unique<StagedMover>(StagedMover::Mode::at_once);
    const StagedMover& watched = *mover;
    std::vector<std::unique_ptr<engine::Mover>> movers;
    movers.push_back(std::move(mover));
    const auto engine = engine::Engine::make(std::move(movers)).value();
    const auto memory = std::make_shared<MemoryWithAMeanwhile>();
    CacheOptions options;
    options.placement = placement::on(NodeId(0));
    options.memory = memory;
    const auto cache = Cache::make(machine, *engine, std::move(options)).value();
    std::optional<Change> change;
    memory->meanwhile = [&] {
      EXPECT_EQ(cache->invalidate(page(0)), 0U) << "it cannot be found before it has its memory";
      change = cache->change(page(0)).value();
    };
    const Entry late = cache->access(page(0));
    ASSERT_TRUE(change.has_value());
    EXPECT_EQ(change->data().data(), page(0).data());
    EXPECT_TRUE(late.try_wait());
    EXPECT_FALSE(late.cached());
    EXPECT_EQ(watched.accepted_count(), 0U);
    EXPECT_EQ(cache->statistics().refused, 2U);
  });
}

TEST_F(Changing, FlushWritesBackAndDrops) {
  CacheStage stage;
  fill(*stage.cache, page(0));
  EXPECT_EQ(stage.cache->flush(NodeId(9)), 0U);
  EXPECT_TRUE(equal(source_, old_));
  EXPECT_EQ(stage.cache->flush(NodeId(8)), 1U);
  EXPECT_TRUE(is_all(page(0)));
  EXPECT_EQ(stage.memory->live_count(), 0U);
}

TEST_F(Changing, FlushOfACacheWithoutChangesMovesNothing) {
  CacheStage stage;
  static_cast<void>(stage.cache->access(page(0)));
  const std::size_t before = stage.mover->accepted_count();
  EXPECT_EQ(stage.cache->flush(), 1U);
  EXPECT_EQ(stage.mover->accepted_count(), before);
}

TEST_F(Changing, FlushLeavesWhatIsBeingChanged) {
  CacheStage stage;
  const Change change = stage.cache->change(page(0)).value();
  EXPECT_EQ(stage.cache->flush(), 0U);
  EXPECT_TRUE(equal(source_, old_));
  EXPECT_EQ(stage.statistics().write_backs, 0U);
}

TEST_F(Changing, EvictionTakesCleanEntriesFirstAndWritesBackWhenNoneIsLeft) {
  CacheStage stage = stage_of(3);
  fill(*stage.cache, page(0));
  static_cast<void>(stage.cache->access(page(1)));
  static_cast<void>(stage.cache->access(page(2)));
  EXPECT_TRUE(stage.cache->access(page(3, 2)).cached());
  EXPECT_TRUE(equal(source_, old_)) << "two clean ones were there";
  EXPECT_TRUE(stage.cache->access(page(6, 3)).cached());
  EXPECT_TRUE(is_all(page(0)));
  EXPECT_EQ(stage.statistics().evictions, 4U);
  EXPECT_EQ(stage.memory->live_count(), 1U);
}

TEST_F(Changing, WhatIsBeingChangedIsNotEvicted) {
  CacheStage stage = stage_of(1);
  const Change change = stage.cache->change(page(0)).value();
  EXPECT_FALSE(stage.cache->access(page(1)).cached());
  EXPECT_EQ(stage.statistics().refused, 1U);
}

TEST_F(Changing, ClearWritesBack) {
  CacheStage stage;
  fill(*stage.cache, page(0));
  const Entry held = stage.cache->access(page(0));
  EXPECT_EQ(stage.cache->clear(), 1U);
  EXPECT_TRUE(is_all(page(0)));
  EXPECT_TRUE(is_all(held.data()));
}

TEST_F(Changing, TheEndOfTheCacheWritesBack) {
  CacheStage stage;
  fill(*stage.cache, page(0));
  stage.cache.reset();
  EXPECT_TRUE(is_all(page(0)));
}

TEST_F(Changing, AChangeThatOutlivesItsEntryOrItsCacheWritesBackWhenItEnds) {
  CacheStage stage;
  std::optional<Change> first = stage.cache->change(page(0)).value();
  std::optional<Change> second = stage.cache->change(page(1)).value();
  EXPECT_EQ(stage.cache->clear(), 2U);
  EXPECT_FALSE(stage.cache->access(page(0)).cached()) << "it is still being changed";
  std::fill(first->data().begin(), first->data().end(), kNew);
  first.reset();
  EXPECT_TRUE(is_all(page(0)));
  EXPECT_TRUE(is_all(stage.cache->access(page(0)).data()));
  stage.cache.reset();
  std::fill(second->data().begin(), second->data().end(), kNew);
  EXPECT_FALSE(is_all(page(1)));
  second.reset();
  EXPECT_TRUE(is_all(page(1)));
  EXPECT_EQ(stage.memory->live_count(), 0U);
}

TEST_F(Changing, InvalidateGivesTheChangesUp) {
  CacheStage stage;
  fill(*stage.cache, page(0));
  std::optional<Change> alive = stage.cache->change(page(1)).value();
  std::fill(alive->data().begin(), alive->data().end(), kNew);
  EXPECT_EQ(stage.cache->invalidate(page(0, 2)), 2U);
  alive.reset();
  EXPECT_EQ(stage.cache->write_back().value().count(), 0U);
  stage.cache->clear();
  EXPECT_TRUE(equal(source_, old_));
  EXPECT_TRUE(equal(stage.cache->access(page(1)).data(),
                    std::span(old_).subspan(page_bytes_, page_bytes_)));
}

TEST_F(Changing, InvalidateLeavesTheChangesOfOtherBytes) {
  for (const bool wide_first : {true, false}) {
    source_ = old_;
    CacheStage stage;
    if (wide_first) static_cast<void>(stage.cache->access(source_));
    fill(*stage.cache, page(0, 3));
    stage.cache->invalidate(page(1));
    EXPECT_TRUE(is_all(stage.cache->access(page(0)).data()));
    EXPECT_TRUE(equal(stage.cache->access(page(1)).data(),
                      std::span(old_).subspan(page_bytes_, page_bytes_)));
    EXPECT_TRUE(is_all(stage.cache->access(page(2)).data()));
    EXPECT_EQ(stage.statistics().bytes_written_back, 2 * page_bytes_);
    fill(*stage.cache, page(5));
    stage.cache->invalidate(page(6));
    EXPECT_TRUE(is_all(stage.cache->access(page(5)).data()));
  }
}

TEST_F(Changing, AChangeOfWhichInvalidateReachesAPartGoesOn) {
  CacheStage stage;
  std::optional<Change> change = stage.cache->change(page(0, 2)).value();
  stage.cache->invalidate(page(1));
  EXPECT_FALSE(stage.cache->change(page(1)).has_value()) << "it is alive";
  std::fill(change->data().begin(), change->data().end(), kNew);
  change.reset();
  EXPECT_TRUE(is_all(page(0, 2)));
}

TEST_F(Changing, AnAccessSeesWhatHasEndedBesideAChangeThatIsAlive) {
  CacheStage stage;
  static_cast<void>(stage.cache->access(page(0, 4)));
  fill(*stage.cache, page(0, 4));
  const Change alive = stage.cache->change(page(1)).value();
  const Entry wider = stage.cache->access(page(0, 5));
  EXPECT_FALSE(wider.cached());
  EXPECT_TRUE(is_all(wider.data().first(page_bytes_)));
  EXPECT_TRUE(is_all(wider.data().subspan(2 * page_bytes_, 2 * page_bytes_)));
  fill(*stage.cache, page(7));
  EXPECT_TRUE(
      is_all(stage.cache->access_weak(page(0, 9)).data().subspan(7 * page_bytes_, page_bytes_)));
}

TEST_F(Changing, WhereThereIsNoCopyItIsTheSourceThatIsChanged) {
  for (const bool full : {true, false}) {
    source_ = old_;
    CacheOptions options;
    if (!full) options.placement = placement::none;
    CacheStage stage(StagedMover::Mode::at_once, std::move(options));
    if (full) stage.memory->fill_up(NodeId(8));
    std::optional<Change> change = stage.cache->change(page(0)).value();
    EXPECT_EQ(change->data().data(), source_.data());
    EXPECT_FALSE(change->entry().cached());
    stage.memory->fill_up(std::nullopt);
    EXPECT_FALSE(stage.cache->access(page(0)).cached()) << "it is being changed";
    EXPECT_FALSE(stage.cache->change(page(0)).has_value());
    std::fill(change->data().begin(), change->data().end(), kNew);
    change.reset();
    EXPECT_TRUE(is_all(page(0)));
    EXPECT_TRUE(is_all(stage.cache->access(page(0)).data()));
    EXPECT_EQ(stage.statistics().write_backs, 0U);
  }
}

TEST_F(Changing, AMoveThatFailsLeavesTheSourceToBeChanged) {
  CacheStage stage;
  stage.mover->fail_with(engine::Cause::device_error);
  const Change change = stage.cache->change(page(0)).value();
  EXPECT_EQ(change.data().data(), source_.data());
}

TEST_F(Changing, WritesBackByTheProcessorWhereTheEngineCannot) {
  CacheStage stage;
  fill(*stage.cache, page(0));
  fill(*stage.cache, page(1));
  stage.mover->fail_with(engine::Cause::device_error);
  EXPECT_EQ(stage.cache->write_back(stage.cache->access(page(0))).value().count(), page_bytes_);
  stage.mover->fail_with(engine::Cause::none);
  stage.mover->refuse(true);
  EXPECT_EQ(stage.cache->flush(), 2U);
  EXPECT_TRUE(is_all(page(0, 2)));
}

TEST_F(Changing, WritesAllElseBackAlthoughSomeBytesAreBeingChanged) {
  CacheStage stage;
  fill(*stage.cache, page(0));
  const Change change = stage.cache->change(page(1)).value();
  const Result<Bytes> written = stage.cache->write_back();
  ASSERT_FALSE(written.has_value());
  EXPECT_EQ(written.error().code, Code::capacity_exceeded);
  EXPECT_TRUE(is_all(page(0)));
}

TEST_F(Changing, ManyRangesAreWrittenBackInOneGo) {
  CacheStage stage;
  static_cast<void>(stage.cache->access(source_));
  for (std::size_t i = 0; i < 100; ++i) fill(*stage.cache, std::span(source_).subspan(i * 20, 10));
  EXPECT_EQ(stage.cache->write_back().value().count(), 1000U);
  for (std::size_t i = 0; i < 2000; ++i) {
    EXPECT_EQ(source_[i], i % 20 < 10 ? kNew : old_[i]) << i;
  }
}

TEST_F(Changing, NothingAndTooMuch) {
  CacheStage stage;
  const Change nothing = stage.cache->change({}).value();
  EXPECT_TRUE(nothing.data().empty());
  const Result<Change> too_much = stage.cache->change({source_.data(), ~std::size_t{0} - 4096});
  ASSERT_FALSE(too_much.has_value());
  EXPECT_EQ(too_much.error().code, Code::invalid_argument);
  EXPECT_EQ(stage.cache->write_back(nothing.entry()).value().count(), 0U);
}

TEST_F(Changing, AnEvictionWritesNoMoreBackThanItNeeds) {
  CacheStage stage = stage_of(8);
  for (std::size_t i = 0; i < 8; ++i) fill(*stage.cache, page(i));
  EXPECT_TRUE(stage.cache->access(page(8)).cached());
  EXPECT_EQ(stage.statistics().write_backs, 1U);
  EXPECT_EQ(stage.statistics().evictions, 1U);
  EXPECT_TRUE(stage.cache->access(page(9, 3)).cached());
  EXPECT_LE(stage.statistics().write_backs, 4U);
  // Held entries stay: others are written back until there is room or none is left.
  std::vector<Entry> held;
  for (std::size_t i = 0; i < 7; ++i) held.push_back(stage.cache->access_weak(page(i)));
  EXPECT_TRUE(stage.cache->access(page(12)).cached());
}

TEST_F(Changing, AWriteBackWaitsForWhatAnotherIsWritingBack) {
  test::expect_ends([this] {
    CacheStage stage(StagedMover::Mode::held);
    const Entry entry = stage.cache->access(page(0));
    stage.mover->release();
    fill(*stage.cache, page(0));
    test::ObservedThread flusher([&] { stage.cache->flush(); });
    while (stage.mover->accepted_count() != 2) std::this_thread::yield();
    test::ObservedThread writer([&] {
      EXPECT_TRUE(stage.cache->write_back(entry).has_value());
      EXPECT_TRUE(is_all(page(0)));
    });
    writer.await_asleep();
    stage.mover->release();
    writer.join();
    flusher.join();
  });
}

TEST_F(Changing, AWriteBackThatMayComeOnceMoreIsToldAndItsCopyIsNeverUsedAgain) {
  CacheStage stage;
  fill(*stage.cache, page(0));
  stage.mover->leave_late_writes(true);
  const Result<Bytes> written = stage.cache->write_back();
  ASSERT_FALSE(written.has_value());
  EXPECT_EQ(written.error().code, Code::hardware_absent);
  EXPECT_TRUE(is_all(page(0))) << "it is written all the same";
  EXPECT_FALSE(stage.cache->access(page(0)).changed());
  EXPECT_EQ(stage.statistics().late_writes, 1U);
  EXPECT_EQ(stage.statistics().write_backs, 1U);
  EXPECT_EQ(stage.cache->clear(), 1U);
  EXPECT_EQ(stage.memory->take_back(), 1U)
      << "the device would read another's bytes, and write them";
  EXPECT_EQ(stage.statistics().bytes_kept, page_bytes_);
}

TEST_F(Changing, TheRightIsMoved) {
  CacheStage stage;
  Change first = stage.cache->change(page(0)).value();
  Change second = stage.cache->change(page(1)).value();
  second = std::move(first);
  EXPECT_TRUE(stage.cache->change(page(1)).has_value());
  EXPECT_FALSE(stage.cache->change(page(0)).has_value());
  const Change third(std::move(second));
  EXPECT_FALSE(stage.cache->change(page(0)).has_value());
}

}  // namespace
}  // namespace headrace::cache
