// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>
#include <thread>
#include <vector>

#include "headrace/base/random.hpp"
#include "headrace/cache/cache.hpp"
#include "support/cache_stage.hpp"
#include "support/seed.hpp"

namespace headrace::cache {
namespace {

class Recycled : public ::testing::Test {
 protected:
  std::span<std::byte> allocate(std::size_t byte_count, NodeId node = NodeId(8)) {
    return memory_->allocate(byte_count, node).value();
  }
  const std::shared_ptr<test::CountedMemory> upstream_ = std::make_shared<test::CountedMemory>();
  std::shared_ptr<MemorySource> memory_ = recycled(upstream_);
};

constexpr std::size_t kSlabBytes = std::size_t{2} << 20U;

TEST_F(Recycled, WhatIsFreedServesTheNextOfTheSameLengthAndNode) {
  const std::span<std::byte> first = allocate(4096);
  memory_->free(first);
  EXPECT_EQ(upstream_->live_count(), 1U);
  EXPECT_EQ(allocate(4096).data(), first.data());
  memory_->free(first);
  const std::span<std::byte> elsewhere = allocate(4096, NodeId(9));
  EXPECT_EQ(upstream_->node_of(elsewhere.data()), NodeId(9));
  memory_->free(elsewhere);
}

TEST_F(Recycled, CopiesOfOneLengthShareASlabAndNoByte) {
  for (const std::size_t byte_count :
       {std::size_t{4096}, std::size_t{36864}, std::size_t{65536}, std::size_t{1} << 20U}) {
    std::map<const std::byte*, std::span<std::byte>> all;
    const std::size_t count = kSlabBytes / byte_count;
    for (std::size_t i = 0; i < count * 2; ++i) {
      const std::span<std::byte> one = allocate(byte_count);
      ASSERT_EQ(one.size(), byte_count);
      all.emplace(one.data(), one);
    }
    const std::byte* end = nullptr;
    for (const auto& [first, one] : all) {
      EXPECT_GE(first, end);
      end = first + byte_count;
    }
    // A length that is rounded to the next of its kind wastes at most a fifth.
    EXPECT_LE(upstream_->bytes_live(), 3 * kSlabBytes) << byte_count;
    for (const auto& [first, one] : all) memory_->free(one);
  }
  // What a slab was for does not matter once it is empty.
  EXPECT_LE(upstream_->bytes_live(), 3 * kSlabBytes);
}

TEST_F(Recycled, OtherLengthsTakeTheRoomOfWhatIsKept) {
  const std::span<std::byte> first = allocate(3 * kSlabBytes);
  const std::span<std::byte> second = allocate(4096);
  memory_->free(first);
  memory_->free(second);
  EXPECT_EQ(upstream_->bytes_live(), 4 * kSlabBytes);
  const std::span<std::byte> longer = allocate(4 * kSlabBytes);
  EXPECT_EQ(upstream_->bytes_live(), 4 * kSlabBytes);
  memory_->free(longer);
}

TEST_F(Recycled, ALongCopyOfTheLengthOfASlabIsFreedWhereItCameFrom) {
  memory_->free(allocate(4096));
  const std::span<std::byte> slab = allocate(kSlabBytes);
  memory_->free(allocate(4096));
  memory_->free(slab);
  memory_->free(allocate(kSlabBytes));
  memory_->free(allocate(4096));
}

TEST_F(Recycled, WhatIsKeptGoesBackWithTheSource) {
  memory_->free(allocate(4096));
  memory_->free(allocate(3 * kSlabBytes));
  memory_.reset();
  EXPECT_EQ(upstream_->live_count(), 0U);
}

TEST_F(Recycled, AFullNodeIsStillAnError) {
  upstream_->fill_up(NodeId(8));
  EXPECT_EQ(memory_->allocate(4096, NodeId(8)).error().code, Code::out_of_memory);
}

TEST_F(Recycled, NeverHoldsMoreThanWasInUseWhateverTheThreadsDo) {
  constexpr std::size_t kThreads = 4;
  std::vector<std::thread> threads;
  for (std::size_t index = 0; index < kThreads; ++index) {
    threads.emplace_back([this, index] {
      Random random(test::seed() + index);
      for (int i = 0; i < 2000; ++i) {
        const std::span<std::byte> mine = allocate(4096 * (1 + random.below(16)));
        mine.front() = static_cast<std::byte>(index);
        mine.back() = static_cast<std::byte>(index);
        EXPECT_EQ(mine.front(), static_cast<std::byte>(index));
        memory_->free(mine);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // Nothing is in use; each thread had at most one slab at any time.
  EXPECT_LE(upstream_->bytes_live(), kThreads * kSlabBytes);
}

}  // namespace
}  // namespace headrace::cache
