// SPDX-License-Identifier: Apache-2.0
// Two ends: which process may have a role, and the state of a queue when an end closes, is killed
// or forks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>

#include "headrace/message/queue.hpp"
#include "headrace/platform/wait.hpp"
#include "support/queue.hpp"

namespace headrace::message::peers_test {
namespace {

using test::as_message;
using test::in_child;
using test::must;
using test::status_of;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kLong{20};

Queue numbers(std::uint32_t producers_max = 1) {
  return must(Queue::make({.framing = Framing::fixed,
                           .message_bytes = 8,
                           .capacity = Bytes(8 * 16),
                           .producers_max = producers_max}));
}

Outcome receive_number(Consumer& consumer, std::uint64_t& number) {
  std::size_t received = 0;
  return consumer.receive(std::as_writable_bytes(std::span(&number, 1)), received,
                          {.time_max = kLong});
}

TEST(Peers, TwoProducersOnAQueueForOneAreRefused) {
  const Queue queue = numbers();
  const Producer producer = must(queue.producer());
  const Result<Producer> second = queue.producer();
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, Code::capacity_exceeded);
  EXPECT_THAT(second.error().message(), HasSubstr("producers_max"));
  const Consumer consumer = must(queue.consumer());
  EXPECT_FALSE(queue.consumer().has_value());
  EXPECT_EQ(queue.state().producer_count, 1U);
  EXPECT_TRUE(queue.state().has_consumer);
}

TEST(Peers, ARoleIsFreeWhenItsEndIsGone) {
  const Queue queue = numbers();
  for (int i = 0; i < 3; ++i) {
    const Producer producer = must(queue.producer());
    const Consumer consumer = must(queue.consumer());
  }
  EXPECT_EQ(queue.state().producer_count, 0U);
  EXPECT_FALSE(queue.state().has_consumer);
}

TEST(Peers, WhatAnEndLeftBehindTheNextOneFinds) {
  const Queue queue = numbers();
  for (std::uint64_t i = 0; i < 10; ++i) {
    Producer producer = must(queue.producer());
    EXPECT_EQ(producer.position(), i);
    ASSERT_EQ(producer.try_send(as_message(i)), Outcome::done);
  }
  for (std::uint64_t i = 0; i < 10; ++i) {
    Consumer consumer = must(queue.consumer());
    std::uint64_t number = 0;
    ASSERT_EQ(receive_number(consumer, number), Outcome::done);
    EXPECT_EQ(number, i);
  }
}

TEST(Peers, AQueueReachesAnotherProcessByItsName) {
  const std::string path =
      std::filesystem::temp_directory_path() / ("headrace-queue-" + std::to_string(::getpid()));
  const Queue queue = must(
      Queue::make_named(path, {.framing = Framing::fixed, .message_bytes = 8, .capacity = kib(4)}));
  EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms(0600));
  const pid_t child = in_child([&path] {
    const Queue opened = must(Queue::open(path));
    Producer producer = must(opened.producer());
    for (std::uint64_t i = 0; i < 2000; ++i) {
      if (producer.send(as_message(i)) != Outcome::done) return 1;
    }
    return 0;
  });
  Consumer consumer = must(queue.consumer());
  for (std::uint64_t i = 0; i < 2000; ++i) {
    std::uint64_t number = 0;
    ASSERT_EQ(receive_number(consumer, number), Outcome::done);
    ASSERT_EQ(number, i);
  }
  EXPECT_EQ(status_of(child), 0);
  std::filesystem::remove(path);
}

TEST(Peers, AQueueReachesAnotherProcessByItsDescriptor) {
  const Queue queue = numbers();
  const pid_t child = in_child([&queue] {
    const Queue opened = must(Queue::from_descriptor(queue.descriptor()));
    Producer producer = must(opened.producer());
    for (std::uint64_t i = 0; i < 2000; ++i) {
      if (producer.send(as_message(i)) != Outcome::done) return 1;
    }
    return 0;
  });
  Consumer consumer = must(queue.consumer());
  for (std::uint64_t i = 0; i < 2000; ++i) {
    std::uint64_t number = 0;
    ASSERT_EQ(receive_number(consumer, number), Outcome::done);
    ASSERT_EQ(number, i);
  }
  EXPECT_EQ(status_of(child), 0);
}

TEST(Peers, AKilledProducerIsNoticedAfterItsLastMessageAndOnce) {
  const Queue queue = numbers();
  const pid_t child = in_child([&queue] {
    Producer producer = must(queue.producer());
    for (std::uint64_t i = 0; i < 3; ++i) static_cast<void>(producer.try_send(as_message(i)));
    std::span<std::byte> room;
    static_cast<void>(producer.reserve(8, room));
    ::raise(SIGKILL);
    return 0;
  });
  status_of(child);
  Consumer consumer = must(queue.consumer());
  std::uint64_t number = 0;
  for (std::uint64_t i = 0; i < 3; ++i) {
    ASSERT_EQ(receive_number(consumer, number), Outcome::done);
    EXPECT_EQ(number, i);
  }
  EXPECT_EQ(receive_number(consumer, number), Outcome::peer_lost);
  EXPECT_EQ(consumer.wait_for_message({.time_max = std::chrono::milliseconds(30)}),
            Outcome::timed_out);
  Producer next = must(queue.producer());
  ASSERT_EQ(next.try_send(as_message(9)), Outcome::done);
  EXPECT_EQ(receive_number(consumer, number), Outcome::done);
  EXPECT_EQ(number, 9U);
}

TEST(Peers, ASleepingEndNoticesThatItsPeerIsKilled) {
  const Queue queue = numbers();
  const pid_t child = in_child([&queue] {
    const Producer producer = must(queue.producer());
    ::pause();
    return 0;
  });
  while (queue.state().producer_count == 0) {
  }
  Consumer consumer = must(queue.consumer());
  EXPECT_EQ(
      consumer.wait_for_message({.how = Waiting::sleep, .time_max = std::chrono::milliseconds(50)}),
      Outcome::timed_out);
  ::kill(child, SIGKILL);
  EXPECT_EQ(consumer.wait_for_message({.how = Waiting::sleep, .time_max = kLong}),
            Outcome::peer_lost);
  status_of(child);
}

TEST(Peers, AKilledConsumerIsNoticedByAProducerThatWaitsForRoom) {
  const Queue queue = numbers();
  const pid_t child = in_child([&queue] {
    const Consumer consumer = must(queue.consumer());
    ::raise(SIGKILL);
    return 0;
  });
  status_of(child);
  Producer producer = must(queue.producer());
  const std::uint64_t number = 1;
  while (producer.try_send(as_message(number)) == Outcome::done) {
  }
  EXPECT_EQ(producer.send(as_message(number), {.time_max = kLong}), Outcome::peer_lost);
}

TEST(Peers, WhatAKilledConsumerHadPeekedAndNotReleasedComesAgain) {
  const Queue queue = numbers();
  Producer producer = must(queue.producer());
  for (std::uint64_t i = 0; i < 3; ++i) {
    ASSERT_EQ(producer.try_send(as_message(i)), Outcome::done);
  }
  const pid_t child = in_child([&queue] {
    Consumer consumer = must(queue.consumer());
    std::uint64_t number = 0;
    Message message;
    static_cast<void>(receive_number(consumer, number));
    static_cast<void>(consumer.peek(message));
    ::raise(SIGKILL);
    return 0;
  });
  status_of(child);
  Consumer consumer = must(queue.consumer());
  for (std::uint64_t i = 1; i < 3; ++i) {
    std::uint64_t number = 0;
    ASSERT_EQ(receive_number(consumer, number), Outcome::done);
    EXPECT_EQ(number, i);
  }
}

TEST(Peers, AProducerThatDetachesIsNoNews) {
  const Queue queue = numbers();
  Consumer consumer = must(queue.consumer());
  {
    const Producer producer = must(queue.producer());
  }
  EXPECT_EQ(consumer.wait_for_message({.time_max = std::chrono::milliseconds(30)}),
            Outcome::timed_out);
}

TEST(Peers, AProducerKilledBeforeItsCommitBlocksNoOther) {
  const Queue queue = numbers(3);
  const pid_t child = in_child([&queue] {
    Producer producer = must(queue.producer());
    std::span<std::byte> room;
    static_cast<void>(producer.reserve(8, room));
    ::raise(SIGKILL);
    return 0;
  });
  status_of(child);
  Producer producer = must(queue.producer());
  EXPECT_EQ(producer.number(), 0U);  // The killed producer's place.
  Producer other = must(queue.producer());
  Consumer consumer = must(queue.consumer());
  for (std::uint64_t i = 0; i < 100; ++i) {
    std::uint64_t number = 0;
    ASSERT_EQ((i % 2 == 0 ? producer : other).try_send(as_message(i)), Outcome::done);
    ASSERT_EQ(receive_number(consumer, number), Outcome::done);
    ASSERT_EQ(number, i);
  }
}

TEST(Peers, AForkedChildHasNoRoleAndTheParentKeepsIts) {
  const Queue queue = numbers();
  Producer producer = must(queue.producer());
  Consumer consumer = must(queue.consumer());
  const pid_t child = in_child([&] {
    const std::uint64_t number = 5;
    Message message;
    if (producer.try_send(as_message(number)) != Outcome::forked) return 1;
    if (consumer.peek(message) != Outcome::forked) return 2;
    if (consumer.wait_for_message() != Outcome::forked) return 3;
    // Destroyed in the child, they do not close the parent's ends.
    Producer gone = std::move(producer);
    Consumer gone_too = std::move(consumer);
    return 0;
  });
  EXPECT_EQ(status_of(child), 0);
  EXPECT_EQ(queue.state().producer_count, 1U);
  EXPECT_TRUE(queue.state().has_consumer);
  const std::uint64_t sent = 6;
  std::uint64_t number = 0;
  ASSERT_EQ(producer.try_send(as_message(sent)), Outcome::done);
  ASSERT_EQ(receive_number(consumer, number), Outcome::done);
  EXPECT_EQ(number, 6U);
}

TEST(Peers, AChildOfForkDoesNotKeepTheRoleOfAKilledParent) {
  const Queue queue = numbers();
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const pid_t parent = in_child([&queue, &pipe] {
    ::close(pipe[1]);
    const Producer producer = must(queue.producer());
    if (::fork() == 0) {
      // Lives until the test closes its end.
      char byte = 0;
      ::_exit(static_cast<int>(::read(pipe[0], &byte, 1)));
    }
    ::raise(SIGKILL);
    return 0;
  });
  status_of(parent);
  // Once the grandchild has run: it closes inherited ends before fork() returns.
  bool taken = false;
  for (int i = 0; i < 1000 && !taken; ++i) {
    taken = queue.producer().has_value();
    if (!taken) platform::sleep(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(taken);
  ::close(pipe[1]);
  ::close(pipe[0]);
}

volatile std::sig_atomic_t g_signals = 0;

TEST(Peers, ASignalDoesNotEndAWait) {
  struct sigaction action{};
  action.sa_handler = [](int) { g_signals = g_signals + 1; };
  ::sigaction(SIGALRM, &action, nullptr);
  const Queue queue = numbers();
  Consumer consumer = must(queue.consumer());
  ::ualarm(5000, 5000);
  EXPECT_EQ(consumer.wait_for_message(
                {.how = Waiting::sleep, .time_max = std::chrono::milliseconds(100)}),
            Outcome::timed_out);
  ::ualarm(0, 0);
  EXPECT_GT(g_signals, 0);
}

}  // namespace
}  // namespace headrace::message::peers_test
