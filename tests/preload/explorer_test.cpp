// SPDX-License-Identifier: Apache-2.0
// Exploring in service: few calls are timed, it ends, and only what loses clearly is given up.
#include "inject/copy/explorer.hpp"

#include <gtest/gtest.h>

#include "headrace/base/random.hpp"
#include "support/seed.hpp"

namespace headrace::preload {
namespace {

constexpr std::size_t kClass = 15;
constexpr std::uint32_t kAll = 2 * Explorer::kPairs * Explorer::kInterval;

struct Ending {
  std::uint32_t timed = 0;
  std::uint32_t by_fallback = 0;
  std::uint32_t given_up = 0;
};

/// Many calls, whose cost by the byte `cost_of` says, of either copy.
template <typename Cost>
Ending explore(Cost cost_of) {
  Explorer explorer;
  Random random(test::seed());
  Ending ending;
  for (std::uint32_t call = 0; call < 3 * kAll; ++call) {
    const Explorer::Turn turn = explorer.turn(kClass);
    ending.by_fallback += turn.by_fallback ? 1U : 0U;
    if (!turn.timed) continue;
    EXPECT_LT(call, kAll);
    ++ending.timed;
    const std::size_t byte_count = 32'769 + random.below(32'768);
    const double cost = cost_of(!turn.by_fallback, random);
    const auto taken_ns = static_cast<std::uint64_t>(static_cast<double>(byte_count) * cost);
    ending.given_up += explorer.tell(kClass, turn, byte_count, taken_ns) ? 1U : 0U;
  }
  return ending;
}

TEST(Explorer, WhatLosesIsGivenUpOnce) {
  const Ending ending = explore([](bool profile, Random&) { return profile ? 0.11 : 0.1; });
  EXPECT_EQ(ending.timed, 2 * Explorer::kPairs);
  EXPECT_LE(ending.by_fallback, kAll / 50);
  EXPECT_EQ(ending.given_up, 1U);
}

TEST(Explorer, WhatWinsOrIsAsFastStays) {
  EXPECT_EQ(explore([](bool profile, Random&) { return profile ? 0.1 : 0.11; }).given_up, 0U);
  EXPECT_EQ(explore([](bool, Random&) { return 0.1; }).given_up, 0U);
}

TEST(Explorer, CallsThatWereInterruptedDoNotDecide) {
  const Ending ending = explore([](bool profile, Random& random) {
    if (profile && random.chance(1, 8)) return 100.0;
    return profile ? 0.1 : 0.12;
  });
  EXPECT_EQ(ending.given_up, 0U);
}

}  // namespace
}  // namespace headrace::preload
