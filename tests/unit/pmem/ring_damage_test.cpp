// SPDX-License-Identifier: Apache-2.0
// Damaged rings, and copies of rings in use: errors reported, and the results of salvage.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "ring_file.hpp"

namespace headrace::pmem {
namespace {

TEST_F(RingFile, DamageToTheNewestEntryIsDistinguishedFromATornEnqueue) {
  make();
  {
    Result<Producer> producer = Producer::attach(path_, quick());
    for (std::uint64_t i = 0; i < 3; ++i) {
      ASSERT_EQ(producer->enqueue(bytes_of(i, 600)), Enqueue::done);
    }
  }
  const std::string sound = contents();
  const std::size_t newest = kHeadBytes + std::size_t{2} * 768;
  overwrite(newest + 300, "damage");
  expect_refused(Code::corrupt_data, "entry 2");
  // Bytes behind the end that are no valid entry count as a torn enqueue.
  overwrite(newest + 300, sound.substr(newest + 300, 6));
  overwrite(newest + 768, "torn");
  const Result<RingState> state = inspect_ring(path_);
  ASSERT_TRUE(state.has_value()) << state.error().message();
  EXPECT_EQ(state->entry_count, 3U);
}

/// Runs salvage_ring; returns the entries' ordinals.
Result<Salvage> salvage(const std::string& path, std::vector<std::uint64_t>& ordinals,
                        std::size_t byte_count) {
  return salvage_ring(path, [&](const Entry& entry) {
    EXPECT_TRUE(std::ranges::equal(entry.bytes, bytes_of(entry.ordinal, byte_count)));
    ordinals.push_back(entry.ordinal);
  });
}

TEST_F(RingFile, ADamagedRingIsSalvagedWithoutTheDamagedEntry) {
  make(kib(16));
  {
    Result<Producer> producer = Producer::attach(path_, quick());
    Result<Consumer> consumer = Consumer::attach(path_, quick());
    Entry entry;
    for (std::uint64_t i = 0; i < 50; ++i) {  // Several laps.
      ASSERT_EQ(producer->enqueue(bytes_of(i, 600)), Enqueue::done);
      if (i >= 40) continue;
      ASSERT_EQ(consumer->next(entry), Next::entry);
      consumer->acknowledge();
    }
  }
  std::vector<std::uint64_t> ordinals;
  Result<Salvage> all = salvage(path_, ordinals, 600);
  ASSERT_TRUE(all.has_value()) << all.error().message();
  EXPECT_EQ(all->entry_count, ordinals.size());
  EXPECT_EQ(all->missing_count, 0U);
  EXPECT_GE(ordinals.size(), 20U);
  EXPECT_EQ(ordinals.back(), 49U);
  EXPECT_TRUE(std::ranges::is_sorted(ordinals));
  // Each lap has 21 entries of 768 bytes and a skip.
  overwrite(kHeadBytes + (45 % 21) * 768 + 100, "damage");
  const std::string before = contents();
  EXPECT_EQ(inspect_ring(path_).error().code, Code::corrupt_data);
  ordinals.clear();
  all = salvage(path_, ordinals, 600);
  ASSERT_TRUE(all.has_value()) << all.error().message();
  EXPECT_EQ(all->missing_count, 1U);
  EXPECT_EQ(std::ranges::count(ordinals, 45U), 0);
  EXPECT_EQ(std::ranges::count(ordinals, 44U) + std::ranges::count(ordinals, 46U), 2);
  EXPECT_EQ(contents(), before);
  EXPECT_EQ(salvage(folder_ + "/none", ordinals, 0).error().code, Code::not_found);
}

TEST_F(RingFile, ACopyOfARingWhoseEndsAreAtWorkIsSalvaged) {
  make(kib(64));
  const std::string copy = folder_ + "/copy";
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    Result<Producer> producer = Producer::attach(path_, quick());
    Result<Consumer> consumer = Consumer::attach(path_, quick());
    if (!producer.has_value() || !consumer.has_value()) ::_exit(1);
    for (;;) {
      static_cast<void>(producer->enqueue(bytes_of(producer->next_ordinal(), 600)));
      if (producer->next_ordinal() % 64 < 32) continue;
      Entry entry;
      while (consumer->next(entry) == Next::entry) consumer->acknowledge();
    }
  }
  std::size_t copies = 0;
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
       std::chrono::steady_clock::now() < end && copies < 50;) {
    std::ofstream(copy, std::ios::binary | std::ios::trunc) << contents();
    std::vector<std::uint64_t> ordinals;
    const Result<Salvage> found = salvage(copy, ordinals, 600);
    ASSERT_TRUE(found.has_value()) << found.error().message();
    if (ordinals.empty()) continue;  // The child has not yet enqueued.
    ++copies;
    EXPECT_TRUE(std::ranges::is_sorted(ordinals));
    EXPECT_EQ(std::ranges::adjacent_find(ordinals), ordinals.end());
    EXPECT_EQ(ordinals.back() - ordinals.front() + 1, ordinals.size() + found->missing_count);
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_GT(copies, 0U);
}

}  // namespace
}  // namespace headrace::pmem
