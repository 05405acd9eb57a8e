// SPDX-License-Identifier: Apache-2.0
// Invalid segments: refused with the reason when opened, and reported as damaged, or replaced, when
// corrupted later. Nothing crashes.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "headrace/message/queue.hpp"
#include "layout.hpp"
#include "support/queue.hpp"

namespace headrace::message {
namespace {

using test::as_message;
using test::must;
using ::testing::HasSubstr;

/// A separate folder for each test, with a queue in it.
class Segments : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "headrace-queue-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = folder_ + "/queue";
    static_cast<void>(make());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Queue make() {
    return must(Queue::make_named(
        path_, {.framing = Framing::fixed, .message_bytes = 8, .capacity = kib(8)}));
  }
  template <typename T>
  void overwrite(std::size_t offset, T value) {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(offset));
    file.write(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  Error refusal() {
    const Result<Queue> opened = Queue::open(path_);
    if (opened.has_value()) {
      ADD_FAILURE() << "it was opened";
      return {};
    }
    return opened.error();
  }

  std::string folder_;
  std::string path_;
};

TEST_F(Segments, ASegmentOfAnotherVersionIsRefused) {
  overwrite(offsetof(detail::Head, version), std::uint32_t{7});
  EXPECT_EQ(refusal().code, Code::version_mismatch);
  EXPECT_THAT(refusal().message(), HasSubstr("version 7"));
}

TEST_F(Segments, ASegmentOfTheOtherByteOrderIsRefused) {
  overwrite(0, __builtin_bswap64(detail::kMagic));
  EXPECT_EQ(refusal().code, Code::version_mismatch);
}

TEST_F(Segments, AFileThatIsNoQueueIsRefused) {
  std::ofstream(path_, std::ios::trunc) << "hello";
  EXPECT_EQ(refusal().code, Code::corrupt_data);
  std::ofstream(path_, std::ios::trunc) << std::string(100'000, 'x');
  EXPECT_EQ(refusal().code, Code::corrupt_data);
  std::filesystem::remove(path_);
  EXPECT_EQ(refusal().code, Code::not_found);
  std::filesystem::create_directory(path_);
  EXPECT_EQ(refusal().code, Code::invalid_argument);
}

TEST_F(Segments, ASegmentOfAnotherSizeIsRefused) {
  const auto byte_count = std::filesystem::file_size(path_);
  std::filesystem::resize_file(path_, byte_count - 4096);
  EXPECT_EQ(refusal().code, Code::corrupt_data);
  EXPECT_THAT(refusal().message(), HasSubstr("was made with"));
  std::filesystem::resize_file(path_, byte_count + 4096);
  EXPECT_EQ(refusal().code, Code::corrupt_data);
}

TEST_F(Segments, EveryNumberOfTheHeadIsCompared) {
  using detail::Head;
  for (const std::size_t offset :
       {offsetof(Head, framing), offsetof(Head, segment_bytes), offsetof(Head, message_bytes_max),
        offsetof(Head, unit_bytes), offsetof(Head, unit_count), offsetof(Head, lane_count),
        offsetof(Head, data_offset), offsetof(Head, lane_data_bytes)}) {
    for (const unsigned value : {0x00U, 0x03U, 0x7FU, 0xFFU}) {
      std::filesystem::remove(path_);
      static_cast<void>(make());
      overwrite(offset + 2, static_cast<std::uint8_t>(value == 0 ? 1 : value));
      overwrite(offset + 1, static_cast<std::uint8_t>(value));
      EXPECT_EQ(refusal().code, Code::corrupt_data) << offset << " " << value;
    }
  }
}

TEST_F(Segments, ASegmentOfAnotherUserIsRefusedUntilItsOwnerIsNamed) {
  const std::uint32_t other = ::geteuid() + 1;
  const Result<Queue> opened = Queue::open(path_, other);
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code, Code::permission_denied);
  EXPECT_THAT(opened.error().message(), HasSubstr("belongs to user"));
  if (::geteuid() != 0) return;  // Only root can change a file's owner.
  ASSERT_EQ(::chown(path_.c_str(), 12345, 12345), 0);
  EXPECT_EQ(refusal().code, Code::permission_denied);
  EXPECT_TRUE(Queue::open(path_, 12345).has_value());
}

TEST_F(Segments, ANameThatIsTakenIsNotReplaced) {
  const Result<Queue> second = Queue::make_named(path_);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, Code::invalid_argument);
}

TEST_F(Segments, ATruncatedSegmentIsDamagedAtBothEnds) {
  const Queue queue = must(Queue::open(path_));
  Producer producer = must(queue.producer());
  Consumer consumer = must(queue.consumer());
  std::uint64_t number = 1;
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(producer.try_send(as_message(number)), Outcome::done);
  }
  std::filesystem::resize_file(path_, 0);
  std::size_t received = 0;
  EXPECT_EQ(consumer.receive(std::as_writable_bytes(std::span(&number, 1)), received,
                             {.time_max = std::chrono::seconds(5)}),
            Outcome::damaged);
  // Messages committed into pages that are gone are not in the queue, and this is reported.
  Outcome outcome = producer.try_send(as_message(number));
  if (outcome == Outcome::done) outcome = producer.try_send(as_message(number));
  EXPECT_EQ(outcome, Outcome::damaged);
  static_cast<void>(queue.state());
  queue.close();
}

TEST_F(Segments, BytesThatWereLentFromPagesThatAreGoneAreDamaged) {
  const Queue queue = must(Queue::open(path_));
  Producer producer = must(queue.producer());
  Consumer consumer = must(queue.consumer());
  const std::uint64_t number = 1;
  ASSERT_EQ(producer.try_send(as_message(number)), Outcome::done);
  Message message;
  ASSERT_EQ(consumer.peek(message), Outcome::done);
  std::filesystem::resize_file(path_, 8192);
  EXPECT_EQ(message.bytes[0], std::byte{0});
  EXPECT_EQ(consumer.release(), Outcome::damaged);
}

TEST_F(Segments, AMessageIntoPagesThatAreGoneIsNotDone) {
  const Queue queue = must(Queue::open(path_));
  Producer producer = must(queue.producer());
  std::filesystem::resize_file(path_, 8192);  // The data is gone, the positions remain.
  const std::uint64_t number = 1;
  EXPECT_EQ(producer.try_send(as_message(number)), Outcome::damaged);
}

TEST_F(Segments, AReplacedSegmentIsReportedWhenNoPeerIsLeft) {
  const Queue queue = must(Queue::open(path_));
  Consumer consumer = must(queue.consumer());
  std::filesystem::remove(path_);
  const Queue another = make();
  EXPECT_EQ(consumer.wait_for_message({.time_max = std::chrono::seconds(20)}), Outcome::replaced);
  std::filesystem::remove(path_);
  EXPECT_EQ(consumer.wait_for_message({.time_max = std::chrono::seconds(20)}), Outcome::replaced);
}

TEST_F(Segments, ARemovedNameDoesNotDisturbEndsThatAreAttached) {
  const Queue queue = must(Queue::open(path_));
  Producer producer = must(queue.producer());
  Consumer consumer = must(queue.consumer());
  std::filesystem::remove(path_);
  EXPECT_EQ(consumer.wait_for_message({.time_max = std::chrono::milliseconds(20)}),
            Outcome::timed_out);
  const std::uint64_t number = 1;
  ASSERT_EQ(producer.try_send(as_message(number)), Outcome::done);
  EXPECT_EQ(consumer.wait_for_message(), Outcome::done);
}

TEST_F(Segments, PositionsThatCannotBeAreRefused) {
  overwrite(detail::kHeadBytes, std::uint64_t{1} << 40U);  // prod_tail
  const Queue queue = must(Queue::open(path_));
  const Result<Producer> producer = queue.producer();
  ASSERT_FALSE(producer.has_value());
  EXPECT_EQ(producer.error().code, Code::corrupt_data);
  EXPECT_EQ(queue.consumer().error().code, Code::corrupt_data);
}

TEST_F(Segments, PositionsThatGoBackOrTooFarAreDamage) {
  for (const std::uint64_t position : {std::uint64_t{4}, std::uint64_t{5000}, ~std::uint64_t{0}}) {
    std::filesystem::remove(path_);
    const Queue queue = make();
    Producer producer = must(queue.producer());
    Consumer consumer = must(queue.consumer());
    const std::uint64_t number = 1;
    for (int i = 0; i < 5; ++i) ASSERT_EQ(producer.try_send(as_message(number)), Outcome::done);
    Message messages;
    ASSERT_EQ(consumer.peek_many(5, messages), Outcome::done);
    overwrite(detail::kHeadBytes, position);  // prod_tail
    EXPECT_EQ(consumer.peek(messages), Outcome::damaged) << position;
    EXPECT_EQ(consumer.peek(messages), Outcome::damaged);
    overwrite(detail::kHeadBytes + 128, position == 4 ? ~std::uint64_t{3} : position);  // cons_head
    Outcome outcome = Outcome::done;
    for (int i = 0; i < 2000 && outcome == Outcome::done; ++i) {
      outcome = producer.try_send(as_message(number));
    }
    EXPECT_EQ(outcome, Outcome::damaged) << position;
  }
}

TEST(BadInput, LengthsThatCannotBeAreDamage) {
  for (const std::uint64_t length :
       {std::uint64_t{17}, std::uint64_t{4096}, ~std::uint64_t{0}, ~std::uint64_t{0} - 6}) {
    const Queue queue = must(Queue::make({.capacity = kib(4)}));
    Producer producer = must(queue.producer());
    Consumer consumer = must(queue.consumer());
    ASSERT_EQ(producer.try_send(test::bytes_of(1, 16)), Outcome::done);
    ASSERT_EQ(::pwrite(queue.descriptor(), &length, sizeof(length), 8192), 8);
    Message message;
    EXPECT_EQ(consumer.peek(message), Outcome::damaged) << length;
  }
}

TEST(BadInput, ASegmentWithoutANameCannotBeTruncated) {
  const Queue queue = must(Queue::make());
  EXPECT_NE(::ftruncate(queue.descriptor(), 0), 0);
  EXPECT_NE(::ftruncate(queue.descriptor(), 1 << 20), 0);
  EXPECT_NE(::fcntl(queue.descriptor(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(BadInput, WhatIsNoDescriptorOfAQueueIsRefused) {
  EXPECT_EQ(Queue::from_descriptor(-1).error().code, Code::invalid_argument);
  const int other = ::memfd_create("other", MFD_CLOEXEC);
  EXPECT_EQ(Queue::from_descriptor(other).error().code, Code::corrupt_data);
  ::close(other);
}

TEST(BadInput, OptionsThatCannotBeAreRefused) {
  const auto code = [](const QueueOptions& options) { return Queue::make(options).error().code; };
  EXPECT_EQ(code({.producers_max = 0}), Code::invalid_argument);
  EXPECT_EQ(code({.producers_max = 65}), Code::invalid_argument);
  EXPECT_EQ(code({.framing = Framing::fixed}), Code::invalid_argument);
  EXPECT_EQ(code({.message_bytes = 40'000, .capacity = kib(64)}), Code::invalid_argument);
  EXPECT_EQ(code({.capacity = Bytes(~std::uint64_t{0})}), Code::capacity_exceeded);
  EXPECT_EQ(code({.framing = Framing::fixed, .message_bytes = ~std::uint64_t{0}}),
            Code::capacity_exceeded);
}

}  // namespace
}  // namespace headrace::message
