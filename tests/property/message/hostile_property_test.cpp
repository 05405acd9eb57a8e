// SPDX-License-Identifier: Apache-2.0
// Random bytes of the shared segment are changed under both ends, ten thousand times: no end
// crashes or accesses memory outside (checked by AddressSanitizer and by unmapped pages around the
// segment); each call returns an outcome, and a length within the limit.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "headrace/base/atomic.hpp"
#include "headrace/base/random.hpp"
#include "headrace/message/queue.hpp"
#include "layout.hpp"
#include "support/queue.hpp"
#include "support/seed.hpp"

namespace headrace::message {
namespace {

using test::bytes_of;
using test::must;

constexpr int kFlips = 10'000;
constexpr Wait kShort{.time_max = std::chrono::microseconds(1)};

struct Hostile {
  Hostile(const Queue& queue, std::uint64_t seed) : random(seed) {
    length = static_cast<std::size_t>(::lseek(queue.descriptor(), 0, SEEK_END));
    void* const mapped =
        ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, queue.descriptor(), 0);
    if (mapped == MAP_FAILED) std::abort();
    bytes = static_cast<volatile std::uint8_t*>(mapped);
  }
  Hostile(const Hostile&) = delete;
  Hostile& operator=(const Hostile&) = delete;
  ~Hostile() { ::munmap(const_cast<std::uint8_t*>(bytes), length); }

  /// Changes mostly significant words: positions, lengths, states.
  void flip() {
    std::size_t offset = random.below(length);
    if (random.chance(1, 2)) {
      constexpr std::size_t kWords[] = {0, 128, 256, 384, 4096, 4104, 4224, 4352, 8192, 8200};
      offset = kWords[random.below(std::size(kWords))] + random.below(8);
    }
    bytes[offset] = static_cast<std::uint8_t>(bytes[offset] ^ (1U << random.below(8)));
  }

  Random random;
  std::size_t length = 0;
  volatile std::uint8_t* bytes = nullptr;
};

/// Runs both ends for some calls; reattaches when an end has refused the segment.
struct Ends {
  explicit Ends(const Queue& made) : queue(made) {}
  void work(Random& random) {
    if (!producer.has_value()) take(queue.producer(), producer);
    if (!consumer.has_value()) take(queue.consumer(), consumer);
    for (int i = 0; i < 4; ++i) {
      if (producer.has_value()) send(random);
      if (consumer.has_value()) receive(random);
    }
  }
  void send(Random& random) {
    const std::size_t length =
        fixed ? producer->message_bytes_max() : random.below(producer->message_bytes_max() + 2);
    const Outcome outcome = producer->send(bytes_of(1, length), kShort);
    if (outcome == Outcome::damaged) producer.reset();
  }
  void receive(Random& random) {
    Message message;
    Outcome outcome = Outcome::done;
    if (random.chance(1, 2)) {
      outcome =
          fixed && random.chance(1, 2) ? consumer->peek_many(5, message) : consumer->peek(message);
      if (outcome == Outcome::done) {
        for (const std::byte each : message.bytes) sum += static_cast<std::uint64_t>(each);
        consumer->release();
      }
    } else {
      std::size_t received = 0;
      outcome = consumer->receive(target, received, kShort);
      if (outcome == Outcome::done) {
        ASSERT_LE(received, target.size());
      }
    }
    ++outcomes[static_cast<std::size_t>(outcome)];
    if (outcome == Outcome::damaged) consumer.reset();
  }
  template <typename End>
  void take(Result<End> attached, std::optional<End>& end) {
    if (attached.has_value()) end.emplace(std::move(*attached));
  }

  const Queue& queue;
  bool fixed = queue.state().framing == Framing::fixed;
  std::optional<Producer> producer;
  std::optional<Consumer> consumer;
  std::vector<std::byte> target = std::vector<std::byte>(queue.state().message_bytes_max);
  std::uint64_t sum = 0;
  std::uint64_t outcomes[10] = {};
};

class HostilePeers : public ::testing::TestWithParam<QueueOptions> {};

TEST_P(HostilePeers, FlipsBetweenCallsCrashNothing) {
  std::uint64_t damaged = 0;
  std::uint64_t done = 0;
  Random random(test::seed());
  for (int flips = 0; flips < kFlips;) {
    // Restarts from an intact segment, because a closed one or a damaged head ends the test.
    const Queue queue = must(Queue::make(GetParam()));
    Hostile hostile(queue, random());
    Ends ends(queue);
    for (int i = 0; i < 50; ++i, ++flips) {
      ends.work(random);
      hostile.flip();
      ends.work(random);
    }
    damaged += ends.outcomes[static_cast<std::size_t>(Outcome::damaged)];
    done += ends.outcomes[static_cast<std::size_t>(Outcome::done)];
  }
  EXPECT_GT(damaged, 0U);
  EXPECT_GT(done, 0U);
}

TEST_P(HostilePeers, FlipsDuringCallsCrashNothing) {
  Random random(test::seed() + 1);
  for (int rounds = 0; rounds < 20; ++rounds) {
    const Queue queue = must(Queue::make(GetParam()));
    Hostile hostile(queue, random());
    Atomic<std::uint32_t> flips{0};
    std::thread other([&hostile, &flips] {
      for (int i = 0; i < kFlips / 20; ++i) {
        hostile.flip();
        flips.fetch_add_relaxed(1);  // Relaxed: a counter.
      }
    });
    Ends ends(queue);
    while (flips.load_relaxed() < kFlips / 20) ends.work(random);  // Relaxed: a counter.
    other.join();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Framings, HostilePeers,
    ::testing::Values(
        QueueOptions{.framing = Framing::fixed, .message_bytes = 24, .capacity = kib(1)},
        QueueOptions{.capacity = kib(4)},
        QueueOptions{.message_bytes = 40, .capacity = kib(4), .producers_max = 3}));

}  // namespace
}  // namespace headrace::message
