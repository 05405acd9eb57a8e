// SPDX-License-Identifier: Apache-2.0
// What is taken away stays so, whatever a device with a volatile cache refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "crash_media.hpp"
#include "store/protocol.hpp"

namespace headrace::store {
namespace {

using detail::Slots;
using detail::SlotState;
using test_media::Drive;
using test_media::kDataBytes;
using test_media::kFileBytes;
using test_media::OnDevice;
using test_media::Refused;
using test_media::slots_in;

class OneHeader : public ::testing::Test {
 protected:
  OneHeader() {
    const detail::SlotHeader header = detail::slot_header(1, "1", kDataBytes, 1, std::nullopt);
    recorder_.store(file_.header(1), std::as_bytes(std::span(&header, 1)));
    recorder_.flush(file_.header(1), sizeof(header));
    recorder_.drain();
  }
  /// The file, as another process has it.
  [[nodiscard]] OnDevice<> open() {
    drive_.restart(file_.bytes);
    return OnDevice<>(recorder_, file_.bytes, drive_, left_);
  }
  static bool take_away(OnDevice<>& disk) {
    detail::invalidate(disk.medium, disk.table.data() + detail::kHeadBytes);
    return disk.medium.hand_over();
  }
  void adopt(OnDevice<>& disk) const {
    Slots table = file_;
    table.bytes = disk.table;
    static_cast<void>(detail::adopt(disk.medium, table, Durability::power, 2,
                                    [](auto, const auto&) { return true; }));
  }
  /// As the next process finds it.
  [[nodiscard]] static SlotState state_in(std::span<const std::byte> memory) {
    std::vector<std::byte> copy(memory.begin(), memory.end());
    const Slots file = slots_in(copy, 0);
    static_cast<void>(detail::replay(file));
    detail::SlotHeader header;
    return file.read(1, header);
  }
  [[nodiscard]] SlotState state() const { return state_in(file_.bytes); }
  [[nodiscard]] SlotState in_table() const {
    detail::SlotHeader header;
    return file_.read(1, header);
  }

  pmem::Recorder recorder_{std::vector<std::byte>(kFileBytes)};
  const Slots file_ = slots_in(recorder_.memory(), 0);
  Drive drive_;
  std::size_t left_ = std::numeric_limits<std::size_t>::max();
};

TEST_F(OneHeader, StaysAwayThoughItsPageCannotBeWritten) {
  ASSERT_EQ(state(), SlotState::whole);
  drive_.refused = Refused::headers;
  {
    OnDevice disk = open();
    EXPECT_TRUE(take_away(disk));
  }
  for (const Refused refused : {Refused::headers, Refused::headers, Refused::nothing}) {
    EXPECT_EQ(state(), SlotState::empty);
    drive_.refused = refused;
    drive_.tears = false;  // The next write to a refused page changes nothing.
    OnDevice disk = open();
    adopt(disk);
    EXPECT_EQ(disk.medium.fault(), pmem::Fault::none);
    disk.medium.close();
  }
  EXPECT_EQ(state(), SlotState::empty);
  EXPECT_EQ(in_table(), SlotState::empty);
}

TEST_F(OneHeader, StaysAwayThoughACheckpointBeforeHasFailed) {
  OnDevice disk = open();
  drive_.refused = Refused::headers;
  drive_.fails_next_flush = true;
  const detail::SlotHeader header = detail::slot_header(2, "2", kDataBytes, 2, std::nullopt);
  disk.medium.store(disk.table.data() + (file_.header(2) - file_.bytes.data()),
                    std::as_bytes(std::span(&header, 1)));
  EXPECT_FALSE(disk.medium.hand_over());  // Its record has the first header, too.
  drive_.refused = Refused::nothing;
  EXPECT_TRUE(take_away(disk));
  EXPECT_EQ(state(), SlotState::empty);
}

TEST_F(OneHeader, DrainReportsWhatTheFlushOfACheckpointLost) {
  OnDevice disk = open();
  drive_.fails_next_flush = true;
  EXPECT_FALSE(take_away(disk));
  disk.medium.drain();  // Data that was written before is lost, though this flush succeeds.
  EXPECT_EQ(disk.medium.fault(), pmem::Fault::sync_failed);
  disk.medium.drain();
  EXPECT_EQ(disk.medium.fault(), pmem::Fault::none);
}

TEST_F(OneHeader, IsInTheTableOnceTheFileIsClosed) {
  OnDevice disk = open();
  EXPECT_TRUE(take_away(disk));  // By a checkpoint, the first of a process.
  EXPECT_EQ(in_table(), SlotState::empty);
  const detail::SlotHeader header = detail::slot_header(1, "1", kDataBytes, 2, std::nullopt);
  disk.medium.store(disk.table.data() + detail::kHeadBytes, std::as_bytes(std::span(&header, 1)));
  EXPECT_TRUE(disk.medium.hand_over());
  EXPECT_EQ(state(), SlotState::whole);
  EXPECT_EQ(in_table(), SlotState::empty);
  disk.medium.close();
  EXPECT_EQ(in_table(), SlotState::whole);
}

TEST_F(OneHeader, IsAsTheLogHasItWhateverBitOfThatChanges) {
  OnDevice disk = open();
  EXPECT_TRUE(take_away(disk));
  detail::SlotHeader header = detail::slot_header(1, "1", kDataBytes, 2, std::nullopt);
  for (const std::uint64_t sequence : {2U, 3U}) {
    header = detail::slot_header(1, "1", kDataBytes, sequence, std::nullopt);
    disk.medium.store(disk.table.data() + detail::kHeadBytes, std::as_bytes(std::span(&header, 1)));
    EXPECT_TRUE(disk.medium.hand_over());
  }
  std::vector<std::byte> copy(file_.bytes.begin(), file_.bytes.end());
  const Slots file = slots_in(copy, 0);
  const std::vector<std::byte> before(copy.begin(), copy.begin() + test_media::kLogOffset);
  const auto sequence_with = [&](std::size_t bit) {
    copy[bit / 8] ^= std::byte{1} << bit % 8;
    static_cast<void>(detail::replay(file));
    detail::SlotHeader found;
    const std::uint64_t sequence =
        file.read(1, found) == SlotState::whole ? found.sequence : std::uint64_t{0};
    std::ranges::copy(before, copy.begin());
    if (bit / 8 >= before.size()) copy[bit / 8] ^= std::byte{1} << bit % 8;
    return sequence;
  };
  const std::size_t series = 8 * (detail::kMarkOffset + 2 * sizeof(std::uint64_t));
  for (std::size_t bit = series; bit < series + 64; ++bit) ASSERT_EQ(sequence_with(bit), 3U) << bit;
  for (std::size_t at = test_media::kLogOffset; at < test_media::kDataOffset; ++at) {
    ASSERT_EQ(sequence_with(8 * at + at % 8), 3U) << "byte " << at;
  }
}

/// Whether a record returns that was behind a page 0 which a loss of power took back.
template <typename R>
bool lost_record_returns() {
  pmem::Recorder recorder{std::vector<std::byte>(kFileBytes)};
  const std::vector<std::byte> before(recorder.memory().begin(), recorder.memory().end());
  const Slots file = slots_in(recorder.memory(), 0);
  Drive drive;
  std::size_t left = std::numeric_limits<std::size_t>::max();
  for (const bool is_first : {true, false}) {
    OnDevice<R> disk(recorder, file.bytes, drive, left);
    disk.medium.stop_flushing();
    // The first one by a checkpoint.
    for (detail::SlotNumber slot : {1U, 2U, 3U}) {
      const detail::SlotHeader header = detail::slot_header(slot, "1", kDataBytes, 1, std::nullopt);
      disk.medium.store(disk.table.data() + (file.header(slot) - file.bytes.data()),
                        std::as_bytes(std::span(&header, 1)));
      EXPECT_TRUE(disk.medium.hand_over());
      if (!is_first && slot == 2) break;
    }
    if (is_first)
      recorder.store(file.bytes.data(), std::span(before).first(test_media::kLogOffset));
  }
  static_cast<void>(detail::replay(file));
  detail::SlotHeader header;
  EXPECT_EQ(file.read(2, header), SlotState::whole);
  return file.read(3, header) == SlotState::whole;
}

struct CountsItsSeries : detail::LogRules {
  static constexpr bool draws_the_series = false;  // NOLINT(readability-identifier-naming)
};

TEST(CachedMedium, ARecordOfALostSeriesDoesNotReturn) {
  EXPECT_FALSE(lost_record_returns<detail::LogRules>());
  EXPECT_TRUE(lost_record_returns<CountsItsSeries>());
}

TEST_F(OneHeader, IsWrittenAgainAfterAFailedFlush) {
  OnDevice disk = open();
  disk.medium.store_word(*reinterpret_cast<std::uint64_t*>(disk.table.data() + 520), 1);
  EXPECT_TRUE(disk.medium.hand_over());  // By a checkpoint; what follows, by a record.
  recorder_.mark(1);
  EXPECT_TRUE(take_away(disk));
  drive_.fails_next_flush = true;
  disk.medium.drain();
  EXPECT_NE(disk.medium.fault(), pmem::Fault::none);
  disk.medium.drain();
  EXPECT_EQ(disk.medium.fault(), pmem::Fault::none);
  recorder_.mark(2);
  const auto explored = pmem::explore(recorder_,
                                      [](std::span<std::byte> memory, std::uint64_t at) {
                                        return at == 2 && state_in(memory) == SlotState::whole
                                                   ? std::string("it returns")
                                                   : std::string();
                                      },
                                      {.states_per_moment_max = 256, .seed = 1});
  EXPECT_FALSE(explored.first_bad.has_value());
}

TEST(CachedMedium, WhatOneLifeHasDroppedTheNextDoesNotBelieve) {
  // A header without its data, in a copy of a file; the first life is killed at any access.
  for (std::size_t accesses = 0; accesses < 12; ++accesses) {
    pmem::Recorder recorder{std::vector<std::byte>(kFileBytes)};
    const Slots file = slots_in(recorder.memory(), 0);
    const detail::SlotHeader header = detail::slot_header(1, "1", kDataBytes, 1, 7);
    std::memcpy(file.header(1), &header, sizeof(header));
    file.mark() = 1;  // Another run of the machine.
    for (std::size_t left : {accesses, std::numeric_limits<std::size_t>::max()}) {
      Drive drive;
      drive.restart(file.bytes);
      OnDevice disk(recorder, file.bytes, drive, left);
      Slots table = file;
      table.bytes = disk.table;
      try {
        static_cast<void>(detail::adopt(disk.medium, table, Durability::process, 2,
                                        [](auto, const auto&) { return false; }));
        detail::SlotHeader found;
        EXPECT_NE(table.read(1, found), SlotState::whole) << accesses;
      } catch (const test_media::Killed&) {
      }
    }
  }
}

}  // namespace
}  // namespace headrace::store
