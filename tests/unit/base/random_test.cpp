// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/random.hpp"

#include <gtest/gtest.h>

#include <array>

#include "support/seed.hpp"

namespace headrace {
namespace {

TEST(Random, TheSameSeedGivesTheSameSequence) {
  Random first(test::seed());
  Random second(test::seed());
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(first(), second());
}

TEST(Random, KnownAnswersForSeedZero) {
  // From the published reference code of xoshiro256** seeded by splitmix64(0).
  Random random(0);
  EXPECT_EQ(random(), 0x99ec5f36cb75f2b4U);
  EXPECT_EQ(random(), 0xbf6e1f784956452aU);
}

TEST(Random, BelowIsUniformEnough) {
  Random random(test::seed());
  std::array<int, 7> counts{};
  for (int i = 0; i < 70000; ++i) ++counts[random.below(counts.size())];
  // 10 standard deviations: fails once in 1e22 runs.
  for (const int count : counts) EXPECT_NEAR(count, 10000, 930);
}

}  // namespace
}  // namespace headrace
