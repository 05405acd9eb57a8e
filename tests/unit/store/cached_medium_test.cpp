// SPDX-License-Identifier: Apache-2.0
// Headers that were taken away stay so, whatever a device with a volatile cache refuses.
#include <gtest/gtest.h>

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
  [[nodiscard]] OnDevice open() {
    drive_.restart(file_.bytes);
    return OnDevice(recorder_, file_.bytes, drive_, left_);
  }
  static bool take_away(OnDevice& disk) {
    detail::invalidate(disk.medium, disk.table.data() + detail::kHeadBytes);
    return disk.medium.hand_over();
  }
  void adopt(OnDevice& disk) const {
    Slots table = file_;
    table.bytes = disk.table;
    static_cast<void>(detail::adopt(disk.medium, table, Durability::power, 2,
                                    [](auto, const auto&) { return true; }));
  }
  [[nodiscard]] SlotState state() const {
    detail::SlotHeader header;
    return file_.read(1, header);
  }

  pmem::Recorder recorder_{std::vector<std::byte>(kFileBytes)};
  const Slots file_ = slots_in(recorder_.memory(), 0);
  Drive drive_;
  std::size_t left_ = std::numeric_limits<std::size_t>::max();
};

TEST_F(OneHeader, StaysVoidUntilItsPageIsWritten) {
  ASSERT_EQ(state(), SlotState::whole);
  drive_.refuses_headers = true;
  {
    OnDevice disk = open();
    EXPECT_TRUE(take_away(disk));
    EXPECT_TRUE(disk.medium.is_bad(disk.table.data() + detail::kHeadBytes));
  }
  for (const bool refuses : {true, false}) {
    EXPECT_EQ(state(), SlotState::empty);
    EXPECT_TRUE(file_.is_void(1));
    drive_.refuses_headers = refuses;
    drive_.tears = false;  // The next write to a refused page changes nothing.
    OnDevice disk = open();
    adopt(disk);
    EXPECT_EQ(disk.medium.fault(), pmem::Fault::none);
  }
  EXPECT_EQ(state(), SlotState::empty);
  EXPECT_FALSE(file_.is_void(1));
}

TEST_F(OneHeader, IsWrittenAgainAfterAFailedFlush) {
  OnDevice disk = open();
  recorder_.mark(1);
  EXPECT_TRUE(take_away(disk));
  drive_.fails_next_flush = true;
  disk.medium.drain();
  EXPECT_NE(disk.medium.fault(), pmem::Fault::none);
  disk.medium.drain();
  EXPECT_EQ(disk.medium.fault(), pmem::Fault::none);
  recorder_.mark(2);
  const auto explored =
      pmem::explore(recorder_,
                    [](std::span<std::byte> memory, std::uint64_t at) {
                      detail::SlotHeader header;
                      const bool is_there = slots_in(memory, 0).read(1, header) == SlotState::whole;
                      return at == 2 && is_there ? std::string("it returns") : std::string();
                    },
                    {.exhaustive_max = 256, .states_per_moment_max = 256, .seed = 1});
  EXPECT_FALSE(explored.first_bad.has_value());
}

}  // namespace
}  // namespace headrace::store
