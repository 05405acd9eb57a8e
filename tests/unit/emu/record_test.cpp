// SPDX-License-Identifier: Apache-2.0
// The order in which a completion record is written, made visible by a page boundary within it: a
// race would show it only occasionally.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "emu/operation/memory.hpp"
#include "emu/platform/guarded.hpp"
#include "support/guarded_buffer.hpp"

namespace headrace::emu {
namespace {

TEST(Record, has_no_status_while_its_other_bytes_are_missing) {
  guarded::install();
  const test::GuardedBuffer buffer(1);
  std::array<std::byte, 32> bytes{};
  std::ranges::fill(bytes, std::byte{1});
  const std::span<std::byte> half = buffer.back(16);
  const Reach reach = process_memory().write_record(reinterpret_cast<std::uintptr_t>(half.data()),
                                                    std::span<const std::byte, 32>(bytes));
  ASSERT_TRUE(reach.fault);
  EXPECT_TRUE(reach.fault->write);
  EXPECT_EQ(half[0], std::byte{0});
}

}  // namespace
}  // namespace headrace::emu
