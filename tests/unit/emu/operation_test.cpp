// SPDX-License-Identifier: Apache-2.0
#include "emu/operation/operation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "emu/platform/guarded.hpp"
#include "support/guarded_buffer.hpp"

namespace headrace::emu {
namespace {

using test::GuardedBuffer;

constexpr std::size_t kPageBytes = 4096;
constexpr Limits kLimits{.transfer_bytes_max = 2U << 20, .batch_max = 32, .block_on_fault = true};

Address address_of(const std::byte* place) {
  return reinterpret_cast<Address>(place);
}

dsa::Descriptor move(Address target, Address source, std::uint32_t byte_count) {
  dsa::Descriptor descriptor{};
  descriptor.opcode = DSA_OPCODE_MEMMOVE;
  descriptor.flags = dsa::flag::block_on_fault;
  descriptor.src_addr = source;
  descriptor.dst_addr = target;
  descriptor.xfer_size = byte_count;
  return descriptor;
}

class MoveTest : public ::testing::Test {
 protected:
  MoveTest() { guarded::install(); }
};

TEST_F(MoveTest, overlap_is_allowed_in_both_directions_and_in_slices) {
  for (const std::ptrdiff_t distance : {-100, -3, -1, 0, 1, 3, 15, 16, 17, 100, 5000}) {
    for (const std::size_t slice : {1U, 7U, 64U, 4096U}) {
      std::vector<std::byte> bytes(12'000);
      for (std::size_t index = 0; index < bytes.size(); ++index) {
        bytes[index] = static_cast<std::byte>(index * 31 / 7);
      }
      auto expected = bytes;
      const std::size_t source = 200;
      const std::size_t target = static_cast<std::size_t>(200 + distance);
      std::vector<std::byte> moved(bytes.begin() + 200, bytes.begin() + 3200);
      std::copy(moved.begin(), moved.end(), expected.begin() + static_cast<std::ptrdiff_t>(target));
      Operation operation(move(address_of(&bytes[target]), address_of(&bytes[source]), 3000),
                          kLimits);
      while (!operation.advance(process_memory(), slice)) {
      }
      EXPECT_EQ(operation.record().status, DSA_COMP_SUCCESS);
      EXPECT_EQ(operation.record().bytes_completed, 0U);
      EXPECT_EQ(operation.bytes_read(), 3000U);
      EXPECT_EQ(operation.bytes_written(), 3000U);
      EXPECT_EQ(bytes, expected) << distance << " " << slice;
    }
  }
}

TEST_F(MoveTest, a_fault_says_the_page_and_how_far_it_came_and_the_rest_can_be_resumed) {
  const GuardedBuffer target(kPageBytes);
  const std::vector<std::byte> source(3000, std::byte{7});
  Operation operation(move(address_of(target.back(1000).data()), address_of(source.data()), 3000),
                      kLimits);
  while (!operation.advance(process_memory(), 300)) {
  }
  EXPECT_EQ(operation.record().status, DSA_COMP_PAGE_FAULT_IR | DSA_COMP_STATUS_WRITE);
  EXPECT_EQ(operation.record().bytes_completed, 1000U);
  EXPECT_EQ(operation.record().result, 0);
  EXPECT_EQ(operation.record().fault_addr, address_of(target.bytes().data()) + kPageBytes);
}

}  // namespace
}  // namespace headrace::emu
