// SPDX-License-Identifier: Apache-2.0
// Limits of records that only rings of many GiB reach, without such a ring.
#include "block_ring.hpp"

#include <gtest/gtest.h>

#include "ring_crash_check.hpp"

namespace headrace::pmem::detail {
namespace {

TEST(BlockRing, TheLengthOfAnEntryFitsItsHeaderInTheLargestRing) {
  for (const std::uint64_t capacity : {std::uint64_t{1} << 35U, kCapacityMax}) {
    lab::PlainMemory memory;
    const RingMemory ring{.capacity_bytes = capacity};
    BlockProducer<lab::PlainMemory> producer(memory, ring);
    ASSERT_LT(producer.entry_bytes_max(), RecordHeader::kSkip);
    EXPECT_EQ(record_bytes(producer.entry_bytes_max()) % kBlockBytes, 0U);
    const std::byte first{};  // Refused before a byte of it is read.
    const std::span<const std::byte> entry(&first, producer.entry_bytes_max() + 1);
    EXPECT_EQ(producer.enqueue_all({&entry, 1}), Enqueue::too_large);
  }
}

}  // namespace
}  // namespace headrace::pmem::detail
