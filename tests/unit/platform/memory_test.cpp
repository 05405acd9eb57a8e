// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/memory.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace headrace::platform {
namespace {

TEST(Memory, PagesAreZeroedAlignedAndWritable) {
  const auto pages = allocate_pages(5000, std::nullopt);
  ASSERT_TRUE(pages.has_value()) << pages.error().message();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pages->data()) % page_bytes(), 0U);
  EXPECT_GE(pages->size(), 5000U);
  for (std::byte& byte : *pages) {
    ASSERT_EQ(byte, std::byte{0});
    byte = std::byte{1};
  }
  free_pages(*pages);
}

TEST(Memory, PrefaultedPagesLieOnTheNodeAskedFor) {
  const auto pages = allocate_pages(1 << 20, NodeId(0));
  ASSERT_TRUE(pages.has_value()) << pages.error().message();
  ASSERT_TRUE(prefault_pages(*pages).has_value());
  const auto node = node_of_address(pages->data() + pages->size() - 1);
  // Where the kernel hides the place of a page there is nothing to compare with.
  EXPECT_EQ(node.value_or(NodeId(0)), NodeId(0));
  free_pages(*pages);
}

TEST(Memory, AnUnknownNodeIsRefusedByName) {
  const auto pages = allocate_pages(4096, NodeId(4095));
  ASSERT_FALSE(pages.has_value());
  EXPECT_NE(pages.error().message().find("node 4095"), std::string::npos);
}

TEST(Memory, MoreThanANodeHasLeftIsRefusedBeforeItIsTaken) {
  const auto available = available_on_node(NodeId(0));
  const std::uint64_t wanted = available.value_or(gib(1)).count() + gib(64).count();
  const auto pages = allocate_pages(wanted, NodeId(0));
  ASSERT_FALSE(pages.has_value());
  EXPECT_EQ(pages.error().code, Code::out_of_memory);
}

TEST(Memory, MoreThanANodeHasLeftIsRefusedRightAfterWhatFits) {
  for (int i = 0; i < 3; ++i) {
    const auto fits = allocate_pages(4096, NodeId(0));
    ASSERT_TRUE(fits.has_value()) << fits.error().message();
    const auto available = available_on_node(NodeId(0));
    const std::uint64_t wanted = available.value_or(gib(1)).count() * 2 + gib(64).count();
    const auto too_much = allocate_pages(wanted, NodeId(0));
    ASSERT_FALSE(too_much.has_value());
    if (available.has_value()) {
      EXPECT_NE(too_much.error().message().find("the node has only"), std::string::npos)
          << too_much.error().message();
    }
    free_pages(*fits);
  }
}

TEST(Memory, ANodeThatIsNotThereHasNothingToTell) {
  EXPECT_FALSE(available_on_node(NodeId(4095)).has_value());
}

TEST(Memory, AbsurdLengthsAreErrors) {
  EXPECT_EQ(allocate_pages(0, std::nullopt).error().code, Code::invalid_argument);
  EXPECT_EQ(allocate_pages(SIZE_MAX, std::nullopt).error().code, Code::invalid_argument);
  EXPECT_EQ(allocate_pages(std::size_t{1} << 60U, std::nullopt).error().code, Code::out_of_memory);
}

}  // namespace
}  // namespace headrace::platform
