// SPDX-License-Identifier: Apache-2.0
// Question: is a computation faster if the message that it reads was placed in a cache?
//
//   headrace-bench-injection ROUNDS STEP_KIB MESSAGE_BYTES,... WORKING_SET_BYTES,...
//
// Method. The sender, a child process pinned to one processor, acts as the network interface; the
// receiver is this process on another. A step has a communication phase, in which the receiver asks
// for a message and waits for it, and a computation phase, in which it reads every word of the
// message and then of its working set, in a chain of additions. The sender writes the message with
// one of the placements of message::Producer and is idle during the computation. Both phases are
// timed. For each pair of sizes, each round measures every placement, in rotated order, for as many
// steps as read STEP_KIB, 8 to 200; its value is the median of the steps.
//
// The placements: docs/concepts/message.md. No store puts a line into the receiver's private cache,
// as a network interface with cache injection would; so the gain is that of a line in the sender's
// or the shared cache over one in memory. Prints one JSON document.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/message/queue.hpp"
#include "headrace/platform/ticks.hpp"
#include "pair.hpp"
#include "perf_counter.hpp"

namespace headrace::bench {
namespace {

using message::Outcome;
using message::Placement;

struct Control {
  alignas(128) Atomic<std::uint32_t> ready;
  alignas(128) Atomic<std::uint32_t> asked;
  alignas(128) Atomic<std::uint32_t> stop;
};

struct Step {
  double computation_ns = 0;
  double total_ns = 0;
  double misses = 0;
};

struct Cell {
  std::size_t message_bytes = 0;
  std::size_t working_set_bytes = 0;
  Placement placement = Placement::cache;
  std::vector<Step> rounds = {};
};

/// On a loaded machine, each step may wait until the other end is scheduled.
constexpr std::size_t kStepsMax = 200;

volatile std::uint64_t g_result = 0;

/// Each addition depends on the one before, so that the latency of loads shows.
std::uint64_t add_up(std::span<const std::byte> bytes, std::uint64_t sum) {
  for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, &bytes[i], sizeof(word));
    sum = (sum + word) * 3;
  }
  return sum;
}

Step measure(const Places& places, const Cell& cell, std::size_t step_bytes,
             const PerfCounter& counter) {
  Control& control = *new (shared_memory(sizeof(Control))) Control;
  const message::Queue queue =
      must(message::Queue::make({.framing = message::Framing::fixed,
                                 .message_bytes = cell.message_bytes,
                                 .capacity = Bytes(4 * cell.message_bytes)}));
  const pid_t child = run_child(places.sender, [&] {
    message::Producer producer = must(queue.producer());
    producer.place(cell.placement);
    const std::vector<std::byte> source(cell.message_bytes, std::byte{1});
    control.ready.store_release(1);
    for (std::uint32_t sent = 0; control.stop.load_relaxed() == 0;) {  // May be seen late.
      if (control.asked.load_acquire() == sent) {
        platform::pause();
        continue;
      }
      if (producer.try_send(source) != Outcome::done) ::_exit(1);
      ++sent;
    }
  });
  message::Consumer consumer = must(queue.consumer());
  std::vector<std::byte> working_set(cell.working_set_bytes, std::byte{1});
  while (control.ready.load_acquire() == 0) platform::pause();
  const std::size_t step_count = std::clamp<std::size_t>(
      step_bytes / (cell.message_bytes + cell.working_set_bytes + 1), 8, kStepsMax);
  const double ns_per_tick = 1e9 / platform::ticks_per_second();
  std::vector<double> computation;
  std::vector<double> total;
  double misses = 0;
  // The first steps fault pages in and warm the caches.
  for (std::size_t step = 0; step < step_count + 4; ++step) {
    const std::uint64_t begin = platform::ticks();
    control.asked.store_release(static_cast<std::uint32_t>(step + 1));
    message::Message message;
    Outcome outcome = Outcome::empty;
    while ((outcome = consumer.peek(message)) == Outcome::empty) platform::pause();
    if (outcome != Outcome::done) die("the queue failed");
    const std::uint64_t misses_before = counter.read().value_or(0);
    const std::uint64_t arrived = platform::ticks();
    g_result = add_up(working_set, add_up(message.bytes, 0));
    const std::uint64_t done = platform::ticks();
    const std::uint64_t misses_after = counter.read().value_or(0);
    consumer.release();
    if (step < 4) continue;
    computation.push_back(static_cast<double>(done - arrived) * ns_per_tick);
    total.push_back(static_cast<double>(done - begin) * ns_per_tick);
    misses += static_cast<double>(misses_after - misses_before);
  }
  control.stop.store_relaxed(1);  // As above.
  wait_for_child(child);
  ::munmap(&control, sizeof(control));
  return {.computation_ns = median(computation),
          .total_ns = median(total),
          .misses = misses / static_cast<double>(step_count)};
}

int run(int round_count, std::size_t step_bytes, const std::vector<std::size_t>& messages,
        const std::vector<std::size_t>& working_sets) {
  const Places places = find_places();
  if (places.same_cpu) die("two processors are needed and this process may use one; allow another");
  pin(places.receiver);
  const PerfCounter counter(PERF_COUNT_HW_CACHE_MISSES, PerfCounter::Where::user_mode);
  std::vector<Cell> cells;
  constexpr std::array kPlacements{Placement::memory, Placement::cache, Placement::header};
  constexpr std::size_t kPlacementCount = kPlacements.size();
  for (const std::size_t working_set : working_sets) {
    for (const std::size_t bytes : messages) {
      for (const Placement each : kPlacements) {
        cells.push_back(
            {.message_bytes = bytes, .working_set_bytes = working_set, .placement = each});
      }
    }
  }
  for (int round = 0; round < round_count; ++round) {
    for (std::size_t first = 0; first < cells.size(); first += kPlacementCount) {
      for (std::size_t i = 0; i < kPlacementCount; ++i) {
        Cell& cell = cells[first + (i + static_cast<std::size_t>(round)) % kPlacementCount];
        cell.rounds.push_back(measure(places, cell, step_bytes, counter));
      }
    }
  }
  const bool counts = counter.problem().empty();
  Json measured = Json::array();
  for (const Cell& cell : cells) {
    measured.push_back({{"message_bytes", cell.message_bytes},
                        {"working_set_bytes", cell.working_set_bytes},
                        {"placement", message::name(cell.placement)},
                        {"computation_ns", list_of(cell.rounds, &Step::computation_ns)},
                        {"total_ns", list_of(cell.rounds, &Step::total_ns)},
                        {"misses", counts ? list_of(cell.rounds, &Step::misses) : Json()}});
  }
  print({{"sender_cpu", places.sender},
         {"receiver_cpu", places.receiver},
         {"same_core", places.same_core},
         {"counters",
          counts ? "cache misses of the computation phase" : "not counted: " + counter.problem()},
         {"cells", measured}});
  return 0;
}

}  // namespace
}  // namespace headrace::bench

int main(int argc, char** argv) {
  using namespace headrace::bench;
  if (argc != 5) {
    die("usage: headrace-bench-injection ROUNDS STEP_KIB MESSAGE_BYTES,... WORKING_SET_BYTES,...");
  }
  return run(std::atoi(argv[1]), parse_number(argv[2]) * 1024, parse_numbers(argv[3]),
             parse_numbers(argv[4], 0));
}
