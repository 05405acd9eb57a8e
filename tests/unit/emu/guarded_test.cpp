// SPDX-License-Identifier: Apache-2.0
#include "emu/platform/guarded.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csetjmp>
#include <cstring>
#include <thread>
#include <vector>

#include "emu/operation/memory.hpp"
#include "headrace/dsa/descriptor.hpp"
#include "support/guarded_buffer.hpp"

namespace headrace::emu {
namespace {

using test::GuardedBuffer;

constexpr std::size_t kPageBytes = 4096;

Address address_of(const std::byte* place) {
  return reinterpret_cast<Address>(place);
}

class GuardedTest : public ::testing::Test {
 protected:
  GuardedTest() { guarded::install(); }
};

std::vector<std::byte> pattern(std::size_t byte_count) {
  std::vector<std::byte> bytes(byte_count);
  for (std::size_t index = 0; index < byte_count; ++index) {
    bytes[index] = static_cast<std::byte>((index * 167 + index / 251) & 0xff);
  }
  return bytes;
}

// Sizes on both sides of every threshold between routines.
constexpr std::size_t kSizes[] = {1, 2, 15, 16, 17, 31, 63, 64, 65, 511, 512, 513, 1000, 4096};

TEST_F(GuardedTest, a_read_stops_at_the_first_byte_that_is_not_there) {
  for (const std::size_t there : kSizes) {
    const GuardedBuffer source(kPageBytes);
    const auto bytes = pattern(there);
    std::memcpy(source.back(there).data(), bytes.data(), there);
    std::vector<std::byte> into(there + 700, std::byte{0xee});
    const Reach reach =
        process_memory().read(into, address_of(source.back(there).data()), PageFaults::resolve);
    ASSERT_EQ(reach.byte_count, there);
    ASSERT_TRUE(reach.fault.has_value());
    EXPECT_FALSE(reach.fault->write);
    EXPECT_EQ(reach.fault->address & ~(kPageBytes - 1),
              address_of(source.bytes().data()) + source.bytes().size());
    EXPECT_EQ(std::memcmp(into.data(), bytes.data(), there), 0);
    EXPECT_EQ(into[there], std::byte{0xee});
  }
}

TEST_F(GuardedTest, a_write_stops_at_the_first_byte_that_is_not_there) {
  for (const std::size_t there : kSizes) {
    const GuardedBuffer target(kPageBytes);
    const auto bytes = pattern(there + 700);
    const Reach reach =
        process_memory().write(address_of(target.back(there).data()), bytes, PageFaults::resolve);
    ASSERT_EQ(reach.byte_count, there);
    ASSERT_TRUE(reach.fault.has_value());
    EXPECT_TRUE(reach.fault->write);
    EXPECT_EQ(std::memcmp(target.back(there).data(), bytes.data(), there), 0);
  }
}

TEST_F(GuardedTest, a_copy_downwards_stops_at_the_last_byte_that_is_not_there) {
  for (const std::size_t there : kSizes) {
    for (const bool write : {false, true}) {
      const GuardedBuffer short_side(kPageBytes);
      const GuardedBuffer long_side(3 * kPageBytes);
      const auto bytes = pattern(there);
      const std::size_t asked = there + 700;
      const Address short_first = address_of(short_side.bytes().data()) - 700;
      std::byte* const long_first = long_side.bytes().data();
      std::byte* const from = write ? long_first + 700 : short_side.bytes().data();
      std::memcpy(from, bytes.data(), there);
      const Reach reach = process_memory().copy(write ? short_first : address_of(long_first),
                                                write ? address_of(long_first) : short_first, asked,
                                                true, PageFaults::resolve);
      ASSERT_EQ(reach.byte_count, there);
      ASSERT_TRUE(reach.fault.has_value());
      EXPECT_EQ(reach.fault->write, write);
      const std::byte* const to = write ? short_side.bytes().data() : long_first + 700;
      EXPECT_EQ(std::memcmp(to, bytes.data(), there), 0);
    }
  }
}

TEST_F(GuardedTest, a_faulting_downward_copy_leaves_the_overlapped_source_resumable) {
  // Target 3 bytes above the source; the target's first page is the missing one.
  for (std::size_t asked = 20; asked < 120; ++asked) {
    for (std::size_t missing = 1; missing <= 3; ++missing) {
      const GuardedBuffer buffer(kPageBytes);
      std::byte* const base = buffer.bytes().data();
      const auto bytes = pattern(asked);
      std::memcpy(base, bytes.data(), asked);
      // The source begins `missing` bytes below the page, the target two bytes above the source.
      const Address source = address_of(base) - missing;
      const Reach reach =
          process_memory().copy(source + 2, source, asked, true, PageFaults::resolve);
      ASSERT_EQ(reach.byte_count, asked - missing);
      EXPECT_FALSE(reach.fault->write && missing < 3);
      for (std::size_t index = missing; index < asked; ++index) {
        ASSERT_EQ(base[index - missing + 2], bytes[index - missing]) << asked << " " << index;
      }
    }
  }
}

TEST_F(GuardedTest, addresses_that_no_page_can_have_are_faults) {
  std::byte byte{};
  for (const Address wild : {Address{0}, Address{0x10}, Address{0x8000'0000'0000},
                             Address{0xffff'8000'0000'0000}, ~Address{0}, Address{1} << 63}) {
    for (const PageFaults faults : {PageFaults::resolve, PageFaults::report}) {
      const Reach read = process_memory().read({&byte, 1}, wild, faults);
      EXPECT_EQ(read.byte_count, 0U);
      EXPECT_FALSE(read.fault.value().write);
      EXPECT_EQ(read.fault->address & ~Address{4095}, wild & ~Address{4095});
      const Reach write = process_memory().write(wild, {&byte, 1}, faults);
      EXPECT_EQ(write.byte_count, 0U);
      EXPECT_TRUE(write.fault.value().write);
    }
  }
}

TEST_F(GuardedTest, a_read_only_page_is_a_write_fault) {
  GuardedBuffer buffer(kPageBytes);
  buffer.forbid_writing();
  const std::byte byte{1};
  const Reach reach =
      process_memory().write(address_of(buffer.bytes().data()), {&byte, 1}, PageFaults::resolve);
  EXPECT_TRUE(reach.fault.value().write);
}

TEST_F(GuardedTest, presence_ends_at_the_first_page_that_is_absent_or_not_mapped) {
  for (std::size_t page = 0; page < 40; ++page) {
    const GuardedBuffer buffer(40 * kPageBytes);
    std::byte* const base = buffer.bytes().data();
    for (std::size_t touched = 0; touched < 40; ++touched) {
      if (touched != page) base[touched * kPageBytes] = std::byte{1};
    }
    const std::size_t absent = page == 0 ? 0 : page * kPageBytes - 7;
    EXPECT_EQ(process_memory().present(address_of(base) + 7, 50 * kPageBytes), absent);
    base[page * kPageBytes] = std::byte{1};
    EXPECT_EQ(process_memory().present(address_of(base) + 7, 50 * kPageBytes), 40 * kPageBytes - 7);
    ::munmap(base + page * kPageBytes, kPageBytes);
    EXPECT_EQ(process_memory().present(address_of(base) + 7, 50 * kPageBytes), absent);
  }
}

TEST_F(GuardedTest, a_mapped_page_beyond_the_end_of_its_file_is_a_fault) {
  const int file = ::memfd_create("short", 0);
  ASSERT_EQ(::ftruncate(file, kPageBytes), 0);
  void* const mapped = ::mmap(nullptr, 2 * kPageBytes, PROT_READ, MAP_SHARED, file, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  std::vector<std::byte> into(2 * kPageBytes);
  for (const PageFaults faults : {PageFaults::resolve, PageFaults::report}) {
    const Reach reach = process_memory().read(into, reinterpret_cast<Address>(mapped) + 1, faults);
    EXPECT_LE(reach.byte_count, kPageBytes - 1);
    EXPECT_FALSE(reach.fault.value().write);
  }
  ::munmap(mapped, 2 * kPageBytes);
  ::close(file);
}

TEST_F(GuardedTest, a_page_that_is_not_present_is_a_fault_only_if_asked) {
  const GuardedBuffer buffer(3 * kPageBytes);
  std::byte* const base = buffer.bytes().data();
  base[0] = std::byte{1};
  base[2 * kPageBytes] = std::byte{2};
  std::vector<std::byte> into(3 * kPageBytes);
  Reach reach = process_memory().read(into, address_of(base), PageFaults::report);
  EXPECT_EQ(reach.byte_count, kPageBytes);
  EXPECT_EQ(reach.fault.value().address, address_of(base) + kPageBytes);
  const Reach down = process_memory().copy(address_of(into.data()), address_of(base), into.size(),
                                           true, PageFaults::report);
  EXPECT_EQ(down.byte_count, kPageBytes);
  reach = process_memory().read(into, address_of(base), PageFaults::resolve);
  EXPECT_EQ(reach.byte_count, into.size());
  EXPECT_FALSE(reach.fault.has_value());
}

TEST_F(GuardedTest, a_record_is_seen_whole_by_whoever_sees_its_status) {
  dsa::CompletionRecord record{};
  dsa::CompletionRecord written{};
  written.status = 3;
  written.bytes_completed = 77;
  std::uint32_t beside = 0;
  std::thread device([&] {
    beside = 5;
    const auto bytes = std::as_bytes(std::span<const dsa::CompletionRecord, 1>(&written, 1));
    ASSERT_FALSE(process_memory()
                     .write_record(address_of(reinterpret_cast<std::byte*>(&record)), bytes)
                     .fault.has_value());
  });
  while (dsa::load_status(record) == 0) std::this_thread::yield();
  EXPECT_EQ(record.bytes_completed, 77U);
  EXPECT_EQ(beside, 5U);
  device.join();
}

TEST_F(GuardedTest, a_record_that_is_not_there_is_a_fault) {
  const GuardedBuffer buffer(kPageBytes);
  const std::array<std::byte, 32> bytes{};
  const Address beyond = address_of(buffer.bytes().data()) + buffer.bytes().size();
  EXPECT_TRUE(process_memory().write_record(beyond, bytes).fault.has_value());
}

TEST_F(GuardedTest, lines_are_flushed_up_to_the_first_page_that_is_not_there) {
  const GuardedBuffer buffer(kPageBytes);
  buffer.bytes()[0] = std::byte{1};
  const Address first = address_of(buffer.bytes().data()) + 5;
  EXPECT_FALSE(process_memory().flush_lines(first, 4000, PageFaults::resolve).fault.has_value());
  const Reach reach = process_memory().flush_lines(first, 4096, PageFaults::resolve);
  EXPECT_EQ(reach.byte_count, kPageBytes - 5);
  EXPECT_TRUE(reach.fault.has_value());
}

#if defined(__SANITIZE_THREAD__)
TEST_F(GuardedTest, a_client_that_writes_while_the_device_reads_is_reported_as_a_race) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        std::vector<std::byte> shared(64);
        std::vector<std::byte> into(64);
        std::thread device([&] {
          static_cast<void>(
              process_memory().read(into, address_of(shared.data()), PageFaults::resolve));
        });
        shared[5] = std::byte{1};
        device.join();
      },
      "data race");
}
#endif

TEST_F(GuardedTest, a_fault_of_somebody_else_goes_to_the_handler_that_was_there_before) {
  EXPECT_DEATH(
      {
        volatile int* const nowhere = reinterpret_cast<volatile int*>(8);
        *nowhere = 1;
      },
      "");
}

}  // namespace
}  // namespace headrace::emu
