// SPDX-License-Identifier: Apache-2.0
// The memory of evicted regions: it holds the newest, about as many as configured, and hardly
// anything else.
#include "ghosts.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace headrace::cache::detail {
namespace {

constexpr std::uintptr_t kFirst = 0x7f0012340000;

/// Pages in an order unrelated to their addresses.
std::uintptr_t page(std::uint32_t index) {
  return kFirst + std::uintptr_t{index * 2654435761U % (1U << 22U)} * 4096;
}

TEST(Ghosts, RemembersNothingAtFirst) {
  Ghosts ghosts;
  EXPECT_FALSE(ghosts.take(page(0)));
}

TEST(Ghosts, ForgetsWhatIsTaken) {
  Ghosts ghosts;
  ghosts.add(page(0), 16);
  EXPECT_FALSE(ghosts.take(page(1)));
  EXPECT_TRUE(ghosts.take(page(0)));
  EXPECT_FALSE(ghosts.take(page(0)));
}

TEST(Ghosts, OfFewKnowsMostOfTheNewest) {
  Ghosts ghosts;
  for (std::uint32_t i = 0; i < 1000; ++i) ghosts.add(page(i), 100);
  std::uint32_t newest_count = 0;
  std::uint32_t known_count = 0;
  for (std::uint32_t i = 1000; i-- > 0;) {
    const bool known = ghosts.take(page(i));
    if (i >= 900) newest_count += known ? 1U : 0U;
    known_count += known ? 1U : 0U;
  }
  EXPECT_GT(newest_count, 80U);
  EXPECT_LE(known_count, 128U) << "a quarter more than asked for, for its growth";
}

TEST(Ghosts, OfManyKnowsMostOfTheNewestAndHardlyAnythingElse) {
  constexpr std::uint32_t kCount = 100'000;
  Ghosts ghosts;
  for (std::uint32_t i = 0; i < 5 * kCount; ++i) ghosts.add(page(i), kCount);
  std::uint32_t newest_count = 0;
  std::uint32_t old_count = 0;
  std::uint32_t strange_count = 0;
  for (std::uint32_t i = 0; i < kCount / 2; ++i) {
    newest_count += ghosts.take(page(5 * kCount - 1 - i)) ? 1U : 0U;
    old_count += ghosts.take(page(i)) ? 1U : 0U;
    strange_count += ghosts.take(page(10 * kCount + i)) ? 1U : 0U;
  }
  EXPECT_GT(newest_count, kCount / 2 * 99 / 100);
  EXPECT_LT(old_count, kCount / 2 / 100);
  EXPECT_LT(strange_count, kCount / 2 / 100);
}

TEST(Ghosts, KeepsTheNewestWhenMoreOrFewerAreAskedFor) {
  Ghosts ghosts;
  for (std::uint32_t i = 0; i < 4000; ++i) ghosts.add(page(i), 16 + i);
  EXPECT_TRUE(ghosts.take(page(3999)));
  std::uint32_t count = 0;
  for (std::uint32_t i = 0; i < 3999; ++i) count += ghosts.take(page(i)) ? 1U : 0U;
  EXPECT_GT(count, 3500U) << "they were never more than asked for";
  for (std::uint32_t i = 5000; i < 9000; ++i) ghosts.add(page(i), 4000);
  ghosts.add(page(9000), 20);
  EXPECT_TRUE(ghosts.take(page(9000)));
}

}  // namespace
}  // namespace headrace::cache::detail
