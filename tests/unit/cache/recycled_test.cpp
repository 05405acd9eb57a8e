// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

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

TEST_F(Recycled, OtherLengthsTakeTheRoomOfWhatIsKept) {
  const std::span<std::byte> first = allocate(4096);
  const std::span<std::byte> second = allocate(4096);
  const std::span<std::byte> third = allocate(4096);
  for (const std::span<std::byte> one : {first, second, third}) memory_->free(one);
  EXPECT_EQ(upstream_->bytes_live(), 12288U);
  const std::span<std::byte> longer = allocate(8192);
  EXPECT_EQ(upstream_->bytes_live(), 12288U);
  memory_->free(longer);
}

TEST_F(Recycled, WhatIsKeptGoesBackWithTheSource) {
  memory_->free(allocate(4096));
  memory_.reset();
  EXPECT_EQ(upstream_->live_count(), 0U);
}

TEST_F(Recycled, AFullNodeIsStillAnError) {
  upstream_->fill_up(NodeId(8));
  EXPECT_EQ(memory_->allocate(4096, NodeId(8)).error().code, Code::out_of_memory);
}

TEST_F(Recycled, NeverHoldsMoreThanWasInUseWhateverTheThreadsDo) {
  constexpr std::size_t kThreads = 4;
  constexpr std::size_t kBytesMax = 16 * 4096;
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
  // Nothing is in use; each thread had at most the longest at any time.
  EXPECT_LE(upstream_->bytes_live(), kThreads * kBytesMax);
}

}  // namespace
}  // namespace headrace::cache
