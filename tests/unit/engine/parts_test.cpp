// SPDX-License-Identifier: Apache-2.0
#include "engine/parts.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <vector>

namespace headrace::engine::detail {
namespace {

CopyPlan plan_at(std::uintptr_t target, std::size_t byte_count) {
  // Never accessed: splitting is arithmetic.
  return {.target = {reinterpret_cast<std::byte*>(target), byte_count},
          .source = {reinterpret_cast<const std::byte*>(std::uintptr_t{1} << 40U), byte_count}};
}

TEST(Split, SmallCopiesGetFewMovers) {
  EXPECT_EQ(part_count(1, 8), 1U);
  EXPECT_EQ(part_count(kPartBytesMin, 8), 1U);
  EXPECT_EQ(part_count(2 * kPartBytesMin - 1, 8), 1U);
  EXPECT_EQ(part_count(2 * kPartBytesMin, 8), 2U);
  EXPECT_EQ(part_count(std::size_t{1} << 30U, 3), 3U);
  EXPECT_EQ(part_count(std::size_t{1} << 30U, 100), MoverChoice::kMoverMax);
}

RC_GTEST_PROP(Split, PartsCoverThePlanInOrderAndAreEvenAndAligned, ()) {
  const auto target = std::uintptr_t{1} << 44U | *rc::gen::inRange<std::uintptr_t>(0, 1U << 20U);
  const auto byte_count = *rc::gen::inRange<std::size_t>(1, std::size_t{1} << 24U);
  const auto mover_count = *rc::gen::inRange<std::size_t>(1, 20);
  const CopyPlan plan = plan_at(target, byte_count);
  const Operation copy = Operation::copy(plan.target, plan.source);
  const std::size_t count = part_count(byte_count, mover_count);
  RC_ASSERT(count > 0U);
  std::size_t begin = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t end = part_end(copy, i, count);
    RC_ASSERT(end > begin);
    RC_ASSERT(begin == 0 || (target + begin) % kPartAlignment == 0);
    const std::size_t even = byte_count / count;
    RC_ASSERT(end - begin + kPartAlignment > even);
    RC_ASSERT(end - begin < even + kPartAlignment + count);
    begin = end;
  }
  RC_ASSERT(begin == byte_count);
}

}  // namespace
}  // namespace headrace::engine::detail
