// SPDX-License-Identifier: Apache-2.0
// Is the path `auto` as fast as the better of dsa and cpu?
//
// Copies of 64 B to 16 MiB by each of the three paths: one at a time (run), many in flight
// (submit), and in batches (batch). The paths take turns in a round, in rotating order. Memory is
// uncached, as for the published figures: source and target walk through 64 MiB each.
//
// The device is a model that moves no bytes. Its times are given on the command line: a descriptor
// occupies the device as long as one in a batch of 32, and completes with the latency of a single
// one; each ENQCMD occupies the processor. Time is real time. Due records are written by the
// polling thread when the engine polls, so the device costs only two clock reads. Software runs on
// this machine: one worker, and for run() the calling thread.
//
// Prints one JSON object.
//
//   headrace-bench-engine-paths ROUNDS ROUND_US MODEL [SYNCHRONOUS ASYNCHRONOUS BATCHED]
//
// ROUND_US: per path and size. MODEL: BYTES:ALONE_NS:BATCHED_NS of at least two sizes, ascending,
// separated by ','; 'headrace bench engine' passes the simulator's values for the machine spr-1dsa.
// The last three are thresholds of `auto` in bytes; default: the published ones.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/cpu/mover.hpp"
#include "engine/dsa/queue.hpp"
#include "headrace/base/atomic.hpp"
#include "headrace/engine/engine.hpp"
#include "headrace/platform/cpu.hpp"
#include "headrace/platform/ticks.hpp"
#include "measure.hpp"

namespace {

using headrace::bench::die;
using headrace::engine::Batch;
using headrace::engine::Completion;
using headrace::engine::DsaQueue;
using headrace::engine::Engine;
using headrace::engine::EngineSettings;
using headrace::engine::Job;
using headrace::engine::Mover;
using headrace::engine::MoverInfo;
using headrace::engine::Operation;
using headrace::engine::Path;
using headrace::engine::PathThresholds;
using headrace::engine::Request;
using headrace::engine::Submit;
namespace dsa = headrace::dsa;
namespace platform = headrace::platform;

constexpr std::size_t kPoolBytes = std::size_t{64} << 20U;
constexpr std::size_t kInFlight = 32;
constexpr std::array kPaths{Path::dsa, Path::cpu, Path::automatic};
constexpr double kDoorbellNs = 160;

/// Times of a 4th generation Xeon's device with a shared queue: of a single descriptor from
/// submission to observed completion, and per descriptor in batches of 32.
struct ModelPoint {
  double byte_count;
  double alone_ns;
  double batched_ns;
};
std::vector<ModelPoint> model_points;

/// Interpolates linearly between the points of the model, and extrapolates beyond the last.
ModelPoint model(double byte_count) {
  std::size_t i = 1;
  while (i + 1 < model_points.size() && model_points[i].byte_count < byte_count) ++i;
  const ModelPoint& from = model_points[i - 1];
  const ModelPoint& to = model_points[i];
  const double part =
      std::max(0.0, (byte_count - from.byte_count) / (to.byte_count - from.byte_count));
  return {byte_count, from.alone_ns + part * (to.alone_ns - from.alone_ns),
          from.batched_ns + part * (to.batched_ns - from.batched_ns)};
}

/// Threading: owned.
class PacedDevice final : public dsa::Portal {
 public:
  [[nodiscard]] const dsa::QueueInfo& info() const override { return info_; }

  [[nodiscard]] bool submit(const dsa::Descriptor& descriptor) noexcept override {
    const std::uint64_t begun = platform::ticks();
    while (platform::ticks() - begun < ticks(kDoorbellNs)) {
    }
    if (due_.size() == info_.entry_count) return false;
    if (descriptor.opcode == static_cast<std::uint8_t>(dsa::Opcode::batch)) {
      const auto* const list = reinterpret_cast<const dsa::Descriptor*>(descriptor.desc_list_addr);
      std::uint64_t end = 0;
      for (std::uint32_t i = 0; i < descriptor.desc_count; ++i) end = carry(list[i].xfer_size);
      due_.push_back({end, descriptor});
    } else {
      due_.push_back({carry(descriptor.xfer_size), descriptor});
    }
    return true;
  }

  /// Writes the records that are due.
  void look() noexcept {
    if (due_.empty() || platform::ticks() < due_.front().at) return;
    const dsa::Descriptor& descriptor = due_.front().descriptor;
    if (descriptor.opcode == static_cast<std::uint8_t>(dsa::Opcode::batch)) {
      const auto* const list = reinterpret_cast<const dsa::Descriptor*>(descriptor.desc_list_addr);
      for (std::uint32_t i = 0; i < descriptor.desc_count; ++i) write(list[i].completion_addr);
    }
    write(descriptor.completion_addr);
    due_.pop_front();
  }

 private:
  struct Due {
    std::uint64_t at;
    dsa::Descriptor descriptor;
  };
  static std::uint64_t ticks(double ns) {
    static const double per_ns = platform::ticks_per_second() / 1e9;
    return static_cast<std::uint64_t>(ns * per_ns);
  }
  /// Returns when the completion of `byte_count` more bytes is observed.
  std::uint64_t carry(std::uint64_t byte_count) noexcept {
    const ModelPoint takes = model(static_cast<double>(byte_count));
    free_at_ = std::max(free_at_, platform::ticks()) + ticks(takes.batched_ns);
    return free_at_ + ticks(takes.alone_ns - takes.batched_ns - kDoorbellNs);
  }
  static void write(std::uint64_t record) noexcept {
    auto* const status = reinterpret_cast<std::uint8_t*>(record);
    headrace::store_relaxed(*status, std::uint8_t{DSA_COMP_SUCCESS});  // Relaxed: single-threaded.
  }

  dsa::QueueInfo info_{.name = "paced",
                       .entry_count = 128,
                       .batch_max = 256,
                       .transfer_bytes_max = std::uint64_t{2} << 30U,
                       .block_on_fault = true};
  std::deque<Due> due_;
  std::uint64_t free_at_ = 0;
};

/// The mover of a queue whose device is driven by the polling thread.
///
/// Threading: owned.
class PacedMover final : public Mover {
 public:
  PacedMover() {
    auto made = DsaQueue::make(device_, {});
    if (!made) die(made.error().message());
    mover_ = std::move(*made);
  }
  [[nodiscard]] const MoverInfo& info() const override { return mover_->info(); }
  [[nodiscard]] Submit post(Request& request) noexcept override { return mover_->post(request); }
  void reap() noexcept override {
    device_.look();
    mover_->reap();
  }
  void reap(const Request& request) noexcept override {
    device_.look();
    mover_->reap(request);
  }
  [[nodiscard]] std::size_t load() const noexcept override { return mover_->load(); }
  void stop() noexcept override { mover_->stop(); }

 private:
  PacedDevice device_;
  std::unique_ptr<DsaQueue> mover_;
};

/// Copies of one length through all of the pools.
///
/// Threading: owned.
class Walk {
 public:
  explicit Walk(std::size_t byte_count) : byte_count_(byte_count) {}
  [[nodiscard]] Operation next() {
    static std::vector<std::byte> source(kPoolBytes, std::byte{1});
    static std::vector<std::byte> target(kPoolBytes, std::byte{2});
    const std::size_t at = at_;
    at_ = at_ + 2 * byte_count_ > kPoolBytes ? 0 : at_ + byte_count_;
    return Operation::copy(std::span(target).subspan(at, byte_count_),
                           std::span(source).subspan(at, byte_count_));
  }

 private:
  std::size_t byte_count_;
  std::size_t at_ = 0;
};

void run_one_by_one(Engine& engine, Walk& walk, Path path, std::size_t count) {
  const headrace::engine::SubmitOptions options{.path = path};
  for (std::size_t i = 0; i < count; ++i) {
    Completion end;
    if (engine.run(walk.next(), end, options) != Submit::accepted) die("run refused");
  }
}

void submit_many(Engine& engine, Walk& walk, Path path, std::size_t count) {
  const headrace::engine::SubmitOptions options{.path = path};
  std::array<Job, kInFlight> jobs;
  for (std::size_t i = 0; i < count; ++i) {
    Job& job = jobs[i % kInFlight];
    if (i >= kInFlight) job.wait();
    if (engine.submit(job, walk.next(), options) != Submit::accepted) die("submit refused");
  }
  for (std::size_t i = 0; i < std::min(count, kInFlight); ++i) jobs[i].wait();
}

/// Two batches at a time, of as many operations as fit half the pool, at most kInFlight.
void submit_batches(Engine& engine, Walk& walk, Path path, std::size_t count) {
  const headrace::engine::SubmitOptions options{.path = path};
  std::array<std::vector<Operation>, 2> operations;
  std::array<Job, 2> jobs;
  std::size_t turn = 0;
  for (std::size_t i = 0; i < count; i += kInFlight, ++turn) {
    Job& job = jobs[turn % 2];
    if (turn >= 2) job.wait();
    std::vector<Operation>& list = operations[turn % 2];
    list.clear();
    for (std::size_t k = 0; k < std::min(kInFlight, count - i); ++k) list.push_back(walk.next());
    if (engine.submit_batch(job, {.operations = list, .completions = {}}, options) !=
        Submit::accepted) {
      die("submit_batch refused");
    }
  }
  for (std::size_t i = 0; i < std::min<std::size_t>(turn, 2); ++i) jobs[i].wait();
}

using Way = void (*)(Engine&, Walk&, Path, std::size_t);

struct Round {
  Engine& engine;
  Way way;
  std::size_t byte_count;
  std::size_t least_count;
};

double ns_per_operation(const Round& round, Walk& walk, Path path, std::size_t count) {
  const std::uint64_t begun = platform::ticks();
  round.way(round.engine, walk, path, count);
  return static_cast<double>(platform::ticks() - begun) / platform::ticks_per_second() * 1e9 /
         static_cast<double>(count);
}

std::string measure(const Round& round, std::size_t round_count, double round_ns) {
  std::array<std::vector<double>, kPaths.size()> times;
  std::array<std::size_t, kPaths.size()> counts{};
  Walk walk(round.byte_count);
  for (std::size_t i = 0; i < kPaths.size(); ++i) {
    const double once = ns_per_operation(round, walk, kPaths[i], round.least_count);
    counts[i] = static_cast<std::size_t>(round_ns / once);
    counts[i] = std::max<std::size_t>(1, counts[i] / round.least_count) * round.least_count;
  }
  for (std::size_t turn = 0; turn < round_count; ++turn) {
    for (std::size_t k = 0; k < kPaths.size(); ++k) {
      const std::size_t i = (k + turn) % kPaths.size();
      times[i].push_back(ns_per_operation(round, walk, kPaths[i], counts[i]));
    }
  }
  std::string text = fmt::format(R"({{"bytes": {}, "times_ns": {{)", round.byte_count);
  for (std::size_t i = 0; i < kPaths.size(); ++i) {
    text += fmt::format(R"({}"{}": [{:.2f}])", i == 0 ? "" : ", ", name(kPaths[i]),
                        fmt::join(times[i], ", "));
  }
  return text + "}}";
}

int measure_all(std::size_t round_count, double round_us, const PathThresholds& thresholds) {
  std::vector<std::unique_ptr<Mover>> movers;
  const auto machine = headrace::topo::discover({.find_movers = false});
  if (!machine) die(machine.error().message());
  const headrace::topo::Node& node = machine->nodes.front();
  auto processor =
      headrace::engine::make_cpu_mover({.node = node.id, .cpus = node.cpus, .thread_count = 1});
  if (!processor) die(processor.error().message());
  movers.push_back(std::move(*processor));
  movers.push_back(std::make_unique<PacedMover>());
  EngineSettings settings;
  settings.thresholds = thresholds;
  auto engine = Engine::make(std::move(movers), {}, settings);
  if (!engine) die(engine.error().message());
  struct Named {
    const char* name;
    Way way;
    std::size_t least_count;
  };
  constexpr std::array<Named, 3> kWays{{{"run", &run_one_by_one, 1},
                                        {"submit", &submit_many, kInFlight},
                                        {"batch", &submit_batches, kInFlight}}};
  fmt::print(R"({{"thresholds": {{"run": {}, "submit": {}, "batch": {}}}, "ways": {{)",
             thresholds.synchronous.count(), thresholds.asynchronous.count(),
             thresholds.batched.count());
  for (const Named& way : kWays) {
    fmt::print("{}\"{}\": [", &way == kWays.data() ? "" : ", ", way.name);
    for (std::size_t size = 64; size <= std::size_t{16} << 20U; size *= 2) {
      const std::size_t least =
          std::min(way.least_count, std::max<std::size_t>(4, kPoolBytes / size));
      fmt::print("{}{}", size == 64 ? "" : ", ",
                 measure({**engine, way.way, size, least}, round_count, round_us * 1e3));
    }
    fmt::print("]");
  }
  fmt::print("}}}}\n");
  return 0;
}

std::vector<ModelPoint> parse_model(const char* text) {
  std::vector<ModelPoint> points;
  while (*text != 0) {
    char* end = nullptr;
    ModelPoint point{};
    for (double* const part : {&point.byte_count, &point.alone_ns, &point.batched_ns}) {
      *part = std::strtod(text, &end);
      if (end == text || *part <= 0) die("MODEL is not BYTES:ALONE_NS:BATCHED_NS,...");
      text = *end == ':' || *end == ',' ? end + 1 : end;
    }
    if (!points.empty() && points.back().byte_count >= point.byte_count) {
      die("the sizes of MODEL do not ascend");
    }
    points.push_back(point);
  }
  if (points.size() < 2) die("MODEL has less than two sizes");
  return points;
}

std::size_t number(const char* text) {
  return std::strtoull(text, nullptr, 10);
}

}  // namespace

int main(int argument_count, char** arguments) {
  if (argument_count != 4 && argument_count != 7) {
    die("usage: headrace-bench-engine-paths ROUNDS ROUND_US MODEL [SYNCHRONOUS ASYNCHRONOUS "
        "BATCHED]");
  }
  model_points = parse_model(arguments[3]);
  PathThresholds thresholds;
  if (argument_count == 7) {
    thresholds = {.synchronous = headrace::Bytes(number(arguments[4])),
                  .asynchronous = headrace::Bytes(number(arguments[5])),
                  .batched = headrace::Bytes(number(arguments[6]))};
  }
  return measure_all(number(arguments[1]), static_cast<double>(number(arguments[2])), thresholds);
}
