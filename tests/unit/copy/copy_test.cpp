// SPDX-License-Identifier: Apache-2.0
#include "headrace/copy/copy.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "headrace/base/random.hpp"
#include "support/seed.hpp"

namespace headrace::copy {
namespace {

TEST(Copy, EmptySpansMayBeNull) {
  copy_bytes({}, {});
}

TEST(CopyDeathTest, SpansOfDifferentLengthAreABrokenContract) {
  std::vector<std::byte> target(7);
  const std::vector<std::byte> source(8);
  EXPECT_DEATH(copy_bytes(target, source), "the same length \\[7, 8\\]");
}

TEST(Copy, AListIsCopiedInItsOrderWhateverOverlaps) {
  Random random(test::seed());
  for (int round = 0; round < 300; ++round) {
    // Each item may read the target of an earlier one, and overlap itself.
    const std::size_t longest = round % 2 == 0 ? 80 : 3000;
    std::vector<std::byte> bytes(4 * longest);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    std::vector<std::byte> expected = bytes;
    std::vector<CopyItem> items;
    for (std::uint64_t count = random.below(40); count > 0; --count) {
      const std::size_t byte_count = random.below(longest + 1);
      const std::size_t target = random.below(bytes.size() - byte_count + 1);
      const std::size_t source = random.below(bytes.size() - byte_count + 1);
      items.push_back({bytes.data() + target, bytes.data() + source, byte_count});
      std::memmove(expected.data() + target, expected.data() + source, byte_count);
    }
    copy_many(items);
    ASSERT_EQ(bytes, expected) << round;
  }
  copy_many({});
  copy_many(std::array{CopyItem{}});
}

}  // namespace
}  // namespace headrace::copy
