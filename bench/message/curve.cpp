// SPDX-License-Identifier: Apache-2.0
// The curves of 'headrace bench message --threads': messages of 64 bytes between threads.
// `own`: each thread sends to itself, so that threads share nothing. `ring`: each sends to the next
// one, so that every line of a message travels between two processors.
#include "curve.hpp"

#include <memory>
#include <optional>

#include "headrace/message/queue.hpp"

namespace headrace::bench {
namespace {

using message::Outcome;

constexpr std::size_t kBytes = 64;
constexpr std::size_t kSlots = 1024;
constexpr std::size_t kTurn = 128;

/// What one thread writes.
struct alignas(128) End {
  std::optional<message::Producer> producer;
  std::optional<message::Consumer> consumer;
  std::array<std::byte, kBytes> message{};
};
struct Threads {
  std::vector<message::Queue> queues;
  std::vector<End> ends;
};

Curve::Turn make(std::size_t thread_count, std::size_t next) {
  const auto threads = std::make_shared<Threads>();
  threads->ends = std::vector<End>(thread_count);
  for (std::size_t i = 0; i < thread_count; ++i) {
    threads->queues.push_back(must(message::Queue::make({.framing = message::Framing::fixed,
                                                         .message_bytes = kBytes,
                                                         .capacity = Bytes(kBytes * kSlots)})));
  }
  for (std::size_t i = 0; i < thread_count; ++i) {
    threads->ends[i].producer.emplace(must(threads->queues[(i + next) % thread_count].producer()));
    threads->ends[i].consumer.emplace(must(threads->queues[i].consumer()));
  }
  return [threads](std::size_t thread) {
    End& end = threads->ends[thread];
    for (std::size_t i = 0; i < kTurn; ++i) {
      if (end.producer->try_send(end.message) != Outcome::done) break;
    }
    std::size_t received = 0;
    std::size_t byte_count = 0;
    while (received < 2 * kTurn &&
           end.consumer->try_receive(end.message, byte_count) == Outcome::done) {
      ++received;
    }
    return received;
  };
}

}  // namespace

int print_own_curves(const CurveSettings& settings) {
  const std::array curves{Curve{"own", [](std::size_t threads) { return make(threads, 0); }},
                          Curve{"ring", [](std::size_t threads) { return make(threads, 1); }}};
  return print_curves(settings, curves);
}

}  // namespace headrace::bench
