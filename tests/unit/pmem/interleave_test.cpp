// SPDX-License-Identifier: Apache-2.0
// How many DIMMs the optimised ring keeps busy. DIMMs interleave in units of 4 KiB, and a fence
// waits for the DIMM with the most to write, so one fence should cover several units. Checks where
// the bytes go; the time saved can only be measured with such DIMMs.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "block_ring.hpp"
#include "headrace/pmem/recorder.hpp"

namespace headrace::pmem {
namespace {

constexpr std::uint64_t kStripeBytes = 4096;

struct Spread {
  double stripes_per_fence = 0;
  std::set<std::uint64_t> begins;  ///< Offsets of entries in their stripes.
};

Spread spread_of(std::size_t entry_bytes, std::size_t batch) {
  std::vector<std::byte> file(detail::kDataOffset + mib(4).count());
  detail::format_ring(file, file.size(), 1);
  Recorder recorder(file);
  const detail::RingMemory ring = detail::open_ring(recorder.memory(), "try a ring").value();
  detail::BlockProducer<Recorder> producer(recorder, ring);
  EXPECT_TRUE(producer.attach("try a ring").has_value());
  const std::size_t first = recorder.events().size();
  const std::vector<std::byte> entry(entry_bytes);
  const std::vector<std::span<const std::byte>> entries(batch, entry);
  constexpr std::size_t kFences = 64;
  Spread spread;
  for (std::size_t i = 0; i < kFences; ++i) {
    EXPECT_EQ(producer.enqueue_all(entries), Enqueue::done);
  }
  std::set<std::uint64_t> stripes;
  std::size_t stripe_count = 0;
  std::size_t fence_count = 0;
  for (std::size_t i = first; i < recorder.events().size(); ++i) {
    const Event& event = recorder.events()[i];
    if (event.kind == Event::Kind::stream) {
      for (std::uint64_t at = event.offset; at < event.offset + event.byte_count;
           at += kLineBytes) {
        stripes.insert(at / kStripeBytes);
      }
      // The header of a record is streamed last, as one line.
      if (event.byte_count == kLineBytes) spread.begins.insert(event.offset % kStripeBytes);
    } else if (event.kind == Event::Kind::drain) {
      stripe_count += stripes.size();
      stripes.clear();
      ++fence_count;
    }
  }
  EXPECT_EQ(fence_count, kFences);
  spread.stripes_per_fence = static_cast<double>(stripe_count) / static_cast<double>(fence_count);
  return spread;
}

TEST(Interleaving, ALongEntryIsOnTwoDimmsAndAShortOneOnOneOrTwo) {
  EXPECT_NEAR(spread_of(256, 1).stripes_per_fence, 1.0, 0.1);
  EXPECT_NEAR(spread_of(2048, 1).stripes_per_fence, 1.5, 0.1);
  EXPECT_EQ(spread_of(4096, 1).stripes_per_fence, 2.0);
}

TEST(Interleaving, ABatchKeepsSeveralDimmsBusyBeforeItWaits) {
  EXPECT_EQ(spread_of(256, 8).stripes_per_fence, 1.0);
  EXPECT_EQ(spread_of(1024, 8).stripes_per_fence, 3.0);
  EXPECT_EQ(spread_of(2048, 8).stripes_per_fence, 5.0);
}

TEST(Interleaving, EntriesAreNotAllAtTheSamePlaceOfTheirStripes) {
  // A record is its entry, a header and zeros to the end of its block: entries of a stripe's length
  // advance by one more block each, so no DIMM has all the beginnings.
  EXPECT_EQ(spread_of(4096, 1).begins.size(), kStripeBytes / kBlockBytes);
}

}  // namespace
}  // namespace headrace::pmem
