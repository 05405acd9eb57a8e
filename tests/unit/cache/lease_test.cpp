// SPDX-License-Identifier: Apache-2.0
// What a lease counts, at its ends; the protocol itself is in tests/model/cache.
#include "lease.hpp"

#include <gtest/gtest.h>

namespace headrace::cache::detail {
namespace {

TEST(LeaseDeathTest, MoreHandlesThanFitTheCountAreABrokenContract) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Slot slot;
  slot.share_count.store_relaxed(~std::uint32_t{0});
  EXPECT_DEATH(share(slot), "fewer than 2\\^32 copies");
}

TEST(Lease, OneHandleLessThanFitIsFine) {
  Slot slot;
  slot.share_count.store_relaxed(~std::uint32_t{0} - 1);
  share(slot);
  EXPECT_EQ(slot.share_count.load_relaxed(), ~std::uint32_t{0});
  EXPECT_EQ(give_back(slot), nullptr);
}

}  // namespace
}  // namespace headrace::cache::detail
