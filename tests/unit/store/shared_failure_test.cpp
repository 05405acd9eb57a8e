// SPDX-License-Identifier: Apache-2.0
// Shared stores whose processes are forked, interrupted or killed, or have no descriptors left.

#include "shared_stage.hpp"

namespace headrace::store {
namespace {

TEST_F(Shared, APinEndsWithItsBlock) {
  make_engine();
  serve();
  auto a = client();
  const auto b = client();
  for (std::uint64_t key = 0; key < kBlocks / 8 + 1; ++key) {
    ASSERT_EQ(put(*a, key, 1), Outcome::done);
    EXPECT_TRUE(a->pin(std::to_string(key))) << "its part is free again";
    EXPECT_EQ((key % 2 == 0 ? a : b)->remove(std::to_string(key)), Outcome::done);
  }
  EXPECT_FALSE(a->unpin("0"));
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t key = 0; key < kBlocks / 8; ++key) {
      ASSERT_EQ(put(*a, key, 1), Outcome::done);
      EXPECT_TRUE(a->pin(std::to_string(key)));
    }
    EXPECT_EQ(b->clear(), kBlocks / 8);
  }
  EXPECT_EQ(b->statistics().clients.at(0).pins, 0U);
  // The end of a client ends no pin that another has set since.
  ASSERT_EQ(put(*b, 1, 1), Outcome::done);
  EXPECT_TRUE(a->pin("1"));
  EXPECT_EQ(b->remove("1"), Outcome::done);
  ASSERT_EQ(put(*b, 1, 2), Outcome::done);
  EXPECT_TRUE(b->pin("1"));
  a.reset();
  while (b->statistics().clients.size() != 1) std::this_thread::yield();
  for (std::uint64_t key = 100; key < 300; ++key) ASSERT_EQ(put(*b, key, 1), Outcome::done);
  EXPECT_EQ(get(*b, 1), 2U);
}

}  // namespace
}  // namespace headrace::store
