// SPDX-License-Identifier: Apache-2.0
#include "engine/split.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <vector>

namespace headrace::engine::detail {
namespace {

CopyPlan plan_at(std::uintptr_t target, std::size_t byte_count) {
  // Never touched: splitting is arithmetic.
  return {.target = {reinterpret_cast<std::byte*>(target), byte_count},
          .source = {reinterpret_cast<const std::byte*>(std::uintptr_t{1} << 40U), byte_count}};
}

TEST(Split, SmallCopiesGetFewMovers) {
  EXPECT_EQ(share_count(1, 8), 1U);
  EXPECT_EQ(share_count(kShareBytesMin, 8), 1U);
  EXPECT_EQ(share_count(2 * kShareBytesMin - 1, 8), 1U);
  EXPECT_EQ(share_count(2 * kShareBytesMin, 8), 2U);
  EXPECT_EQ(share_count(std::size_t{1} << 30U, 3), 3U);
  EXPECT_EQ(share_count(std::size_t{1} << 30U, 100), Job::kShareMax);
}

RC_GTEST_PROP(Split, SharesCoverThePlanInOrderAndAreEvenAndAligned, ()) {
  const auto target = std::uintptr_t{1} << 44U | *rc::gen::inRange<std::uintptr_t>(0, 1U << 20U);
  const auto byte_count = *rc::gen::inRange<std::size_t>(1, std::size_t{1} << 24U);
  const auto mover_count = *rc::gen::inRange<std::size_t>(1, 20);
  const CopyPlan plan = plan_at(target, byte_count);
  std::vector<Share> shares(share_count(byte_count, mover_count));
  split(Operation::copy(plan.target, plan.source), shares);
  RC_ASSERT(!shares.empty());
  std::size_t begin = 0;
  for (const Share& share : shares) {
    RC_ASSERT(share.byte_count > 0U);
    RC_ASSERT(share.offset_bytes == begin);
    RC_ASSERT(begin == 0 || (target + begin) % kShareAlignment == 0);
    const std::size_t even = byte_count / shares.size();
    RC_ASSERT(share.byte_count + kShareAlignment > even);
    RC_ASSERT(share.byte_count < even + kShareAlignment + shares.size());
    begin += share.byte_count;
  }
  RC_ASSERT(begin == byte_count);
}

}  // namespace
}  // namespace headrace::engine::detail
