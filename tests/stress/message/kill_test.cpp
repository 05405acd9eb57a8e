// SPDX-License-Identifier: Apache-2.0
// Producer and consumer are killed in turn, a hundred times, at any instruction: no committed
// message is lost, no released message is delivered again.
//
// A message's number is its position among all committed messages, which a producer learns when it
// attaches; so a lost or duplicated message breaks the sequence. The consumer notes each number
// before it releases the message; the first one after a kill may be the last one noted.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <array>
#include <chrono>
#include <cstring>
#include <thread>

#include "headrace/base/atomic.hpp"
#include "headrace/base/random.hpp"
#include "headrace/message/queue.hpp"
#include "headrace/platform/cpu.hpp"
#include "headrace/platform/wait.hpp"
#include "support/queue.hpp"
#include "support/seed.hpp"

namespace headrace::message {
namespace {

using test::in_child;
using test::must;
using test::status_of;

constexpr int kKills = 100;
/// A variable message of 24 bytes has four units.
constexpr std::size_t kMessageBytes = 24;
constexpr std::uint64_t kVariableUnits = 4;

/// Notes of both ends, in memory that outlives them.
struct Notes {
  Atomic<std::uint64_t> received;  ///< Messages noted, in order.
  Atomic<std::uint64_t> wrong;     ///< The first number out of sequence, plus 1.
  Atomic<std::uint64_t> repeated;
};

Notes& make_notes() {
  void* const mapped =
      ::mmap(nullptr, sizeof(Notes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) std::abort();
  return *new (mapped) Notes;
}

void linger() {
  for (int i = 0; i < 50; ++i) platform::pause();
}

using Numbers = std::array<std::uint64_t, kMessageBytes / 8>;

int produce(const Queue& queue, std::uint64_t units) {
  Producer producer = must(queue.producer());
  for (std::uint64_t number = producer.position() / units;; ++number) {
    const Numbers message = {number, ~number, number * 3};
    std::span<std::byte> room;
    Outcome outcome = Outcome::done;
    while ((outcome = producer.reserve(kMessageBytes, room)) != Outcome::done) {
      if (outcome == Outcome::full) outcome = producer.wait_for_room(kMessageBytes);
      if (outcome == Outcome::closed) return 0;
      if (outcome != Outcome::done && outcome != Outcome::peer_lost) return 1;
    }
    linger();  // Widens the window for a kill here.
    std::memcpy(room.data(), message.data(), kMessageBytes);
    if (producer.commit(kMessageBytes) != Outcome::done) return 1;
  }
}

int consume(const Queue& queue, Notes& notes) {
  Consumer consumer = must(queue.consumer());
  bool first = true;
  for (;;) {
    Message message;
    const Outcome outcome = consumer.peek(message);
    if (outcome == Outcome::closed) return 0;
    if (outcome == Outcome::empty) {
      const Outcome waited = consumer.wait_for_message();
      if (waited == Outcome::closed) return 0;
      if (waited != Outcome::done && waited != Outcome::peer_lost) return 1;
      continue;
    }
    if (outcome != Outcome::done || message.bytes.size() != kMessageBytes) return 2;
    Numbers numbers{};
    std::memcpy(numbers.data(), message.bytes.data(), kMessageBytes);
    const std::uint64_t expected = notes.received.load_relaxed();  // One consumer at a time.
    const bool whole = numbers[1] == ~numbers[0] && numbers[2] == numbers[0] * 3;
    if (whole && first && numbers[0] + 1 == expected) {
      notes.repeated.fetch_add_relaxed(1);  // A count.
    } else if (!whole || numbers[0] != expected) {
      notes.wrong.store_relaxed(expected + 1);  // Read when this process has ended.
      return 3;
    } else {
      notes.received.store_relaxed(expected + 1);  // As above.
    }
    first = false;
    linger();  // Widens the window for a kill here.
    if (consumer.release() != Outcome::done) return 4;
  }
}

void kill_in_turn(const QueueOptions& options, std::uint64_t units) {
  const Queue queue = must(Queue::make(options));
  Notes& notes = make_notes();
  Random random(test::seed());
  const auto start_producer = [&] { return in_child([&] { return produce(queue, units); }); };
  const auto start_consumer = [&] { return in_child([&] { return consume(queue, notes); }); };
  pid_t producer = start_producer();
  pid_t consumer = start_consumer();
  for (int i = 0; i < kKills; ++i) {
    // Waits for progress since the last kill.
    const std::uint64_t before = notes.received.load_relaxed();  // Relaxed: a counter.
    while (notes.received.load_relaxed() == before && notes.wrong.load_relaxed() == 0) {
      std::this_thread::yield();
    }
    platform::sleep(std::chrono::microseconds(random.below(3000)));
    pid_t& victim = i % 2 == 0 ? producer : consumer;
    ::kill(victim, SIGKILL);
    ASSERT_TRUE(WIFSIGNALED(status_of(victim))) << "it ended by itself";
    victim = i % 2 == 0 ? start_producer() : start_consumer();
  }
  queue.close();
  EXPECT_EQ(status_of(producer), 0);
  EXPECT_EQ(status_of(consumer), 0);
  // Messages committed during close() may have arrived after the consumer's last poll.
  EXPECT_EQ(consume(queue, notes), 0);
  EXPECT_EQ(notes.wrong.load_relaxed(), 0U);
  const std::uint64_t received = notes.received.load_relaxed();
  std::printf("%d kills, %llu messages, %llu came again because they were not released\n", kKills,
              static_cast<unsigned long long>(received),
              static_cast<unsigned long long>(notes.repeated.load_relaxed()));
  // Every committed message was received.
  Producer last = must(queue.producer());
  EXPECT_EQ(last.position(), received * units);
}

TEST(Kills, NothingIsLostOrDoubledWithFixedMessages) {
  kill_in_turn({.framing = Framing::fixed, .message_bytes = kMessageBytes, .capacity = kib(2)}, 1);
}

TEST(Kills, NothingIsLostOrDoubledWithVariableMessages) {
  // 4096 bytes are a whole number of messages, so nothing is skipped and positions can be divided.
  kill_in_turn({.message_bytes = kMessageBytes, .capacity = kib(4)}, kVariableUnits);
}

}  // namespace
}  // namespace headrace::message
