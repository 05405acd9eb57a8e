// SPDX-License-Identifier: Apache-2.0
// Messages in one process: order, lengths, batches, back-pressure, placement, close.
#include "headrace/message/queue.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <thread>
#include <vector>

#include "headrace/base/random.hpp"
#include "headrace/platform/cpu.hpp"
#include "headrace/platform/thread.hpp"
#include "headrace/platform/wait.hpp"
#include "support/queue.hpp"
#include "support/seed.hpp"

namespace headrace::message {
namespace {

using std::chrono::milliseconds;
using test::as_message;
using test::bytes_of;
using test::must;

Outcome receive_number(Consumer& consumer, std::uint64_t& number) {
  std::size_t received = 0;
  return consumer.try_receive(std::as_writable_bytes(std::span(&number, 1)), received);
}

TEST(Queues, MessagesOfOneLengthComeInOrderAndAllOfThem) {
  const Queue queue =
      must(Queue::make({.framing = Framing::fixed, .message_bytes = 8, .capacity = Bytes(8 * 16)}));
  Producer producer = must(queue.producer());
  Consumer consumer = must(queue.consumer());
  std::uint64_t sent = 0;
  std::uint64_t expected = 0;
  for (int round = 0; round < 100; ++round) {
    while (producer.try_send(as_message(sent)) == Outcome::done) ++sent;
    EXPECT_EQ(sent - expected, 16U);
    std::uint64_t number = 0;
    while (receive_number(consumer, number) == Outcome::done) EXPECT_EQ(number, expected++);
    EXPECT_EQ(sent, expected);
  }
}

TEST(Queues, MessagesOfAnyLengthComeBackAsTheyWere) {
  const Queue queue = must(Queue::make({.capacity = kib(4)}));
  Producer producer = must(queue.producer());
  Consumer consumer = must(queue.consumer());
  EXPECT_EQ(producer.message_bytes_max(), 4096 / 2 - 8);
  Random random(test::seed());
  std::deque<std::vector<std::byte>> there;
  std::vector<std::byte> target(4096);
  for (std::uint64_t number = 0; number < 20'000; ++number) {
    const std::size_t length = random.chance(1, 8) ? random.below(2041) : random.below(100);
    const std::vector<std::byte> message = bytes_of(number, length);
    const Outcome outcome = producer.try_send(message);
    if (outcome == Outcome::done) {
      there.push_back(message);
      continue;
    }
    ASSERT_EQ(outcome, Outcome::full);
    for (std::uint64_t some = random.below(there.size()) + 1; some > 0; --some) {
      std::size_t received = 0;
      ASSERT_EQ(consumer.try_receive(target, received), Outcome::done);
      ASSERT_EQ(std::vector(target.begin(), target.begin() + static_cast<long>(received)),
                there.front());
      there.pop_front();
    }
  }
}

TEST(Queues, TheLongestMessageAlwaysFitsIntoAnEmptyQueue) {
  const Queue queue = must(Queue::make({.capacity = kib(4)}));
  Producer producer = must(queue.producer());
  Consumer consumer = must(queue.consumer());
  std::vector<std::byte> target(4096);
  for (std::size_t shift = 0; shift < 600; ++shift) {
    std::size_t received = 0;
    ASSERT_EQ(producer.try_send(bytes_of(1, 8)), Outcome::done);
    ASSERT_EQ(consumer.try_receive(target, received), Outcome::done);
    const std::vector<std::byte> longest = bytes_of(shift, 2040);
    ASSERT_EQ(producer.try_send(longest), Outcome::done) << shift;
    ASSERT_EQ(consumer.try_receive(target, received), Outcome::done);
    ASSERT_EQ(received, 2040U);
    ASSERT_EQ(std::memcmp(target.data(), longest.data(), received), 0);
  }
}

TEST(Queues, AMessageThatIsStagedIsSeenWhenItIsPublished) {
  const Queue queue = must(Queue::make({.framing = Framing::fixed, .message_bytes = 8}));
  Producer producer = must(queue.producer());
  Consumer consumer = must(queue.consumer());
  Message message;
  std::span<std::byte> room;
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(producer.reserve(8, room), Outcome::done);
    producer.stage(8);
  }
  EXPECT_EQ(consumer.peek(message), Outcome::empty);
  EXPECT_EQ(producer.publish(), Outcome::done);
  EXPECT_EQ(consumer.peek(message), Outcome::done);
  EXPECT_EQ(consumer.peek(message), Outcome::done);
  EXPECT_EQ(consumer.peek(message), Outcome::empty);
}

TEST(Queues, RoomAtTheEndOfTheRingThatWasNotUsedIsNotPublished) {
  const Queue queue = must(Queue::make({.capacity = kib(4)}));
  Producer producer = must(queue.producer());
  Consumer consumer = must(queue.consumer());
  std::vector<std::byte> target(4096);
  std::size_t received = 0;
  ASSERT_EQ(producer.try_send(bytes_of(1, 2040)), Outcome::done);
  ASSERT_EQ(consumer.try_receive(target, received), Outcome::done);
  std::span<std::byte> room;
  ASSERT_EQ(producer.reserve(1000, room), Outcome::done);
  producer.stage(1000);
  // Longer than the space left before the end, and never staged.
  ASSERT_EQ(producer.reserve(1500, room), Outcome::done);
  ASSERT_EQ(producer.publish(), Outcome::done);
  EXPECT_EQ(consumer.try_receive(target, received), Outcome::done);
  EXPECT_EQ(received, 1000U);
  EXPECT_EQ(consumer.try_receive(target, received), Outcome::empty);
  ASSERT_EQ(producer.try_send(bytes_of(2, 1500)), Outcome::done);
  EXPECT_EQ(consumer.try_receive(target, received), Outcome::done);
  EXPECT_EQ(received, 1500U);
}

TEST(Queues, ManyMessagesLieSideBySide) {
  const Queue queue =
      must(Queue::make({.framing = Framing::fixed, .message_bytes = 8, .capacity = Bytes(8 * 16)}));
  Producer producer = must(queue.producer());
  Consumer consumer = must(queue.consumer());
  std::uint64_t sent = 0;
  std::uint64_t expected = 0;
  while (expected < 1000) {
    std::span<std::byte> room;
    if (producer.reserve_many(7, room) == Outcome::done) {
      for (std::size_t i = 0; i < room.size(); i += 8) {
        std::memcpy(&room[i], &sent, 8);
        ++sent;
      }
      producer.stage_many(room.size() / 8);
      ASSERT_EQ(producer.publish(), Outcome::done);
    }
    Message messages;
    if (consumer.peek_many(5, messages) == Outcome::done) {
      for (std::size_t i = 0; i < messages.bytes.size(); i += 8) {
        std::uint64_t number = 0;
        std::memcpy(&number, &messages.bytes[i], 8);
        ASSERT_EQ(number, expected++);
      }
      consumer.release();
    }
  }
}

TEST(Queues, AListOfMessagesIsSentAsFarAsItFits) {
  const Queue queue =
      must(Queue::make({.framing = Framing::fixed, .message_bytes = 8, .capacity = Bytes(8 * 4)}));
  Producer producer = must(queue.producer());
  const std::array<std::uint64_t, 6> numbers = {0, 1, 2, 3, 4, 5};
  std::vector<std::span<const std::byte>> messages;
  for (const std::uint64_t& number : numbers) messages.push_back(as_message(number));
  std::size_t sent = 0;
  EXPECT_EQ(producer.try_send_all(messages, sent), Outcome::full);
  EXPECT_EQ(sent, 4U);
}

TEST(Queues, MoreIsNotStagedThanThereIsRoomFor) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Queue variable = must(Queue::make());
  Producer producer = must(variable.producer());
  EXPECT_DEATH(producer.stage(8), "no more is staged than was reserved");
  const Queue fixed =
      must(Queue::make({.framing = Framing::fixed, .message_bytes = 8, .capacity = Bytes(16)}));
  Producer other = must(fixed.producer());
  std::span<std::byte> room;
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(other.reserve(8, room), Outcome::done);
    other.stage(8);
  }
  EXPECT_DEATH(other.stage(8), "no more is staged than there is room for");
  EXPECT_DEATH(other.commit(8), "no more is staged than there is room for");
  EXPECT_EQ(other.position(), 0U);
  EXPECT_EQ(other.publish(), Outcome::done);
  EXPECT_EQ(other.position(), 2U);
}

TEST(Queues, EachProducersMessagesComeInItsOrder) {
  const Queue queue = must(Queue::make(
      {.framing = Framing::fixed, .message_bytes = 16, .capacity = kib(1), .producers_max = 3}));
  constexpr std::uint64_t kCount = 20'000;
  std::vector<std::thread> threads;
  for (std::uint64_t who = 0; who < 3; ++who) {
    threads.emplace_back([&queue, who] {
      Producer producer = must(queue.producer());
      for (std::uint64_t i = 0; i < kCount; ++i) {
        const std::array<std::uint64_t, 2> message = {who, i};
        ASSERT_EQ(producer.send(std::as_bytes(std::span(message))), Outcome::done);
      }
    });
  }
  Consumer consumer = must(queue.consumer());
  std::array<std::uint64_t, 3> next{};
  for (std::uint64_t i = 0; i < 3 * kCount; ++i) {
    std::array<std::uint64_t, 2> message{};
    std::size_t received = 0;
    ASSERT_EQ(consumer.receive(std::as_writable_bytes(std::span(message)), received),
              Outcome::done);
    ASSERT_EQ(message[1], next[message[0]]++);
  }
  for (std::thread& each : threads) each.join();
}

TEST(Queues, AProducerThatIsAlwaysReadyKeepsNoOtherFromItsTurn) {
  const Queue queue = must(Queue::make(
      {.framing = Framing::fixed, .message_bytes = 8, .capacity = kib(64), .producers_max = 2}));
  Producer busy = must(queue.producer());
  Producer quiet = must(queue.producer());
  Consumer consumer = must(queue.consumer());
  const std::uint64_t one = 1;
  const std::uint64_t two = 2;
  ASSERT_EQ(quiet.try_send(as_message(two)), Outcome::done);
  std::uint64_t before = 0;
  std::uint64_t number = 0;
  while (number != two) {
    ASSERT_LE(before, 200U);
    ++before;
    ASSERT_EQ(busy.try_send(as_message(one)), Outcome::done);
    ASSERT_EQ(busy.try_send(as_message(one)), Outcome::done);
    ASSERT_EQ(receive_number(consumer, number), Outcome::done);
  }
}

TEST(Queues, WhatDoesNotFitIsRefusedAndNothingIsWritten) {
  const Queue fixed = must(Queue::make({.framing = Framing::fixed, .message_bytes = 8}));
  Producer producer = must(fixed.producer());
  EXPECT_EQ(producer.try_send(bytes_of(0, 9)), Outcome::too_large);
  EXPECT_EQ(producer.try_send(bytes_of(0, 7)), Outcome::too_large);
  const Queue variable = must(Queue::make({.message_bytes = 100}));
  Producer other = must(variable.producer());
  EXPECT_EQ(other.try_send(bytes_of(0, 101)), Outcome::too_large);
  EXPECT_EQ(other.send(bytes_of(0, 1 << 20)), Outcome::too_large);
  EXPECT_EQ(other.position(), 0U);
}

TEST(Queues, AMessageThatTheTargetIsTooShortForStays) {
  const Queue queue = must(Queue::make());
  Producer producer = must(queue.producer());
  Consumer consumer = must(queue.consumer());
  ASSERT_EQ(producer.try_send(bytes_of(3, 100)), Outcome::done);
  std::vector<std::byte> target(100);
  std::size_t received = 0;
  EXPECT_EQ(consumer.try_receive(std::span(target).first(99), received), Outcome::too_large);
  EXPECT_EQ(received, 100U);
  EXPECT_EQ(consumer.try_receive(target, received), Outcome::done);
  EXPECT_EQ(target, bytes_of(3, 100));
}

TEST(Queues, WaitsEndWithTheirTimeLimit) {
  const Queue queue =
      must(Queue::make({.framing = Framing::fixed, .message_bytes = 8, .capacity = Bytes(16)}));
  Producer producer = must(queue.producer());
  Consumer consumer = must(queue.consumer());
  for (const Waiting how : {Waiting::adaptive, Waiting::poll, Waiting::sleep}) {
    const Wait wait{.how = how, .time_max = milliseconds(20)};
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(consumer.wait_for_message(wait), Outcome::timed_out);
    EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(20));
  }
  const std::uint64_t number = 0;
  while (producer.try_send(as_message(number)) == Outcome::done) {
  }
  for (const Waiting how : {Waiting::adaptive, Waiting::poll, Waiting::sleep}) {
    const Wait wait{.how = how, .time_max = milliseconds(20)};
    EXPECT_EQ(producer.send(as_message(number), wait), Outcome::timed_out);
  }
}

TEST(Queues, AnIdleEndTakesNoProcessor) {
  const Queue queue = must(Queue::make());
  Producer producer = must(queue.producer());
  Consumer consumer = must(queue.consumer());
  const auto begin = std::chrono::steady_clock::now();
  const auto before = platform::thread_cpu_time();
  EXPECT_EQ(consumer.wait_for_message({.time_max = std::chrono::seconds(1)}), Outcome::timed_out);
  const auto used = platform::thread_cpu_time() - before;
  EXPECT_LT(20 * used, std::chrono::steady_clock::now() - begin);
}

/// The fastest of many: sends `count` messages and times the receive of the first. With
/// `looks_again`, the consumer then sees that there are no more.
std::chrono::nanoseconds fastest_receive(std::uint64_t slots, unsigned count, bool looks_again) {
  const Queue queue = must(
      Queue::make({.framing = Framing::fixed, .message_bytes = 8, .capacity = Bytes(8 * slots)}));
  Producer producer = must(queue.producer());
  Consumer consumer = must(queue.consumer());
  auto fastest = std::chrono::nanoseconds::max();
  for (int round = 0; round < 2000; ++round) {
    std::uint64_t number = 0;
    for (unsigned i = 0; i < count; ++i) {
      EXPECT_EQ(producer.try_send(as_message(number)), Outcome::done);
    }
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(receive_number(consumer, number), Outcome::done);
    const auto time = std::chrono::steady_clock::now() - begin;
    if (round >= 10) fastest = std::min<std::chrono::nanoseconds>(fastest, time);
    for (unsigned i = 1; i < count; ++i) {
      EXPECT_EQ(receive_number(consumer, number), Outcome::done);
    }
    if (looks_again) {
      EXPECT_EQ(receive_number(consumer, number), Outcome::empty);
    }
  }
  return fastest;
}

TEST(Queues, AConsumerLetsMessagesGatherWhileEachLookFindsSomeAndTheRingIsNearlyEmpty) {
  const auto gathering = fastest_receive(64, 1, false);
  EXPECT_GE(gathering, std::chrono::nanoseconds(400));
  EXPECT_LT(fastest_receive(64, 1, true), gathering);  // As in a round trip.
  EXPECT_LT(fastest_receive(8, 2, false), gathering);  // A producer could run out of room.
}

std::uint64_t g_watched = 0;

TEST(Queues, AConsumerOfSeveralProducersWatchesNotTheLineOfOne) {
  constexpr platform::LineWait kCounting{[](const void*) noexcept { ++g_watched; },
                                         [](std::uint64_t) noexcept { platform::pause(); }};
  platform::replace_line_wait(&kCounting);
  for (const std::uint32_t producers : {1U, 2U}) {
    const Queue queue = must(Queue::make({.producers_max = producers}));
    Consumer consumer = must(queue.consumer());
    g_watched = 0;
    EXPECT_EQ(consumer.wait_for_message({.how = Waiting::poll, .time_max = milliseconds(1)}),
              Outcome::timed_out);
    EXPECT_EQ(g_watched != 0, producers == 1);
  }
  platform::replace_line_wait(nullptr);
}

TEST(Queues, ASleeperIsWokenByAMessageAndByRoom) {
  const Queue queue =
      must(Queue::make({.framing = Framing::fixed, .message_bytes = 8, .capacity = Bytes(16)}));
  Consumer consumer = must(queue.consumer());
  constexpr std::uint64_t kCount = 3000;
  std::thread sender([&queue] {
    Producer producer = must(queue.producer());
    for (std::uint64_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(producer.send(as_message(i), {.how = Waiting::sleep}), Outcome::done);
    }
    // Waits until all is received, so that closing has no further effect.
    ASSERT_EQ(producer.wait_for_room(8, {.how = Waiting::sleep}), Outcome::done);
  });
  for (std::uint64_t i = 0; i < kCount; ++i) {
    std::uint64_t number = 0;
    std::size_t received = 0;
    ASSERT_EQ(consumer.receive(std::as_writable_bytes(std::span(&number, 1)), received,
                               {.how = Waiting::sleep}),
              Outcome::done);
    ASSERT_EQ(number, i);
  }
  sender.join();
}

TEST(Queues, AClosedQueueIsEmptiedFirst) {
  const Queue queue = must(Queue::make({.framing = Framing::fixed, .message_bytes = 8}));
  Producer producer = must(queue.producer());
  Consumer consumer = must(queue.consumer());
  const std::uint64_t sent = 7;
  ASSERT_EQ(producer.try_send(as_message(sent)), Outcome::done);
  queue.close();
  EXPECT_TRUE(queue.state().closed);
  EXPECT_EQ(producer.try_send(as_message(sent)), Outcome::closed);
  EXPECT_EQ(producer.send(as_message(sent)), Outcome::closed);
  std::uint64_t number = 0;
  EXPECT_EQ(receive_number(consumer, number), Outcome::done);
  EXPECT_EQ(number, 7U);
  EXPECT_EQ(receive_number(consumer, number), Outcome::closed);
  EXPECT_EQ(consumer.wait_for_message(), Outcome::closed);
}

TEST(Queues, CloseWakesThoseWhoSleep) {
  const Queue queue =
      must(Queue::make({.framing = Framing::fixed, .message_bytes = 8, .capacity = Bytes(16)}));
  std::thread consumer([&queue] {
    Consumer own = must(queue.consumer());
    Message message;
    Outcome outcome = Outcome::done;
    while ((outcome = own.wait_for_message({.how = Waiting::sleep})) == Outcome::done) {
      static_cast<void>(own.peek(message));  // Never released: the producer gets no room.
    }
    EXPECT_EQ(outcome, Outcome::closed);
  });
  std::thread producer([&queue] {
    Producer own = must(queue.producer());
    const std::uint64_t number = 0;
    while (own.try_send(as_message(number)) == Outcome::done) {
    }
    EXPECT_EQ(own.send(as_message(number), {.how = Waiting::sleep}), Outcome::closed);
  });
  while (queue.state().producer_count == 0 || !queue.state().has_consumer) {
    std::this_thread::yield();
  }
  queue.close();
  consumer.join();
  producer.join();
}

TEST(Queues, EveryPlacementDeliversTheSameBytes) {
  for (const char* text : {"cache", "memory", "header"}) {
    const Placement placement = must(parse_name<Placement>(text, "placement"));
    EXPECT_EQ(name(placement), text);
    const Queue queue = must(Queue::make());
    Producer producer = must(queue.producer());
    Consumer consumer = must(queue.consumer());
    producer.place(placement);
    std::vector<std::byte> target(1000);
    for (std::size_t length = 0; length < 400; length += 3) {
      std::size_t received = 0;
      ASSERT_EQ(producer.try_send(bytes_of(length, length)), Outcome::done);
      ASSERT_EQ(consumer.try_receive(target, received), Outcome::done);
      ASSERT_EQ(std::vector(target.begin(), target.begin() + static_cast<long>(received)),
                bytes_of(length, length));
    }
  }
  const Result<Placement> unknown = parse_name<Placement>("elsewhere", "placement");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_THAT(unknown.error().message(), ::testing::HasSubstr("cache, memory, header"));
}

TEST(Queues, AFunctionOfTheUserSeesEachMessage) {
  const Queue queue = must(Queue::make());
  Producer producer = must(queue.producer());
  Consumer consumer = must(queue.consumer());
  std::size_t seen = 0;
  producer.place([&seen](std::span<std::byte> target, std::span<const std::byte> source) {
    seen += source.size();
    for (std::size_t i = 0; i < source.size(); ++i) target[i] = ~source[i];
  });
  ASSERT_EQ(producer.try_send(bytes_of(1, 10)), Outcome::done);
  std::vector<std::byte> target(10);
  std::size_t received = 0;
  ASSERT_EQ(consumer.try_receive(target, received), Outcome::done);
  EXPECT_EQ(seen, 10U);
  EXPECT_EQ(target[3], ~bytes_of(1, 10)[3]);
}

}  // namespace
}  // namespace headrace::message
