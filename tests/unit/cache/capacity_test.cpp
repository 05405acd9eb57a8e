// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "headrace/base/atomic.hpp"
#include "headrace/cache/cache.hpp"
#include "headrace/platform/barrier.hpp"
#include "headrace/platform/memory.hpp"
#include "support/cache_stage.hpp"

namespace {
headrace::Atomic<std::size_t> barrier_count{0};
}  // namespace

/// Takes the place of the C library's, by which the library asks for barriers. It reads six values,
/// also where fewer are given, as the C library's does.
extern "C" [[gnu::no_sanitize_address]] long syscall(long number, ...) noexcept {
  using Real = long (*)(long, long, long, long, long, long, long);
  static const auto kReal = reinterpret_cast<Real>(::dlsym(RTLD_NEXT, "syscall"));
  // relaxed, here and below: of this thread.
  if (number == SYS_membarrier) barrier_count.fetch_add_relaxed(1);
  va_list list;
  va_start(list, number);
  std::array<long, 6> values{};
  for (long& value : values) value = va_arg(list, long);
  va_end(list);
  return kReal(number, values[0], values[1], values[2], values[3], values[4], values[5]);
}

namespace headrace::cache {
namespace {

using test::CacheStage;
using test::StagedMover;

CacheOptions with_capacity(Bytes capacity) {
  CacheOptions options;
  options.capacity_per_node = capacity;
  return options;
}

/// Regions of one page each.
class Capacity : public ::testing::Test {
 protected:
  [[nodiscard]] std::span<const std::byte> page(std::size_t index) const {
    return std::span(source_).subspan(index * page_bytes_, page_bytes_);
  }
  const std::size_t page_bytes_ = platform::page_bytes();
  const std::vector<std::byte> source_ = test::numbered_bytes(16 * page_bytes_);
};

TEST_F(Capacity, ARegionOfExactlyTheCapacityFitsAndOneByteMoreDoesNot) {
  CacheStage stage(StagedMover::Mode::at_once, with_capacity(Bytes(4 * page_bytes_)));
  EXPECT_FALSE(stage.cache->access(std::span(source_).first(4 * page_bytes_ + 1)).cached());
  EXPECT_TRUE(stage.cache->access(std::span(source_).first(4 * page_bytes_)).cached());
  EXPECT_EQ(stage.statistics().bytes_cached, 4 * page_bytes_);
  EXPECT_EQ(stage.statistics().refused, 1U);
  EXPECT_EQ(stage.statistics().evictions, 0U);
}

TEST_F(Capacity, AnEntryThatMakesWayGivesItsRoomToItsSuccessor) {
  CacheStage stage(StagedMover::Mode::at_once, with_capacity(Bytes(3 * page_bytes_)));
  static_cast<void>(stage.cache->access(page(8)));
  static_cast<void>(stage.cache->access(page(0)));
  EXPECT_TRUE(stage.cache->access(std::span(source_).first(2 * page_bytes_)).cached());
  // Page 8 was older, but did not have to be evicted.
  EXPECT_EQ(stage.statistics().evictions, 0U);
  EXPECT_EQ(stage.statistics().bytes_cached, 3 * page_bytes_);
}

TEST_F(Capacity, WhenFullTheOldestUnusedEntryMakesRoom) {
  CacheStage stage(StagedMover::Mode::at_once, with_capacity(Bytes(3 * page_bytes_)));
  std::optional<Entry> held = stage.cache->access(page(0));
  static_cast<void>(stage.cache->access(page(1)));
  static_cast<void>(stage.cache->access(page(2)));
  EXPECT_TRUE(stage.cache->access(page(3)).cached());
  EXPECT_EQ(stage.statistics().evictions, 1U);
  EXPECT_EQ(stage.statistics().bytes_cached, 3 * page_bytes_);
  // Page 0 was older, but held; page 1 is gone, page 2 is still there.
  EXPECT_TRUE(test::equal(held->data(), page(0)));
  static_cast<void>(stage.cache->access(page(2)));
  EXPECT_EQ(stage.statistics().hits, 1U);
  static_cast<void>(stage.cache->access(page(1)));
  EXPECT_EQ(stage.statistics().hits, 1U);
  EXPECT_EQ(stage.statistics().evictions, 2U);
}

TEST_F(Capacity, AsManyEntriesGoAsTheNewOneNeedsAndNoMore) {
  CacheStage stage(StagedMover::Mode::at_once, with_capacity(Bytes(4 * page_bytes_)));
  for (std::size_t i = 0; i < 4; ++i) static_cast<void>(stage.cache->access(page(i)));
  EXPECT_TRUE(
      stage.cache->access(std::span(source_).subspan(8 * page_bytes_, 2 * page_bytes_)).cached());
  EXPECT_EQ(stage.statistics().evictions, 2U);
  EXPECT_EQ(stage.memory->bytes_live(), 4 * page_bytes_);
}

TEST_F(Capacity, AFullNodeMakesRoomForFurtherEntriesWithTheFirst) {
  for (const auto& [pages, evicted] :
       {std::pair{32U, 1U}, {100U, 2U}, {256U, 4U}, {20000U, 256U}}) {
    const std::vector<std::byte> source((pages + 2) * page_bytes_);
    CacheStage stage(StagedMover::Mode::at_once, with_capacity(Bytes(pages * page_bytes_)));
    const auto access = [&](std::size_t i) {
      return stage.cache->access(std::span(source).subspan(i * page_bytes_, page_bytes_)).cached();
    };
    for (std::size_t i = 0; i < pages; ++i) ASSERT_TRUE(access(i));
    EXPECT_EQ(stage.statistics().evictions, 0U);
    EXPECT_TRUE(access(pages));
    const std::uint64_t first = stage.statistics().evictions;
    // By the addresses of the pages, the shards of a large node give a little less.
    EXPECT_LE(first, evicted) << pages;
    EXPECT_GE(first, evicted - evicted / 64) << pages;
    EXPECT_TRUE(access(pages + 1));
    EXPECT_EQ(stage.statistics().evictions, std::max(first, std::uint64_t{2})) << pages;
  }
}

TEST_F(Capacity, InvalidationsShareTheBarriersOfEvictions) {
  constexpr std::size_t kPages = 8192;
  constexpr std::size_t kMisses = 1024;
  const std::vector<std::byte> source = test::numbered_bytes((kPages + kMisses) * page_bytes_);
  const auto page = [&](std::size_t i) {
    return std::span(source).subspan(i * page_bytes_, page_bytes_);
  };
  CacheStage stage(StagedMover::Mode::at_once, with_capacity(Bytes(kPages * page_bytes_)));
  for (std::size_t i = 0; i < kPages; ++i) static_cast<void>(stage.cache->access(page(i)));
  const std::size_t last = kPages - 1;
  std::optional<Entry> held = stage.cache->access(page(last));
  EXPECT_EQ(stage.cache->invalidate(page(last)), 1U);
  const std::size_t before = barrier_count.load_relaxed();
  for (std::size_t i = kPages; i < kPages + kMisses; ++i) {
    EXPECT_TRUE(stage.cache->access(page(i)).cached());
    if (i % 8 == 7) {
      EXPECT_EQ(stage.cache->invalidate(page(i)), 1U);
    }
  }
  EXPECT_LE(barrier_count.load_relaxed() - before, kMisses / 128 + 2)
      << "each is for a 64th of the entries";
  EXPECT_TRUE(test::equal(held->data(), page(last))) << "no newcomer got the copy";
  held.reset();
  const CacheStatistics statistics = stage.statistics();  // Which frees what waits.
  EXPECT_EQ(statistics.bytes_cached, stage.memory->bytes_live());
  if (!platform::has_heavy_barrier()) GTEST_SKIP() << "the kernel has no membarrier";
  EXPECT_GT(barrier_count.load_relaxed(), before);
}

TEST_F(Capacity, EvictionsNeedNoBarrierForThreadsThatMissOrRest) {
  constexpr std::size_t kPages = 8192;
  constexpr std::size_t kMisses = 2048;
  const std::vector<std::byte> source(2 * (kPages + kMisses) * page_bytes_);
  const auto page = [&](std::size_t i) {
    return std::span(source).subspan(i * page_bytes_, page_bytes_);
  };
  CacheStage stage(StagedMover::Mode::at_once, with_capacity(Bytes(kPages * page_bytes_)));
  for (std::size_t i = 0; i < kPages; ++i) static_cast<void>(stage.cache->access(page(i)));
  Atomic<std::uint32_t> state{0};
  std::thread resting([&] {
    static_cast<void>(stage.cache->access(page(0)));
    state.store_release(1);
    state.notify_all();
    state.wait_acquire(1);
    static_cast<void>(stage.cache->access(page(0)));
  });
  state.wait_acquire(0);
  const std::size_t before = barrier_count.load_relaxed();
  for (std::size_t i = kPages; i < kPages + kMisses; ++i) {
    EXPECT_TRUE(stage.cache->access(page(i)).cached());
  }
  EXPECT_LE(barrier_count.load_relaxed() - before, 3U);
  state.store_release(2);
  state.notify_all();
  resting.join();
  EXPECT_GE(stage.statistics().evictions, kMisses);
}

TEST_F(Capacity, NothingIsEvictedForAnAccessThatIsRefusedAnyway) {
  CacheStage stage(StagedMover::Mode::at_once, with_capacity(Bytes(3 * page_bytes_)));
  const Entry held = stage.cache->access(page(0));
  static_cast<void>(stage.cache->access(page(1)));
  static_cast<void>(stage.cache->access(page(2)));
  const auto three_pages = std::span(source_).subspan(8 * page_bytes_, 3 * page_bytes_);
  EXPECT_FALSE(stage.cache->access(three_pages).cached());
  EXPECT_EQ(stage.statistics().evictions, 0U);
  EXPECT_EQ(stage.statistics().refused, 1U);
  EXPECT_EQ(stage.statistics().bytes_cached, 3 * page_bytes_);
}

TEST_F(Capacity, ACopyThatIsHeldOutsideTheCacheStillTakesItsRoom) {
  CacheStage stage(StagedMover::Mode::at_once, with_capacity(Bytes(2 * page_bytes_)));
  std::optional<Entry> first = stage.cache->access(page(0));
  const Entry second = stage.cache->access(page(1));
  EXPECT_EQ(stage.cache->clear(), 2U);
  EXPECT_EQ(stage.statistics().bytes_cached, 2 * page_bytes_);
  EXPECT_FALSE(stage.cache->access(page(2)).cached());
  first.reset();
  EXPECT_TRUE(stage.cache->access(page(2)).cached());
  EXPECT_EQ(stage.statistics().evictions, 0U);
}

TEST_F(Capacity, AMoveThatRunsIsNotEvicted) {
  CacheStage stage(StagedMover::Mode::held, with_capacity(Bytes(page_bytes_)));
  static_cast<void>(stage.cache->access(page(0)));
  EXPECT_TRUE(stage.cache->access(page(1)).try_wait());
  EXPECT_EQ(stage.statistics().refused, 1U);
  stage.mover->release();
  static_cast<void>(stage.cache->access(page(1)));
  EXPECT_EQ(stage.statistics().evictions, 1U);
  stage.mover->release();
}

/// Limits the number of allocations, whatever the capacity.
class ScarceMemory final : public MemorySource {
 public:
  explicit ScarceMemory(std::size_t piece_count_max) : left_(piece_count_max) {}
  Result<std::span<std::byte>> allocate(std::size_t byte_count, NodeId node) override {
    if (left_ == 0) return fail(Code::out_of_memory, "allocate", "none is left", "free some");
    --left_;
    return memory_->allocate(byte_count, node);
  }
  void free(std::span<std::byte> memory) noexcept override {
    ++left_;
    memory_->free(memory);
  }

 private:
  std::size_t left_;
  std::shared_ptr<test::CountedMemory> memory_ = std::make_shared<test::CountedMemory>();
};

TEST_F(Capacity, WhereTheNodeHasLessThanTheCapacityUnusedEntriesMakeRoomToo) {
  const topo::Machine machine = test::hand_made_machine();
  std::vector<std::unique_ptr<engine::Mover>> movers;
  movers.push_back(std::make_unique<StagedMover>(StagedMover::Mode::at_once));
  const auto engine = std::move(engine::Engine::make(std::move(movers)).value());
  CacheOptions options;
  options.placement = placement::on(NodeId(8));
  options.memory = std::make_shared<ScarceMemory>(3);
  const auto cache = std::move(Cache::make(machine, *engine, std::move(options)).value());
  std::optional<Entry> held = cache->access(page(0));
  for (std::size_t i = 1; i < 8; ++i) EXPECT_TRUE(cache->access(page(i)).cached()) << i;
  EXPECT_EQ(cache->statistics().evictions, 5U);
  const Entry second = cache->access(page(8));
  const Entry third = cache->access(page(9));
  // All three are held now.
  EXPECT_FALSE(cache->access(page(10)).cached());
  EXPECT_EQ(cache->statistics().refused, 1U);
  held.reset();
  EXPECT_TRUE(cache->access(page(10)).cached());
}

TEST_F(Capacity, AnErrorOtherThanWantOfMemoryEvictsNobody) {
  CacheStage stage(StagedMover::Mode::at_once, with_capacity(Bytes(8 * page_bytes_)));
  for (std::size_t i = 0; i < 4; ++i) static_cast<void>(stage.cache->access(page(i)));
  stage.memory->break_down(true);
  EXPECT_FALSE(stage.cache->access(page(5)).cached());
  EXPECT_EQ(stage.statistics().evictions, 0U);
  EXPECT_EQ(stage.memory->live_count(), 4U);
}

TEST_F(Capacity, MemoryThatCannotBeUsedRefusesTheAccessAndGoesBack) {
  // Returns null, or a page that is too short or misaligned.
  class Bad final : public MemorySource {
   public:
    enum class How : std::uint8_t { null, short_of_it, crooked };
    explicit Bad(How how) : how_(how) {}
    Result<std::span<std::byte>> allocate(std::size_t byte_count, NodeId /*node*/) override {
      if (how_ == How::null) return std::span<std::byte>(static_cast<std::byte*>(nullptr), 0);
      ++live_count;
      page_.resize(2 * byte_count);
      return how_ == How::crooked ? std::span(page_).subspan(1, byte_count)
                                  : std::span(page_).first(byte_count - 1);
    }
    void free(std::span<std::byte> /*memory*/) noexcept override { --live_count; }
    int live_count = 0;

   private:
    const How how_;
    std::vector<std::byte> page_;
  };
  for (const auto how : {Bad::How::null, Bad::How::short_of_it, Bad::How::crooked}) {
    CacheStage stage;
    CacheOptions options;
    const auto memory = std::make_shared<Bad>(how);
    options.memory = memory;
    options.placement = placement::on(NodeId(8));
    const auto cache = Cache::make(stage.machine, *stage.engine, std::move(options)).value();
    const Entry entry = cache->access(page(0));
    EXPECT_FALSE(entry.cached());
    EXPECT_EQ(entry.data().data(), page(0).data());
    EXPECT_EQ(cache->statistics().refused, 1U);
    EXPECT_EQ(cache->statistics().policy_errors, 1U);
    EXPECT_EQ(cache->statistics().bytes_cached, 0U);
    EXPECT_EQ(memory->live_count, 0);
  }
}

TEST_F(Capacity, EachNodeHasItsOwn) {
  NodeId target(8);
  CacheOptions options = with_capacity(Bytes(page_bytes_));
  options.placement = [&](const PlacementContext&) { return std::optional(target); };
  CacheStage stage(StagedMover::Mode::at_once, std::move(options));
  const Entry near = stage.cache->access(page(0));
  target = NodeId(9);
  const Entry far = stage.cache->access(page(0));
  EXPECT_TRUE(near.cached());
  EXPECT_TRUE(far.cached());
  EXPECT_FALSE(stage.cache->access(page(1)).cached());
  EXPECT_EQ(stage.statistics().bytes_cached, 2 * page_bytes_);
}

TEST_F(Capacity, TheCopyOfOneByteTakesAPage) {
  CacheStage stage(StagedMover::Mode::at_once, with_capacity(Bytes(page_bytes_)));
  const Entry entry = stage.cache->access(page(0).first(1));
  EXPECT_TRUE(entry.cached());
  EXPECT_EQ(stage.statistics().bytes_cached, page_bytes_);
}

TEST_F(Capacity, ACapacityBelowOnePageRefusesEverything) {
  CacheStage stage(StagedMover::Mode::at_once, with_capacity(Bytes(1)));
  EXPECT_FALSE(stage.cache->access(page(0).first(1)).cached());
  EXPECT_EQ(stage.statistics().refused, 1U);
}

TEST_F(Capacity, MemoryThatALateDeviceMayWriteToIsNeverUsedAgain) {
  CacheStage stage(StagedMover::Mode::at_once, with_capacity(Bytes(3 * page_bytes_)));
  stage.mover->leave_late_writes(true);
  {
    const Entry entry = stage.cache->access(page(0));
    entry.wait();
    EXPECT_FALSE(entry.cached()) << "what is right in the copy now may be overwritten";
    EXPECT_EQ(entry.data().data(), page(0).data());
  }
  EXPECT_EQ(stage.statistics().moves_failed, 1U);
  EXPECT_EQ(stage.statistics().bytes_moved, 0U);
  EXPECT_EQ(stage.statistics().late_writes, 1U);
  EXPECT_EQ(stage.cache->clear(), 1U);
  EXPECT_EQ(stage.memory->live_count(), 1U) << "no other entry may get it";
  EXPECT_EQ(stage.statistics().bytes_kept, page_bytes_);
  EXPECT_EQ(stage.statistics().bytes_cached, page_bytes_) << "nor its room";
  stage.mover->leave_late_writes(false);
  EXPECT_TRUE(
      stage.cache->access(std::span(source_).subspan(page_bytes_, 2 * page_bytes_)).cached());
  EXPECT_FALSE(stage.cache->access(std::span(source_).first(3 * page_bytes_)).cached());
  EXPECT_EQ(stage.cache->clear(), 1U);
  EXPECT_EQ(stage.memory->take_back(), 1U);
}

TEST_F(Capacity, MemoryThatALateDeviceMayWriteToServesNoNewcomer) {
  CacheStage stage(StagedMover::Mode::at_once, with_capacity(Bytes(2 * page_bytes_)));
  stage.mover->leave_late_writes(true);
  static_cast<void>(stage.cache->access(page(0)));
  stage.mover->leave_late_writes(false);
  static_cast<void>(stage.cache->access(page(1)));
  EXPECT_TRUE(stage.cache->access(page(2)).cached()) << "in the memory of page 1";
  EXPECT_EQ(stage.statistics().evictions, 2U);
  EXPECT_EQ(stage.statistics().bytes_kept, page_bytes_);
  EXPECT_EQ(stage.cache->clear(), 1U);
  EXPECT_EQ(stage.memory->take_back(), 1U);
}

TEST_F(Capacity, WhatWasEvictedServesTheNextOfItsLength) {
  constexpr std::size_t kPages = 256;
  const std::vector<std::byte> source(2 * kPages * page_bytes_);
  CacheStage stage(StagedMover::Mode::at_once, with_capacity(Bytes(kPages * page_bytes_)));
  const auto access = [&](std::size_t i, std::size_t pages = 1) {
    return stage.cache->access(std::span(source).subspan(i * page_bytes_, pages * page_bytes_));
  };
  for (std::size_t i = 0; i < kPages; ++i) ASSERT_TRUE(access(i).cached());
  stage.memory->break_down(true);
  for (std::size_t i = kPages; i < kPages + 21; ++i) ASSERT_TRUE(access(i).cached()) << i;
  stage.memory->break_down(false);
  EXPECT_EQ(stage.memory->live_count(), kPages) << "three wait for newcomers";
  EXPECT_TRUE(access(2 * kPages - 2, 2).cached()) << "in their room";
  const CacheStatistics statistics = stage.statistics();
  EXPECT_LE(statistics.evictions, 26U);
  EXPECT_EQ(statistics.bytes_cached, (kPages + 22 - statistics.evictions + 1) * page_bytes_)
      << "frees what waits";
  EXPECT_EQ(stage.memory->live_count(), kPages + 22 - statistics.evictions);
}

TEST_F(Capacity, WhatAnotherThreadKeepsServesWhenNothingElseIsLeft) {
  constexpr std::size_t kPages = 4096;
  const std::vector<std::byte> source((kPages + 256) * page_bytes_);
  CacheStage stage(StagedMover::Mode::at_once, with_capacity(Bytes(kPages * page_bytes_)));
  const auto page = [&](std::size_t i) {
    return std::span(source).subspan(i * page_bytes_, page_bytes_);
  };
  for (std::size_t i = 0; i < kPages; ++i) static_cast<void>(stage.cache->access(page(i)));
  // It evicts several, and keeps some of them for its next misses.
  std::thread([&] { static_cast<void>(stage.cache->access(page(kPages))); }).join();
  std::vector<Entry> held;
  for (std::size_t i = 0; i <= kPages; ++i) {
    Entry entry = stage.cache->access_weak(page(i));
    if (entry.cached()) held.push_back(std::move(entry));
  }
  EXPECT_LT(held.size(), kPages - 4);
  for (std::size_t i = kPages + 1; held.size() < kPages; ++i) {
    held.push_back(stage.cache->access(page(i)));
    ASSERT_TRUE(held.back().cached()) << held.size();
  }
  EXPECT_FALSE(stage.cache->access(page(kPages + 255)).cached());
  EXPECT_EQ(stage.statistics().bytes_cached, kPages * page_bytes_);
}

TEST(OperatingSystemPages, LieOnTheNodeAskedForAndAMissingNodeIsAnError) {
  const auto pages = operating_system_pages();
  const auto memory = pages->allocate(platform::page_bytes(), NodeId(0));
  ASSERT_TRUE(memory.has_value()) << memory.error().message();
  // Skipped if the kernel does not report the node of a page.
  EXPECT_EQ(platform::node_of_address(memory->data()).value_or(NodeId(0)), NodeId(0));
  pages->free(*memory);
  EXPECT_FALSE(pages->allocate(platform::page_bytes(), NodeId(4095)).has_value());
}

}  // namespace
}  // namespace headrace::cache
