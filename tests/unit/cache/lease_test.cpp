// SPDX-License-Identifier: Apache-2.0
// Limits of a lease's count. The protocol: tests/model/cache.
#include "lease.hpp"

#include <gtest/gtest.h>

#include "headrace/cache/cache.hpp"
#include "support/cache_stage.hpp"

namespace headrace::cache::detail {
namespace {

TEST(Lease, AHandleMoreThanFitsTheCountIsNotToBeHad) {
  Slot slot;
  slot.share_count.store_relaxed(kShareCountMax - 1);
  EXPECT_TRUE(share(slot));
  EXPECT_FALSE(share(slot));
  EXPECT_EQ(slot.share_count.load_relaxed(), kShareCountMax);
  EXPECT_EQ(give_back(slot), nullptr);
  EXPECT_TRUE(share(slot));
}

TEST(Lease, ACopyOfAHandleThatIsNotToBeHadPointsAtTheSource) {
  const auto source = test::numbered_bytes(100);
  test::CacheStage stage;
  const Entry entry = stage.cache->access(source);
  const auto set = [](std::uint32_t count) {
    Reader::registry().for_each_lease(
        [&](Slot& slot, std::uintptr_t /*word*/) { slot.share_count.store_relaxed(count); });
  };
  set(kShareCountMax);
  {
    const Entry copy(entry);
    EXPECT_FALSE(copy.cached());
    EXPECT_EQ(copy.data().data(), source.data());
  }
  EXPECT_TRUE(entry.cached());
  set(1);
}

}  // namespace
}  // namespace headrace::cache::detail
