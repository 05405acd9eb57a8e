// SPDX-License-Identifier: Apache-2.0
// Limits that only rings of many GiB reach, tested without such a ring; and crashes that the crash
// check samples too rarely.
#include "block_ring.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "ring_crash_check.hpp"

namespace headrace::pmem::detail {
namespace {

TEST(BlockRing, TheLengthOfAnEntryFitsItsHeaderInTheLargestRing) {
  for (const std::uint64_t capacity : {std::uint64_t{1} << 35U, kCapacityMax}) {
    Medium memory = lab::plain_memory();
    const RingMemory ring{.capacity_bytes = capacity};
    BlockProducer<Medium> producer(memory, ring);
    ASSERT_LT(producer.entry_bytes_max(), RecordHeader::kSkip);
    EXPECT_EQ(record_bytes(producer.entry_bytes_max()) % kBlockBytes, 0U);
    const std::byte first{};  // Refused before a byte of it is read.
    const std::span<const std::byte> entry(&first, producer.entry_bytes_max() + 1);
    EXPECT_EQ(producer.enqueue_all({&entry, 1}), Enqueue::too_large);
  }
}

constexpr std::uint64_t kCapacity = 4096;
constexpr std::uint64_t kRecordCount = kCapacity / kBlockBytes;

using Words = std::array<std::uint64_t, kLineBytes / sizeof(std::uint64_t)>;
constexpr unsigned kAllWords = (1U << std::tuple_size_v<Words>)-1;

RingMemory ring_in(std::span<std::byte> file) {
  return open_ring(file, "open a ring").value();
}

std::vector<std::byte> empty_ring() {
  Recorder pages{std::vector<std::byte>(kDataOffset + kCapacity)};  // For the alignment.
  format_ring(pages.memory(), pages.memory().size(), 0x5eed);
  return {pages.memory().begin(), pages.memory().end()};
}

template <typename Memory>
Enqueue enqueue(BlockProducer<Memory>& producer, std::uint64_t byte_count, int value) {
  const std::vector<std::byte> bytes(byte_count, std::byte(value));
  const std::span<const std::byte> entry(bytes);
  return producer.enqueue_all({&entry, 1});
}

Words first_line(const RingMemory& ring, std::uint64_t position) {
  Words words;
  std::memcpy(words.data(), ring.at(position), sizeof(words));
  return words;
}

/// A line after a crash: `before`, with those words of `after` that reached memory.
Words torn(Words before, const Words& after, unsigned words) {
  for (std::size_t i = 0; i < before.size(); ++i) {
    if ((words >> i & 1U) != 0) before[i] = after[i];
  }
  return before;
}

/// Power failed: the first line is `words`, and the producer's word is old.
void crash(const RingMemory& ring, std::uint64_t position, const Words& words) {
  std::memcpy(ring.at(position), words.data(), sizeof(words));
  ring.head->producer.written = 0;
}

std::uint64_t entry_count(const RingMemory& ring) {
  const Result<Chain> chain = RecordReader<>(ring).recover("recover", true);
  EXPECT_TRUE(chain.has_value());
  return chain.has_value() ? chain->end.ordinal - chain->first.ordinal : UINT64_MAX;
}

/// A ring with all entries acknowledged, in which power fails while the next entry, of 8 bytes, is
/// written. Only its first line can be torn: the others of its block are zeros, as before.
class TornRecord : public ::testing::Test {
 protected:
  TornRecord() {
    Medium memory = lab::plain_memory();
    BlockProducer<Medium> producer(memory, ring());
    BlockConsumer<Medium> consumer(memory, ring(), Acknowledgement::each);
    EXPECT_TRUE(producer.attach("attach").has_value());
    EXPECT_TRUE(consumer.attach("attach", true).has_value());
    // A full lap, so that no word in the place equals the new entry's. The entries fill their first
    // lines.
    for (std::uint64_t i = 0; i <= kRecordCount; ++i) {
      EXPECT_EQ(enqueue(producer, kFirstLineRoom, 9), Enqueue::done);
      Entry lent;
      EXPECT_EQ(consumer.next(lent), Next::entry);
      consumer.acknowledge();
    }
    before_ = first_line(ring(), kEnd);
    EXPECT_EQ(enqueue(producer, 8, 1), Enqueue::done);
    first_ = first_line(ring(), kEnd);
  }

  static constexpr std::uint64_t kEnd = kCapacity + kBlockBytes;
  [[nodiscard]] RingMemory ring() { return ring_in(file_.memory()); }

  Recorder file_{empty_ring()};
  Words before_{};
  Words first_{};
};

TEST_F(TornRecord, IsNotMadeWholeByTheNextOneAtItsPlace) {
  // Among these: the record without its position, which the next, torn record supplies.
  for (unsigned words = 0; words < kAllWords; ++words) {
    Recorder second(file_.memory());
    const RingMemory ring = ring_in(second.memory());
    crash(ring, kEnd, torn(before_, first_, words));
    ASSERT_EQ(entry_count(ring), 0U) << words;
    Medium memory = lab::plain_memory();
    BlockProducer<Medium> producer(memory, ring);
    ASSERT_TRUE(producer.attach("attach").has_value());
    const Words between = first_line(ring, kEnd);
    ASSERT_EQ(enqueue(producer, 8, 2), Enqueue::done);
    const Words after = first_line(ring, kEnd);
    for (unsigned second_words = 0; second_words <= kAllWords; ++second_words) {
      const Words line = torn(between, after, second_words);
      crash(ring, kEnd, line);
      ASSERT_EQ(entry_count(ring), line == after ? 1U : 0U) << words << ", then " << second_words;
    }
  }
}

TEST_F(TornRecord, IsNotMadeWholeByAProducerThatAttaches) {
  for (unsigned words = 0; words < kAllWords; ++words) {
    crash(ring(), kEnd, torn(before_, first_, words));
    Recorder second(file_.memory());
    BlockProducer<Recorder> producer(second, ring_in(second.memory()));
    ASSERT_TRUE(producer.attach("attach").has_value());
    const Exploration found = explore(second, [](std::span<std::byte> file, std::uint64_t) {
      return entry_count(ring_in(file)) == 0 ? "" : "it came back to life";
    });
    EXPECT_EQ(found.moments_exhaustive, found.moments);
    ASSERT_FALSE(found.first_bad.has_value()) << words << ": " << found.first_bad->report();
  }
}

TEST(BlockRing, AProducerThatAttachesMakesTheReadPositionDurableBeforeItUsesRoom) {
  Recorder memory(empty_ring());
  const RingMemory ring = ring_in(memory.memory());
  BlockConsumer<Recorder> consumer(memory, ring, Acknowledgement::lazy);
  ASSERT_TRUE(consumer.attach("attach", true).has_value());
  {
    BlockProducer<Recorder> producer(memory, ring);
    ASSERT_TRUE(producer.attach("attach").has_value());
    for (std::uint64_t i = 0; i < kRecordCount; ++i) {
      ASSERT_EQ(enqueue(producer, 8, 1), Enqueue::done);
    }
    ASSERT_EQ(enqueue(producer, 8, 1), Enqueue::full);
  }
  // The second acknowledgement makes room for one, and is not durable.
  for (int i = 0; i < 2; ++i) {
    Entry lent;
    ASSERT_EQ(consumer.next(lent), Next::entry);
    consumer.acknowledge();
  }
  // The producer was killed. The next one knows only the ring's content.
  BlockProducer<Recorder> producer(memory, ring);
  memory.phase("attach again");
  ASSERT_TRUE(producer.attach("attach").has_value());
  memory.phase("enqueue");
  ASSERT_EQ(enqueue(producer, 8, 1), Enqueue::done);
  const Exploration found = explore(memory, [](std::span<std::byte> file, std::uint64_t) {
    const Result<Chain> chain = RecordReader<>(ring_in(file)).recover("recover", true);
    return chain.has_value() ? std::string() : chain.error().cause;
  });
  EXPECT_FALSE(found.first_bad.has_value()) << found.first_bad->report();
}

}  // namespace
}  // namespace headrace::pmem::detail
