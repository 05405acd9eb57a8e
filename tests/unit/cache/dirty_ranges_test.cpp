// SPDX-License-Identifier: Apache-2.0
// Which thread writes back dirty bytes whose entry is dropped meanwhile. The caller's view:
// change_test.cpp and tests/stress/cache.
#include "dirty_ranges.hpp"

#include <gtest/gtest.h>

namespace headrace::cache::detail {
namespace {

class ChangesOfADroppedEntry : public testing::Test {
 protected:
  void SetUp() override {
    EntryState& entry = pool_[number_];
    // relaxed: one thread.
    entry.address.store_relaxed(kRegion.address);
    entry.byte_count.store_relaxed(kRegion.byte_count);
    ASSERT_EQ(begin(true), DirtyRanges::Begin::done);
  }
  void change_and_begin_again() {
    ASSERT_FALSE(changes_.end(range_));
    ASSERT_EQ(begin(true), DirtyRanges::Begin::done);
  }
  DirtyRanges::Begin begin(bool is_listed) {
    return changes_.begin(kRegion, number_, range_, [=] { return is_listed; });
  }
  /// A range that is being changed cannot be claimed.
  void drop() { EXPECT_FALSE(changes_.claim_one(number_)); }

  static constexpr Region kRegion{4096, 1024};
  Pool pool_;
  Pool::Stash stash_;
  const std::uint32_t number_ = pool_.take_entry(stash_).number;
  DirtyRanges changes_{pool_};
  DirtyRanges::Range range_;
};

TEST_F(ChangesOfADroppedEntry, AreReturnedByWhoEndsTheChange) {
  drop();
  ASSERT_TRUE(changes_.end(range_));
  changes_.mark_clean(range_);
  EXPECT_FALSE(changes_.any());
}

TEST_F(ChangesOfADroppedEntry, AreReturnedByWhoEndsTheNextChange) {
  ASSERT_FALSE(changes_.end(range_));
  ASSERT_EQ(begin(true), DirtyRanges::Begin::done);
  drop();
  ASSERT_TRUE(changes_.end(range_)) << "no other thread returns what was changed before";
  changes_.mark_clean(range_);
  EXPECT_FALSE(changes_.any());
}

TEST_F(ChangesOfADroppedEntry, AreNotHiddenByAChangeThatComesTooLate) {
  ASSERT_FALSE(changes_.end(range_));
  EXPECT_EQ(begin(false), DirtyRanges::Begin::gone);
  DirtyRanges::Range claimed;
  ASSERT_EQ(changes_.claim_overlapping(kRegion, claimed), DirtyRanges::Claim::done);
  EXPECT_EQ(claimed.region.address, kRegion.address);
  EXPECT_EQ(claimed.region.byte_count, kRegion.byte_count);
  changes_.mark_clean(claimed);
  EXPECT_FALSE(changes_.any());
}

TEST_F(ChangesOfADroppedEntry, AreNoneWhereNoChangeBegan) {
  ASSERT_FALSE(changes_.end(range_));
  changes_.mark_clean(*changes_.claim_one(number_));
  EXPECT_EQ(begin(false), DirtyRanges::Begin::gone);
  EXPECT_FALSE(changes_.any());
  EXPECT_FALSE(pool_[number_].is_dirty());
}

}  // namespace
}  // namespace headrace::cache::detail
