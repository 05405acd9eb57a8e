// SPDX-License-Identifier: Apache-2.0
// How fast are operations, by executor and mode of submission?
//
//   headrace-bench-movement ROUNDS ROUND_MS <POINTS
//
// POINTS: one per line, in JSON (point.hpp). Prints a line of JSON for each point and round
// as soon as it is measured, so that an interrupted run has printed its results so far. The
// families of 'headrace bench' are lists of such points.
//
// Method, as in the papers: memory is written before the clock starts (unless page faults are
// measured), threads are pinned, each walks through private memory; they start at a barrier, and
// the time is from the barrier to the end of the slowest. An unreported first round determines how
// many operations take ROUND_MS. Points take turns within a round.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/base/names.hpp"
#include "headrace/engine/engine.hpp"
#include "headrace/platform/cpu.hpp"
#include "headrace/platform/memory.hpp"
#include "headrace/platform/thread.hpp"
#include "headrace/platform/ticks.hpp"
#include "measure.hpp"
#include "perf_counter.hpp"
#include "point.hpp"
#include "pool.hpp"
#include "threads.hpp"

namespace headrace::bench {
namespace {

using engine::Batch;
using engine::Channel;
using engine::Completion;
using engine::Engine;
using engine::Job;
using engine::JobState;
using engine::Operation;
using engine::OperationKind;
using engine::Submit;
using engine::Ticket;

constexpr std::uint64_t kPattern = 0x5a5a'5a5a'5a5a'5a5aU;
constexpr std::size_t kLineBytes = 64;

/// Buffers of one thread's operations.
struct Buffers {
  std::span<std::byte> source;
  std::span<std::byte> target;
  std::span<std::byte> second;  ///< Second target, record, or data with integrity fields.
};

constexpr engine::DifFormat kFormat{};
constexpr std::size_t kBlockBytes = 512;

std::size_t with_fields(std::size_t bytes) {
  return bytes + bytes / kBlockBytes * engine::kDifFieldBytes;
}

bool is_dif(std::string_view operation) {
  return operation.starts_with("dif_");
}

/// The operation at one place of the buffers.
///
/// Throws Unmeasurable if the operation does not support the length.
Operation operation_at(const Point& point, const Buffers& buffers, std::size_t index) {
  const std::size_t bytes = point.bytes;
  const std::string& name = point.operation;
  // Each operation starts on a separate line.
  const std::size_t step = std::max(kLineBytes, (bytes + kLineBytes - 1) / kLineBytes * kLineBytes);
  const auto place_in = [&](std::span<std::byte> whole) {
    return index % std::max<std::size_t>(1, whole.size() / step) * step;
  };
  const std::size_t at = place_in(buffers.target);
  const auto source = buffers.source.subspan(place_in(buffers.source), bytes);
  const auto target = buffers.target.subspan(at, bytes);
  if (name == "copy") return Operation::copy(target, source);
  if (name == "fill") return Operation::fill(target, kPattern);
  if (name == "compare") return Operation::compare(source, target);
  if (name == "compare_pattern") return Operation::compare_pattern(source, kPattern);
  if (name == "crc") return Operation::crc(source);
  if (name == "copy_crc") return Operation::copy_crc(target, source);
  if (name == "cache_flush") return Operation::cache_flush(target);
  if (name == "no_op") return Operation::no_op();
  if (name == "dualcast")
    return Operation::dualcast(target, buffers.second.subspan(at, bytes), source);
  if (name == "create_delta") {
    return Operation::create_delta(buffers.second.first(engine::kDeltaRoomMin), source, target);
  }
  if (name == "apply_delta") {
    // One word in ten differs.
    return Operation::apply_delta(
        target,
        buffers.second.first(std::max<std::size_t>(1, bytes / 80) * engine::kDeltaEntryBytes));
  }
  if (is_dif(name)) {
    const auto fields = buffers.second.first(with_fields(bytes));
    const auto to = buffers.target.subspan(0, with_fields(bytes));
    if (name == "dif_insert") return Operation::dif_insert(to, source, kFormat, {});
    if (name == "dif_check") return Operation::dif_check(fields, kFormat, {});
    if (name == "dif_strip") return Operation::dif_strip(target, fields, kFormat, {});
    if (name == "dif_update") return Operation::dif_update(to, fields, kFormat, {}, {});
  }
  throw Unmeasurable{fmt::format("'{}' is not an operation", name)};
}

/// Prepares the operation's second input.
void prepare_second(Engine& engine, const Point& point, const Buffers& buffers) {
  if (point.operation == "apply_delta") {
    for (std::size_t entry = 0; entry < std::max<std::size_t>(1, point.bytes / 80); ++entry) {
      const auto offset = static_cast<std::uint16_t>(entry * 10);
      std::byte* const place = buffers.second.data() + entry * engine::kDeltaEntryBytes;
      std::memcpy(place, &offset, sizeof(offset));
      std::memcpy(place + sizeof(offset), &kPattern, sizeof(kPattern));
    }
  } else if (is_dif(point.operation)) {
    // From the first bytes of the source, by the software path.
    Completion completion;
    const Operation insert = Operation::dif_insert(buffers.second.first(with_fields(point.bytes)),
                                                   buffers.source.first(point.bytes), kFormat, {});
    if (engine.run(insert, completion, {.path = engine::Path::cpu}) != Submit::accepted ||
        completion.state != JobState::done) {
      throw Unmeasurable{"the length is not a multiple of 512 bytes"};
    }
  }
}

/// Measurements of one thread; times in ns.
struct Sample {
  std::uint64_t operations = 0;
  std::uint64_t on_cpu = 0;  ///< Submissions that fell back to a processor.
  std::uint64_t page_faults = 0;
  double prepare = 0;
  double submit = 0;
  double wait = 0;
  double processor = 0;  ///< Time on a processor.
  std::optional<double> cycles = 0.0;
  std::chrono::steady_clock::time_point begin;
  std::chrono::steady_clock::time_point end;
  std::string error;
};

void take_end(const Completion& end, Sample& sample) {
  if (end.state != JobState::done && sample.error.empty()) {
    sample.error = fmt::format("an operation ended as {}: {}", name(end.state), explain(end.cause));
  }
  sample.page_faults += end.page_faults;
  if (end.fell_back) ++sample.on_cpu;
}

/// A submission in flight: its operations, their completions, and its handle.
struct InFlight {
  std::vector<Operation> operations;
  std::vector<Completion> ends;
  Ticket ticket{};
  Job job;
};

/// Modes of submission with a common interface.
class ByChannel {
 public:
  ByChannel(Engine& engine, const Point& point, std::size_t thread)
      : channel_(value_of(engine.open_channel(
            {.queue = point.queues.empty() ? "" : point.queues[thread % point.queues.size()],
             .depth = point.depth}))) {}
  Submit submit(InFlight& one) {
    if (one.operations.size() > 1)
      return channel_->submit_batch({one.operations, one.ends}, one.ticket);
    return channel_->submit(one.operations.front(), one.ticket);
  }
  void wait(InFlight& one, Sample& sample) { take_end(channel_->wait(one.ticket), sample); }

 private:
  std::unique_ptr<Channel> channel_;
};

class ByJob {
 public:
  ByJob(Engine& engine, const Point& point, std::size_t /*thread*/) : engine_(engine) {
    options_.path = point.path == "software" ? engine::Path::cpu : engine::Path::dsa;
    options_.source_node = point.source;
    options_.target_node = point.target;
    if (point.policy.empty()) return;
    for (const engine::movers::Named& each : engine::movers::named()) {
      if (each.name == point.policy) policy_ = each.choose;
    }
    if (!policy_) throw Unmeasurable{fmt::format("'{}' is not a policy", point.policy)};
    options_.policy = &policy_;
  }
  Submit submit(InFlight& one) {
    if (one.operations.size() > 1) {
      return engine_.submit_batch(one.job, {one.operations, one.ends}, options_);
    }
    return engine_.submit(one.job, one.operations.front(), options_);
  }
  void wait(InFlight& one, Sample& sample) { take_end(one.job.wait(), sample); }

 private:
  Engine& engine_;
  engine::SubmitOptions options_;
  engine::MoverPolicy policy_;
};

class ByProcessor {
 public:
  ByProcessor(Engine& engine, const Point& /*point*/, std::size_t /*thread*/) : engine_(engine) {}
  Submit submit(InFlight& one) {
    for (std::size_t i = 0; i < one.operations.size(); ++i) {
      const Submit answer =
          engine_.run(one.operations[i], one.ends[i], {.path = engine::Path::cpu});
      if (answer != Submit::accepted) return answer;
    }
    return Submit::accepted;
  }
  static void wait(InFlight& one, Sample& sample) {
    for (const Completion& end : one.ends) {
      if (end.state != JobState::done) take_end(end, sample);
    }
  }

 private:
  Engine& engine_;
};

double ns_of(std::uint64_t ticks) {
  return static_cast<double>(ticks) / platform::ticks_per_second() * 1e9;
}

/// Prepares, waits for the start, submits `count` operations and waits for them.
template <typename By>
void drive(By& by, const Point& point, const Buffers& buffers, std::size_t count, Sample& sample,
           const std::function<void()>& wait_for_start) {
  const std::size_t batch = point.batch;
  std::vector<InFlight> ring(point.depth);
  for (InFlight& one : ring) {
    one.operations.resize(batch);
    one.ends.resize(batch);
  }
  std::uint64_t prepare = 0;
  std::uint64_t submit = 0;
  std::uint64_t wait = 0;
  const PerfCounter cycles(PERF_COUNT_HW_CPU_CYCLES, PerfCounter::Where::everywhere_if_permitted);
  wait_for_start();
  const std::optional<std::uint64_t> cycles_before = cycles.read();
  const std::chrono::nanoseconds time_before = platform::thread_cpu_time();
  sample.begin = std::chrono::steady_clock::now();
  if (point.faults == "touch") {
    for (std::size_t at = 0; at < buffers.target.size(); at += platform::page_bytes()) {
      buffers.target[at] = std::byte{1};
    }
  }
  std::size_t begun = 0;
  std::size_t ended = 0;
  const std::size_t submissions = (count + batch - 1) / batch;
  const auto end_one = [&] {
    const std::uint64_t before = point.split ? platform::ticks() : 0;
    by.wait(ring[ended % ring.size()], sample);
    if (point.split) wait += platform::ticks() - before;
    ++ended;
  };
  while (begun < submissions) {
    if (begun - ended == ring.size()) end_one();
    InFlight& one = ring[begun % ring.size()];
    const std::uint64_t t0 = point.split ? platform::ticks() : 0;
    for (std::size_t i = 0; i < batch; ++i) {
      Operation made = operation_at(point, buffers, begun * batch + i);
      if (point.cache) made = made.into_cache();
      one.operations[i] = made;
    }
    const std::uint64_t t1 = point.split ? platform::ticks() : 0;
    Submit answer = by.submit(one);
    while (answer == Submit::full) {
      if (ended < begun) {
        end_one();
      } else {
        platform::pause();
      }
      answer = by.submit(one);
    }
    if (point.split) {
      prepare += t1 - t0;
      submit += platform::ticks() - t1;
    }
    if (answer != Submit::accepted) {
      sample.error = explain(answer);
      break;
    }
    ++begun;
  }
  while (ended < begun) end_one();
  sample.end = std::chrono::steady_clock::now();
  sample.processor = static_cast<double>((platform::thread_cpu_time() - time_before).count());
  const std::optional<std::uint64_t> cycles_after = cycles.read();
  sample.cycles = std::nullopt;
  if (cycles_before && cycles_after) {
    sample.cycles = static_cast<double>(*cycles_after - *cycles_before);
  }
  sample.operations = begun * batch;
  sample.prepare = ns_of(prepare);
  sample.submit = ns_of(submit);
  sample.wait = ns_of(wait);
}

/// Reads memory, a word of each line, until the flag is set; returns bytes per second.
double read_again_and_again(std::span<const std::byte> memory, const Atomic<bool>& end) {
  constexpr std::size_t kLookBytes = std::size_t{64} << 10U;
  const auto begun = std::chrono::steady_clock::now();
  std::uint64_t lines = 0;
  unsigned sum = 0;
  while (!end.load_relaxed()) {  // Relaxed: carries no data.
    for (std::size_t at = 0; at < memory.size(); at += kLineBytes) {
      sum += std::to_integer<unsigned>(memory[at]);
      ++lines;
      if (at % kLookBytes == 0 && end.load_relaxed()) break;  // Relaxed, as above.
    }
    asm volatile("" : : "r"(sum));
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  return static_cast<double>(lines * kLineBytes) / took.count();
}

/// State kept across points.
class Bench {
 public:
  Bench() : machine_(value_of(topo::discover())) {}

  /// Measures once. `count`: operations; if 0, set to the number that takes `wanted`.
  Json measure(const Point& point, std::size_t& count, std::chrono::nanoseconds wanted) {
    if (point.bytes == 0 || point.batch == 0 || point.depth == 0 || point.threads == 0) {
      throw Unmeasurable{"a number is 0"};
    }
    Engine& engine = engine_for(point);
    const bool misses = point.faults != "none";
    if (count == 0) {
      count = point.count;
      const std::size_t least = point.batch * point.depth * point.threads;
      if (misses) count = std::max<std::size_t>(1, kFaultBytes / point.bytes) * point.threads;
      for (std::size_t tried = least; count == 0;) {
        // The better of two: other load only adds time.
        const std::chrono::nanoseconds took = std::min(once(engine, point, tried, nullptr).took,
                                                       once(engine, point, tried, nullptr).took);
        if (took >= wanted / 4 || tried > (std::size_t{1} << 24U)) {
          const double share = static_cast<double>(wanted.count()) /
                               static_cast<double>(std::max<std::int64_t>(1, took.count()));
          count = std::max(least, static_cast<std::size_t>(static_cast<double>(tried) * share));
        }
        tried *= 4;
      }
    }
    Json found;
    const Run run = once(engine, point, count, &found);
    const auto operations = static_cast<double>(std::max<std::uint64_t>(1, run.sum.operations));
    found.update({{"time_ns", run.took.count()},
                  {"operations", run.sum.operations},
                  {"bytes", run.sum.operations * point.bytes},
                  {"by_processor", run.sum.on_cpu},
                  {"page_faults", run.sum.page_faults},
                  {"processor_ns", run.sum.processor / operations}});
    if (point.threads > 1) found["each_ns"] = run.each_ns;
    if (run.sum.cycles) found["cycles"] = *run.sum.cycles / operations;
    if (point.split) {
      found.update({{"prepare_ns", run.sum.prepare / operations},
                    {"submit_ns", run.sum.submit / operations},
                    {"wait_ns", run.sum.wait / operations}});
    }
    return found;
  }

 private:
  static constexpr std::size_t kFaultBytes = std::size_t{1} << 20U;
  struct Run {
    std::chrono::nanoseconds took{};
    Sample sum;
    std::vector<std::int64_t> each_ns;  ///< By thread.
  };

  Engine& engine_for(const Point& point) {
    const std::string key = point.faults + ' ' + point.waiting;
    std::unique_ptr<Engine>& made = engines_[key];
    if (made) return *made;
    engine::EngineOptions options;
    options.devices.page_faults =
        find_name<engine::FaultPolicy>(point.faults).value_or(options.devices.page_faults);
    options.waiting = find_name<engine::Waiting>(point.waiting).value_or(options.waiting);
    made = value_of(Engine::make(machine_, options));
    return *made;
  }

  Pool& pool(const char* role, std::optional<NodeId> node, bool huge = false, bool locked = true) {
    const std::string key =
        fmt::format("{} {} {}", role, node ? static_cast<int>(node->value()) : -1, huge);
    std::unique_ptr<Pool>& found = pools_[key];
    if (!found) found = std::make_unique<Pool>(node, huge, locked);
    return *found;
  }

  /// Processor of each thread: on the node of its queue, else of the source.
  std::vector<int> processors_for(Engine& engine, const Point& point) const {
    std::vector<int> chosen;
    const std::vector<int> allowed = allowed_processors();
    std::map<std::uint32_t, std::size_t> used;
    for (std::size_t i = 0; i < point.threads; ++i) {
      std::optional<NodeId> node = point.source;
      if (!point.queues.empty()) {
        for (const engine::MoverInfo& each : engine.movers()) {
          if (each.name == point.queues[i % point.queues.size()] && each.node) node = each.node;
        }
      }
      const topo::Node* const found = node ? machine_.node(*node) : nullptr;
      if (found == nullptr || found->cpus.empty()) {
        chosen.push_back(allowed[i % allowed.size()]);
      } else {
        const std::size_t turn = used[node->value()]++;
        chosen.push_back(static_cast<int>(found->cpus[turn % found->cpus.size()].value()));
      }
    }
    return chosen;
  }

  /// `found`: null, or takes what is measured beside the operations.
  Run once(Engine& engine, const Point& point, std::size_t count, Json* found) {
    const bool misses = point.faults != "none";
    const std::size_t room = is_dif(point.operation) ? with_fields(point.bytes) : point.bytes;
    const std::size_t wanted = misses ? kFaultBytes : point.span / point.threads;
    const std::size_t step = (std::max(room, wanted) + kAlignment - 1) / kAlignment * kAlignment;
    // Separate targets: results of some operations would change the input of others.
    const char* const role = misses ? "fresh" : is_dif(point.operation) ? "fields" : "target";
    std::string not_locked;
    const auto take = [&](Pool& from, std::size_t byte_count) {
      const std::span<std::byte> taken = from.get(byte_count);
      if (not_locked.empty()) not_locked = from.not_locked();
      return taken;
    };
    Pool& targets = pool(role, point.target, point.huge, !misses);
    const std::span<std::byte> source =
        take(pool("source", point.source, point.huge), step * point.threads);
    const std::span<std::byte> target = take(targets, step * point.threads);
    std::span<std::byte> second;
    if (point.operation != "copy" && point.operation != "fill") {
      second = take(pool("second", point.target, point.huge), step * point.threads);
    }
    const auto buffers_of = [&](std::size_t thread) {
      const auto part = [&](std::span<std::byte> whole) {
        return whole.empty() ? whole : whole.subspan(thread * step, step);
      };
      return Buffers{part(source), part(target), part(second)};
    };
    for (std::size_t i = 0; i < point.threads; ++i) prepare_second(engine, point, buffers_of(i));
    static_cast<void>(operation_at(point, buffers_of(0), 0));
    if (misses) targets.drop();

    Atomic<bool> end{false};
    double beside_rate = 0;
    std::thread beside;
    std::vector<int> processors = processors_for(engine, point);
    if (point.beside) {
      const std::span<std::byte> set = take(pool("beside", point.source), *point.beside);
      beside = std::thread([&, set] {
        pin(allowed_processors().back());
        beside_rate = read_again_and_again(set, end);
      });
    }
    std::vector<Sample> samples(point.threads);
    const std::size_t each = std::max<std::size_t>(1, count / point.threads);
    run_together(
        point.threads,
        [&](std::size_t thread, const std::function<void()>& wait_for_start) {
          bool started = false;
          const auto start = [&] {
            started = true;
            wait_for_start();
          };
          const auto go = [&](auto by) {
            drive(by, point, buffers_of(thread), each, samples[thread], start);
          };
          try {
            if (point.by == "channel")
              go(ByChannel(engine, point, thread));
            else if (point.by == "engine")
              go(ByJob(engine, point, thread));
            else if (point.by == "cpu")
              go(ByProcessor(engine, point, thread));
            else if (point.by == "none")
              start(), ::usleep(kAloneUs);
            else
              throw Unmeasurable{fmt::format("'{}' does no operation", point.by)};
          } catch (const Unmeasurable& reason) {
            samples[thread].error = reason.why;
            if (!started) wait_for_start();
          }
        },
        processors);
    end.store_relaxed(true);  // Relaxed: carries no data.
    if (beside.joinable()) beside.join();
    Run run;
    auto begin = std::chrono::steady_clock::time_point::max();
    auto last = std::chrono::steady_clock::time_point::min();
    for (const Sample& one : samples) {
      if (!one.error.empty()) throw Unmeasurable{one.error};
      begin = std::min(begin, one.begin);
      last = std::max(last, one.end);
      run.each_ns.push_back(std::chrono::nanoseconds(one.end - one.begin).count());
      run.sum.operations += one.operations;
      run.sum.on_cpu += one.on_cpu;
      run.sum.page_faults += one.page_faults;
      run.sum.prepare += one.prepare;
      run.sum.submit += one.submit;
      run.sum.wait += one.wait;
      run.sum.processor += one.processor;
      if (!one.cycles) run.sum.cycles = std::nullopt;
      if (run.sum.cycles) *run.sum.cycles += *one.cycles;
    }
    run.took = last - begin;
    if (found == nullptr) return run;
    (*found)["not_pinned"] = not_locked;
    if (point.beside) (*found)["beside_gb_per_s"] = beside_rate / 1e9;
    if (const auto occupied = occupied_bytes()) (*found)["cache_bytes"] = *occupied;
    if (point.read) {
      const std::size_t index = (each + point.batch - 1) / point.batch * point.batch - 1;
      (*found)["read_ns_per_line"] = read_after(operation_at(point, buffers_of(0), index).target());
    }
    return run;
  }

  /// Time to read a line of the last target: shorter if it is in the cache.
  static double read_after(std::span<const std::byte> read) {
    unsigned sum = 0;
    const std::uint64_t before = platform::ticks();
    for (std::size_t at = 0; at < read.size(); at += kLineBytes) {
      sum += std::to_integer<unsigned>(read[at]);
    }
    asm volatile("" : : "r"(sum));
    const double ns = ns_of(platform::ticks() - before);
    return ns / static_cast<double>((read.size() + kLineBytes - 1) / kLineBytes);
  }

  /// Occupancy of the last-level caches by resctrl, if monitored.
  static std::optional<std::uint64_t> occupied_bytes() {
    std::optional<std::uint64_t> sum;
    std::error_code none;
    for (const auto& each : std::filesystem::directory_iterator("/sys/fs/resctrl/mon_data", none)) {
      std::ifstream file(each.path() / "llc_occupancy");
      if (std::uint64_t bytes = 0; file >> bytes) sum = sum.value_or(0) + bytes;
    }
    return sum;
  }

  static constexpr std::size_t kAlignment = std::size_t{2} << 20U;
  static constexpr unsigned kAloneUs = 2000;

  topo::Machine machine_;
  std::map<std::string, std::unique_ptr<Pool>> pools_;
  std::map<std::string, std::unique_ptr<Engine>> engines_;
};

int run(int round_count, std::chrono::milliseconds wanted) {
  std::vector<std::string> lines;
  for (std::string line; std::getline(std::cin, line);) lines.push_back(line);
  struct State {
    std::size_t count = 0;
    bool failed = false;
  };
  std::vector<State> states(lines.size());
  try {
    Bench bench;
    for (int round = 0; round < round_count; ++round) {
      for (std::size_t i = 0; i < lines.size(); ++i) {
        const std::size_t index = (i + static_cast<std::size_t>(round)) % lines.size();
        State& state = states[index];
        if (state.failed) continue;
        Json record{{"point", index}, {"round", round}};
        try {
          record.update(bench.measure(parse(lines[index]), state.count, wanted));
        } catch (const Unmeasurable& reason) {
          state.failed = true;
          record["error"] = reason.why;
        }
        print(record);
      }
    }
  } catch (const Unmeasurable& reason) {
    fmt::print(stderr, "headrace: {}\n", reason.why);
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace headrace::bench

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: headrace-bench-movement ROUNDS ROUND_MS <POINTS\n");
    return 2;
  }
  return headrace::bench::run(std::atoi(argv[1]), std::chrono::milliseconds(std::atoi(argv[2])));
}
