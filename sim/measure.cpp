// SPDX-License-Identifier: Apache-2.0
#include "sim/measure.hpp"

#include <algorithm>
#include <array>
#include <barrier>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <thread>

#include "headrace/base/atomic.hpp"
#include "headrace/engine/engine.hpp"
#include "headrace/message/queue.hpp"
#include "headrace/platform/cpu.hpp"
#include "headrace/platform/memory.hpp"
#include "headrace/platform/thread.hpp"
#include "headrace/platform/ticks.hpp"
#include "headrace/platform/wait.hpp"
#include "headrace/topo/machine.hpp"

namespace headrace::sim {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kLine = 64;
/// Between two buffers: a load waits for a store at the same place of another page.
constexpr std::size_t kHalfPage = 2048;
/// Bytes between clock reads, so that their cost is negligible.
constexpr std::size_t kStep = std::size_t{256} << 10U;
/// A thread that ran for less than this share of a round counts as preempted.
constexpr double kPresentShare = 0.97;

double ns_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::nano>(end - begin).count();
}

/// Takes huge pages if `bytes` is large enough: the measurement is of memory, not of the TLB.
Result<platform::OwnedPages> take_pages(std::size_t bytes, NodeId node) {
  const bool fits = platform::huge_page_bytes() > 0 && bytes >= platform::huge_page_bytes();
  HEADRACE_TAKE(pages, platform::allocate_pages(
                           bytes, node, fits ? platform::Pages::huge : platform::Pages::plain));
  platform::OwnedPages owned(*pages);
  HEADRACE_TRY(platform::prefault_pages(*pages));
  return owned;
}

/// Work of one thread in a round, until `deadline` or until the other thread stops. Returns the
/// round's value.
using Body = std::function<double(std::uint32_t round, Clock::time_point deadline)>;

struct Worker {
  CpuId cpu;
  Body body;
};

Result<Samples> measure_rounds(const std::vector<Worker>& workers, const Effort& effort) {
  const std::size_t count = workers.size();
  Samples samples;
  samples.values.resize(count);
  std::vector<std::vector<double>> all(count);
  std::vector<std::optional<Error>> errors(count);
  std::vector<double> values(count);
  struct Presence {
    Clock::time_point begin;
    Clock::time_point end;
    double on_cpu_ns = 0;
  };
  std::vector<Presence> presences(count);
  bool done = false;
  const auto end = Clock::now() + effort.time_max;
  // Runs while all threads are blocked in the barrier.
  const auto judge = [&]() noexcept {
    done = std::any_of(errors.begin(), errors.end(), [](const auto& each) { return !!each; });
    if (samples.round_count++ == 0) return;  // Before the first round.
    // A thread that started late counts as preempted, too.
    Clock::time_point first = presences.front().begin;
    Clock::time_point last = presences.front().end;
    for (const Presence& each : presences) {
      first = std::min(first, each.begin);
      last = std::max(last, each.end);
    }
    const double needed_ns = kPresentShare * ns_between(first, last);
    const bool undisturbed = std::ranges::all_of(
        presences, [&](const Presence& each) { return each.on_cpu_ns >= needed_ns; });
    if (!undisturbed) ++samples.disturbed_count;
    for (std::size_t i = 0; i < count; ++i) {
      all[i].push_back(values[i]);
      if (undisturbed) samples.values[i].push_back(values[i]);
    }
    done = done || Clock::now() >= end || samples.values.front().size() >= effort.sample_count;
  };
  std::barrier barrier(static_cast<std::ptrdiff_t>(count), judge);
  Atomic<std::uint32_t> begun{0};
  const auto run = [&](std::size_t index) {
    if (auto pinned = platform::pin_this_thread({&workers[index].cpu, 1}); !pinned) {
      errors[index] = pinned.error();
    }
    for (std::uint32_t round = 1;; ++round) {
      barrier.arrive_and_wait();
      if (done) return;
      // The barrier wakes threads one by one; spin until all are running.
      begun.fetch_add_acq_rel(1);
      while (begun.load_acquire() < round * count) platform::pause();
      const auto used = platform::thread_cpu_time();
      const auto begin = Clock::now();
      values[index] = workers[index].body(round, begin + effort.round_time);
      const auto round_end = Clock::now();
      const std::chrono::duration<double, std::nano> on_cpu = platform::thread_cpu_time() - used;
      presences[index] = {begin, round_end, on_cpu.count()};
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < count; ++i) threads.emplace_back([&run, i] { run(i); });
  }
  for (const auto& error : errors) {
    if (error.has_value()) return fail(*error);
  }
  --samples.round_count;
  if (samples.values.front().empty()) samples.values = std::move(all);
  return samples;
}

/// Reads every line into a sum for each of its words: additions that wait for each other would take
/// longer than a cache.
std::uint64_t read_all(const std::byte* first, std::size_t bytes) {
  std::array<std::uint64_t, kLine / sizeof(std::uint64_t)> sums{};
  const auto* words = reinterpret_cast<const std::uint64_t*>(first);
  for (std::size_t left = bytes / kLine; left > 0; --left) {
    for (std::uint64_t& sum : sums) sum += *words++;
  }
  return std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
}

/// Changes every word in place.
void update_all(std::byte* first, std::size_t bytes) {
  auto* const words = reinterpret_cast<std::uint64_t*>(first);
  for (std::size_t i = 0; i < bytes / sizeof(std::uint64_t); ++i) words[i] += 1;
}

void keep(std::uint64_t value) {
  asm volatile("" : : "r"(value) : "memory");
}

/// The median of the trips, so that trips in which the other thread was preempted do not count.
template <typename Trip, typename Between = void (*)()>
double median_trip_ns(
    Clock::time_point deadline, const Trip& trip, const Between& between = [] {}) {
  std::vector<std::uint64_t> ticks;
  do {
    between();
    const std::uint64_t before = platform::ticks();
    trip();
    ticks.push_back(platform::ticks_after() - before);
  } while (Clock::now() < deadline);
  const auto middle = ticks.begin() + static_cast<std::ptrdiff_t>(ticks.size() / 2);
  std::nth_element(ticks.begin(), middle, ticks.end());
  return static_cast<double>(*middle) / platform::ticks_per_second() * 1e9;
}

struct Repeated {
  double ns = 0;
  double amount = 0;
};
/// Repeats `step`, which returns an amount, until `deadline`, at least once: it may have passed
/// before the first clock read.
template <typename Step>
Repeated repeat(Clock::time_point deadline, const Step& step) {
  const auto begin = Clock::now();
  Repeated done;
  auto now = begin;
  do {
    done.amount += step();
    now = Clock::now();
  } while (now < deadline);
  done.ns = std::max(1.0, ns_between(begin, now));
  return done;
}

Failure refuse(const std::string& cause, const std::string& remedy) {
  return fail(Code::invalid_argument, "measure memory", cause, remedy);
}

/// Of a queue of messages of `bytes`.
std::size_t slots_of(std::size_t bytes) {
  return std::clamp<std::size_t>((256U << 10U) / bytes, 4, 4096);
}

/// The last round that the first of two threads finished; tells the second one to stop.
class Stop {
 public:
  void set(std::uint32_t round) { round_.store_release(round); }
  [[nodiscard]] bool is_set(std::uint32_t round) const { return round_.load_acquire() == round; }

 private:
  Atomic<std::uint32_t> round_{0};
};

}  // namespace

Result<Samples> measure_streams(const std::vector<Stream>& streams, const Effort& effort) {
  if (streams.empty()) return refuse("there is no processor", "give at least one");
  std::vector<platform::OwnedPages> owned;
  std::vector<Worker> workers;
  for (const Stream& stream : streams) {
    if (stream.bytes < kLine || stream.bytes > stream.span) {
      return refuse("a call moves less than a line, or more than all memory",
                    "use 64 bytes to the length of the memory");
    }
    HEADRACE_TAKE(source_pages, take_pages(stream.span, stream.node));
    std::byte* const source = source_pages->get().data();
    std::byte* target = nullptr;
    owned.push_back(std::move(*source_pages));
    if (stream.access == Access::copy) {
      HEADRACE_TAKE(target_pages, take_pages(stream.span, stream.node));
      target = target_pages->get().data();
      owned.push_back(std::move(*target_pages));
    }
    workers.push_back({stream.cpu, [&stream, source, target, at = std::size_t{0}](
                                       std::uint32_t, Clock::time_point deadline) mutable {
                         const Repeated done = repeat(deadline, [&] {
                           std::size_t moved = 0;
                           for (; moved < kStep; moved += stream.bytes, at += stream.bytes) {
                             if (stream.span - at < stream.bytes) at = 0;
                             switch (stream.access) {
                               case Access::read:
                                 keep(read_all(source + at, stream.bytes));
                                 break;
                               case Access::fill:
                                 std::memset(source + at, 1, stream.bytes);
                                 break;
                               case Access::update:
                                 update_all(source + at, stream.bytes);
                                 break;
                               case Access::copy:
                                 std::memcpy(target + at, source + at, stream.bytes);
                                 break;
                             }
                           }
                           return static_cast<double>(moved);
                         });
                         return done.amount / done.ns;
                       }});
  }
  return measure_rounds(workers, effort);
}

Result<Samples> measure_latency(CpuId cpu, NodeId node, std::size_t bytes, const Effort& effort) {
  const std::size_t count = bytes / kLine;
  if (count < 2 || count > UINT32_MAX) {
    return refuse("there are less than two lines, or over 2^32", "use 128 bytes to 256 GiB");
  }
  HEADRACE_TAKE(memory, take_pages(count * kLine, node));
  // One cycle through all lines (Sattolo); each line holds the index of the next.
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  std::mt19937 random(1);
  for (std::size_t i = count - 1; i > 0; --i) {
    std::swap(order[i], order[std::uniform_int_distribution<std::size_t>(0, i - 1)(random)]);
  }
  const auto line = [&](std::uint32_t index) {
    return reinterpret_cast<std::uint32_t*>(memory->get().data() + std::size_t{index} * kLine);
  };
  for (std::uint32_t i = 0; i < count; ++i) *line(i) = order[i];
  const Body walk = [&, at = std::uint32_t{0}](std::uint32_t, Clock::time_point deadline) mutable {
    const Repeated done = repeat(deadline, [&] {
      for (int i = 0; i < 500; ++i) at = *line(at);
      keep(at);
      return 500.0;
    });
    return done.ns / done.amount;
  };
  return measure_rounds({{cpu, walk}}, effort);
}

Result<Samples> measure_handover(CpuId first, CpuId second, std::size_t bytes,
                                 const Effort& effort) {
  if (bytes < sizeof(std::uint64_t)) {
    return refuse("there is less than a word to hand over", "use at least 8 bytes");
  }
  struct alignas(2 * kLine) Turn {
    Atomic<std::uint64_t> number{0};
  };
  Turn turn;
  Stop stop;
  // As two queues: each thread writes one slot of its own after the other, which the other reads.
  const std::size_t slot_count = slots_of(bytes);
  const auto slots = std::make_unique<std::byte[]>(2 * (slot_count + 1) * bytes + kHalfPage);
  const auto slot = [&](std::uint64_t number) {
    return slots.get() + (number % 2 * slot_count + number / 2 % slot_count) * bytes;
  };
  const auto give = [&](std::uint64_t number) {
    std::byte* const ours = slots.get() + 2 * slot_count * bytes + kHalfPage + number % 2 * bytes;
    std::memcpy(ours, slot(number - 1), bytes);
    keep(std::to_integer<std::uint64_t>(*ours));
    std::memcpy(slot(number), ours, bytes);
    turn.number.store_release(number);
  };
  const Body ask = [&, number = std::uint64_t{0}](std::uint32_t round,
                                                  Clock::time_point deadline) mutable {
    const double trip_ns = median_trip_ns(deadline, [&] {
      give(++number);
      while (turn.number.load_acquire() != number + 1) platform::pause();
      ++number;
    });
    stop.set(round);
    return trip_ns / 2;
  };
  const Body answer = [&, number = std::uint64_t{0}](std::uint32_t round,
                                                     Clock::time_point) mutable {
    while (!stop.is_set(round)) {
      if (turn.number.load_acquire() != number + 1) {
        platform::pause();
        continue;
      }
      number += 2;
      give(number);
    }
    return 0.0;
  };
  auto samples = measure_rounds({{first, ask}, {second, answer}}, effort);
  if (samples) samples->values.resize(1);
  return samples;
}

Result<Samples> measure_messages(CpuId first, CpuId second, std::size_t bytes, bool trips,
                                 const Effort& effort) {
  const message::QueueOptions options{.framing = message::Framing::fixed,
                                      .message_bytes = bytes,
                                      .capacity = Bytes(bytes * slots_of(bytes))};
  HEADRACE_TAKE(there, message::Queue::make(options));
  HEADRACE_TAKE(back, message::Queue::make(options));
  HEADRACE_TAKE(sender, there->producer());
  HEADRACE_TAKE(receiver, there->consumer());
  HEADRACE_TAKE(answerer, back->producer());
  HEADRACE_TAKE(reader, back->consumer());
  // Of the two threads, in no line together.
  const auto memory = std::make_unique<std::byte[]>(2 * bytes + kHalfPage);
  const std::span own(memory.get(), bytes);
  const std::span other(own.data() + bytes + kHalfPage, bytes);
  Stop stop;
  const auto send = [](message::Producer& producer, std::span<const std::byte> message) {
    return producer.try_send(message) == message::Outcome::done;
  };
  const auto receive = [](message::Consumer& consumer, std::span<std::byte> target) {
    std::size_t received = 0;
    return consumer.try_receive(target, received) == message::Outcome::done;
  };
  const auto send_surely = [&](message::Producer& producer, std::span<const std::byte> message) {
    while (!send(producer, message)) platform::pause();
  };
  const Body ask = [&](std::uint32_t round, Clock::time_point deadline) {
    const double trip_ns = median_trip_ns(deadline, [&] {
      send_surely(*sender, own);
      while (!receive(*reader, own)) platform::pause();
    });
    stop.set(round);
    return trip_ns;
  };
  const Body answer = [&](std::uint32_t round, Clock::time_point) {
    while (!stop.is_set(round)) {
      if (!receive(*receiver, other)) {
        platform::pause();
        continue;
      }
      send_surely(*answerer, other);
    }
    return 0.0;
  };
  const Body count_messages = [&](std::uint32_t round, Clock::time_point deadline) {
    // What is left of the previous round is no more than the queue holds. That it is empty would
    // say nothing: the other thread sends already.
    for (std::size_t left = slots_of(bytes); left > 0;) {
      receive(*receiver, other) ? void(--left) : platform::pause();
    }
    const auto begin = Clock::now();
    double count = 0;
    auto now = begin;
    while (now < deadline || count == 0) {
      for (int i = 0; i < 16; ++i) {
        if (receive(*receiver, other)) {
          ++count;
        } else {
          platform::pause();
        }
      }
      now = Clock::now();
    }
    stop.set(round);
    return ns_between(begin, now) / count;
  };
  const Body send_messages = [&](std::uint32_t round, Clock::time_point) {
    while (!stop.is_set(round)) {
      if (!send(*sender, own)) platform::pause();
    }
    return 0.0;
  };
  auto samples = trips ? measure_rounds({{first, ask}, {second, answer}}, effort)
                       : measure_rounds({{second, count_messages}, {first, send_messages}}, effort);
  if (samples) samples->values.resize(1);
  return samples;
}

Result<Samples> measure_worker(const std::array<CpuId, 2>& cpus, NodeId node, std::size_t bytes,
                               bool sleeps, bool calls, const Effort& effort) {
  const std::chrono::microseconds between(sleeps ? 100 : 2);
  engine::EngineOptions options{
      .threads_per_node = 1,
      .nodes = {node},
      .path = engine::Path::cpu,
      .waiting = sleeps ? engine::Waiting::sleep : engine::Waiting::adaptive};
  options.devices.use = false;
  HEADRACE_TAKE(machine, topo::discover({.find_movers = false}));
  for (topo::Node& each : machine->nodes) {
    if (each.id == node) each.cpus = {cpus[1]};
  }
  HEADRACE_TAKE(mover, engine::Engine::make(*machine, options));
  HEADRACE_TAKE(source, take_pages(bytes, node));
  HEADRACE_TAKE(target, take_pages(bytes, node));
  std::optional<engine::Job> job(std::in_place);
  bool runs = false;
  const auto end = [&] {
    while (runs && !job->poll()) platform::pause();
  };
  const Body copy = [&](std::uint32_t, Clock::time_point deadline) {
    return median_trip_ns(
        deadline,
        [&] {
          const auto one =
              engine::Operation::copy(target->get().first(bytes), source->get().first(bytes));
          runs = (*mover)->submit(*job, one) == engine::Submit::accepted;
          if (!calls) end();
        },
        [&] {
          end();
          job.emplace();  // The last one's line is the worker's.
          const auto ended = Clock::now();
          while (Clock::now() < ended + between) platform::pause();
        });
  };
  return measure_rounds({{cpus[0], copy}}, effort);
}

}  // namespace headrace::sim
