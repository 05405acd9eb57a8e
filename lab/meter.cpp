// SPDX-License-Identifier: Apache-2.0
// Pools, places and batches.
#include "headrace/lab/meter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "headrace/base/random.hpp"
#include "headrace/base/units.hpp"
#include "headrace/lab/kernel_moves.hpp"
#include "headrace/platform/memory.hpp"
#include "headrace/platform/thread.hpp"
#include "headrace/platform/ticks.hpp"

namespace headrace::copy::lab {
namespace {

constexpr const char* kTried = "measure copies";
constexpr std::size_t kPageBytes = 4096;
/// Bytes of a batch, or of one copy if that is longer: long enough for the clock.
constexpr std::size_t kBatchBytesHot = std::size_t{1} << 20U;
constexpr std::size_t kBatchBytesElsewhere = std::size_t{256} << 10U;
constexpr std::size_t kBatchCopiesMax = 8192;
/// Minimum copies in a batch of long hot copies, up to kBatchBytesHotMax: the time of a single one
/// depends more on other programs' use of the last-level cache than on the subject.
constexpr std::size_t kBatchCopiesHotMin = 4;
constexpr std::size_t kBatchBytesHotMax = std::size_t{32} << 20U;
/// Short hot copies alternate between several pairs of places, which together fit the first-level
/// cache: their time depends on the relative page offset of source and target, and a single pair
/// would measure one case only.
constexpr std::size_t kHotPairsMax = 8;
constexpr std::size_t kHotBytes = std::size_t{16} << 10U;
/// Copies that warm hot places at the start of a round, in addition to one by the subject.
constexpr int kHotWarmings = 2;
/// Longer copies are compared in part, to limit the time spent comparing.
constexpr std::size_t kComparedBytesMax = std::size_t{64} << 10U;
/// Loads that tell memory from a cache; a few are distorted by interrupts or unexpected hits.
constexpr std::size_t kProbeSamples = 1024;

/// Content with Options::alike.
constexpr std::uint64_t kAlike = 0x0101010101010101U * kFillValue;

/// Allocates prefaulted whole pages.
Result<platform::OwnedPages> make_pool(std::size_t byte_count) {
  HEADRACE_TAKE_WITHIN(kTried, pages, platform::allocate_pages(byte_count, std::nullopt));
  platform::OwnedPages pool(*pages);
  HEADRACE_TRY_WITHIN(kTried, platform::prefault_pages(*pages));
  return pool;
}

/// Visits every number below a power of two once per period, in an order that no prefetcher
/// predicts: a linear congruential generator of full period. Continues where the previous walk
/// stopped, so that a round finds nothing in the caches from an earlier one.
class Walk {
 public:
  Walk(std::size_t count, std::uint64_t& at)
      : mask_(std::bit_floor(count) - 1), shift_((std::countr_one(mask_) + 1) / 2), at_(at) {}
  std::size_t next() {
    at_ = at_ * 6364136223846793005U + 1442695040888963407U;
    // The lower bits of such a generator have a short period, in which two generators stay in step:
    // the relative page offset of source and target would never change. Mixing in the upper bits
    // fixes this and is a bijection.
    const std::uint64_t number = at_ & mask_;
    return static_cast<std::size_t>(number ^ (number >> shift_));
  }

 private:
  std::uint64_t mask_;
  int shift_;
  std::uint64_t& at_;
};

/// Positions of one thread's walks.
struct Position {
  std::uint64_t source = 0;
  std::uint64_t target = 0;
};

struct Task {
  std::byte* target;
  const std::byte* source;
  std::size_t byte_count;
};

/// Memory that one thread's copies read and write.
struct Buffers {
  std::span<std::byte> source;
  std::span<std::byte> target;
};

std::size_t round_up(std::size_t byte_count, std::size_t unit) {
  return (byte_count + unit - 1) / unit * unit;
}

/// Distance between the starts of adjacent places.
std::size_t slot_bytes_of(const Conditions& conditions) {
  // Room for any offset within a page; places of small copies are closer, so that a pool holds
  // enough.
  const std::size_t room_bytes = conditions.bytes_max + (conditions.aligned ? 0 : kLineBytes);
  if (conditions.bytes_max < kPageBytes / 2) return round_up(room_bytes, kPageBytes / 4);
  return round_up(room_bytes, kPageBytes) + (conditions.aligned ? 0 : kPageBytes);
}

std::size_t batch_copies_of(const Conditions& conditions) {
  const std::size_t batch_bytes =
      conditions.temperature == Temperature::hot ? kBatchBytesHot : kBatchBytesElsewhere;
  const bool repeats = conditions.temperature == Temperature::hot &&
                       kBatchCopiesHotMin * conditions.bytes_max <= kBatchBytesHotMax;
  return std::clamp<std::size_t>(batch_bytes / (conditions.bytes_max + kLineBytes),
                                 repeats ? kBatchCopiesHotMin : 1, kBatchCopiesMax);
}

/// Offsets of one copy within its places, and its length.
struct Shape {
  std::size_t target_offset;
  std::size_t source_offset;
  std::size_t byte_count;
};

/// Draws the copies of a round: the same shapes for every subject, and the same places if hot. Each
/// subject gets them in a different order: the branch predictor learns sequences of hundreds of
/// lengths, which would favour a function that is measured twice in a round, as memmove is.
class Draft {
 public:
  Draft(const Conditions& conditions, const Buffers& buffers, Position& position, Random& random)
      : conditions_(conditions),
        buffers_(buffers),
        random_(random),
        slot_bytes_(slot_bytes_of(conditions)),
        sources_(buffers.source.size() / slot_bytes_, position.source),
        targets_(buffers.target.size() / slot_bytes_, position.target),
        shapes_(batch_copies_of(conditions)) {
    const bool hot = conditions.temperature == Temperature::hot;
    Shape shift{line_offset(), line_offset(), 0};
    for (Shape& shape : shapes_) {
      // Hot copies stay in the same lines, to keep the working set small.
      if (!hot) shift = {line_offset(), line_offset(), 0};
      shape = {shift.target_offset + byte_offset(), shift.source_offset + byte_offset(), length()};
    }
    if (!hot) return;
    const std::size_t pair_bytes = 2 * (conditions.bytes_max + kLineBytes);
    pairs_.resize(std::clamp<std::size_t>(kHotBytes / pair_bytes, 1, kHotPairsMax));
    for (Pair& pair : pairs_) pair = next_pair();
  }

  [[nodiscard]] std::vector<Task> batch() {
    std::ranges::shuffle(shapes_, random_);
    std::vector<Task> tasks;
    tasks.reserve(shapes_.size());
    for (std::size_t i = 0; i < shapes_.size(); ++i) {
      const Shape& shape = shapes_[i];
      const Pair pair = pairs_.empty() ? next_pair() : pairs_[i % pairs_.size()];
      tasks.push_back(
          {pair.target + shape.target_offset, pair.source + shape.source_offset, shape.byte_count});
    }
    return tasks;
  }

 private:
  struct Pair {
    std::byte* target;
    const std::byte* source;
  };

  Pair next_pair() {
    return {buffers_.target.data() + targets_.next() * slot_bytes_,
            buffers_.source.data() + sources_.next() * slot_bytes_};
  }
  /// Offset in whole lines, within the spare page of a long copy's slot.
  std::size_t line_offset() {
    if (conditions_.aligned || conditions_.bytes_max < kPageBytes / 2) return 0;
    return random_.below(kPageBytes / kLineBytes) * kLineBytes;
  }
  std::size_t byte_offset() { return conditions_.aligned ? 0 : random_.below(kLineBytes); }
  std::size_t length() {
    return conditions_.bytes_min + random_.below(conditions_.bytes_max - conditions_.bytes_min + 1);
  }

  Conditions conditions_;
  Buffers buffers_;
  Random& random_;
  std::size_t slot_bytes_;
  Walk sources_;
  Walk targets_;
  std::vector<Shape> shapes_;
  std::vector<Pair> pairs_;  ///< Empty unless hot.
};

void copy_all(Move move, std::span<const Task> tasks) {
  if (move == libc_move()) {
    // As a program calls it: through the PLT.
    for (const Task& task : tasks) {
      std::memmove(task.target, task.source, task.byte_count);
    }
  } else {
    for (const Task& task : tasks) {
      move(task.target, task.source, task.byte_count);
    }
  }
}

double time_batch_ns(Move subject, std::span<const Task> tasks) {
  const auto begin = platform::thread_cpu_time();
  copy_all(subject, tasks);
  const auto end = platform::thread_cpu_time();
  return static_cast<double>((end - begin).count()) / static_cast<double>(tasks.size());
}

bool is_right(const Task& task) {
  const std::size_t compared = std::min(task.byte_count, kComparedBytesMax);
  return std::memcmp(task.target, task.source, compared) == 0 &&
         std::memcmp(task.target + task.byte_count - compared,
                     task.source + task.byte_count - compared, compared) == 0;
}

/// One thread's part of a round: every subject in turn, started together with the other threads.
struct Runner {
  std::span<const Move> subjects;
  std::span<const std::size_t> order;
  Conditions conditions;
  Buffers buffers;
  Position& position;
  Random random;
  bool alike;
  std::vector<double> times_ns{};
  std::optional<std::size_t> wrong{};  ///< The subject that copied wrongly.

  template <typename Meet>
  void run(Meet&& meet) {
    times_ns.resize(subjects.size());
    Draft draft(conditions, buffers, position, random);
    const bool hot = conditions.temperature == Temperature::hot;
    for (const std::size_t index : order) {
      const std::vector<Task> tasks = draft.batch();
      // Untimed warm-up of the code, and of hot places. By memmove first, and more than once: after
      // one long copy, or a non-temporal one, the target is not entirely in the last-level cache,
      // and the next subject would pay for that.
      const Task& last = tasks.back();
      const Task nothing{last.target, last.source, 0};
      if (hot) {
        const auto warming = std::span(tasks).first(std::min(tasks.size(), kHotPairsMax));
        for (int i = index == order.front() ? 0 : 1; i < kHotWarmings; ++i) {
          copy_all(std::memmove, warming);
        }
        copy_all(subjects[index], warming);
      } else {
        copy_all(subjects[index], std::span(&nothing, 1));
      }
      // Overwrite bytes copied by an earlier subject, which could hide an error.
      if (!alike) {
        *last.target = ~*last.source;
        last.target[last.byte_count - 1] = ~last.source[last.byte_count - 1];
      }
      meet();
      times_ns[index] = time_batch_ns(subjects[index], tasks);
      if (!is_right(last)) wrong = index;
    }
  }
};

}  // namespace

struct Meter::State {
  platform::OwnedPages sources;
  platform::OwnedPages targets;
  std::size_t last_level_bytes = 0;
  Random random{1};
  std::vector<Position> positions{};  ///< One per thread.
  bool alike = false;

  [[nodiscard]] Buffers buffers(const Conditions& conditions, std::size_t thread_index) const {
    std::size_t byte_count = sources.get().size() / conditions.thread_count;
    const std::size_t offset = byte_count / kPageBytes * kPageBytes * thread_index;
    if (conditions.temperature == Temperature::last_level) {
      byte_count = std::min(byte_count, last_level_bytes / 2 / conditions.thread_count);
    }
    return {sources.get().subspan(offset, byte_count / kPageBytes * kPageBytes),
            targets.get().subspan(offset, byte_count / kPageBytes * kPageBytes)};
  }
};

Result<Meter> Meter::make(const Options& options) {
  if (options.pool_bytes < kPageBytes) {
    return fail(Code::invalid_argument, kTried, "the pool has less than a page",
                "give one that fits no cache");
  }
  HEADRACE_TAKE(sources, make_pool(options.pool_bytes));
  HEADRACE_TAKE(targets, make_pool(options.pool_bytes));
  Random random(options.seed);
  const std::span<std::byte> bytes = sources->get();
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = options.alike ? kAlike : random();
    std::memcpy(bytes.data() + at, &word, sizeof word);
  }
  if (options.alike) std::ranges::fill(targets->get(), std::byte{kFillValue});
  return Meter(std::make_unique<State>(State{.sources = std::move(*sources),
                                             .targets = std::move(*targets),
                                             .last_level_bytes = options.last_level_bytes,
                                             .random = random,
                                             .positions = {},
                                             .alike = options.alike}));
}

Result<std::vector<double>> Meter::measure_round(std::span<const Move> subjects,
                                                 const Conditions& conditions) {
  const std::vector<CpuId> cpus = platform::allowed_cpus();
  if (conditions.thread_count == 0 || conditions.thread_count > cpus.size()) {
    return fail(Code::invalid_argument, kTried,
                fmt::format("{} threads are wanted and {} processors allowed",
                            conditions.thread_count, cpus.size()),
                "use at most one for each");
  }
  if (conditions.bytes_min == 0 || conditions.bytes_min > conditions.bytes_max ||
      state_->buffers(conditions, 0).source.size() < slot_bytes_of(conditions)) {
    return fail(Code::invalid_argument, kTried,
                fmt::format("copies of {} to {} bytes do not fit the pools", conditions.bytes_min,
                            conditions.bytes_max),
                "give larger pools");
  }
  std::vector<std::size_t> order(subjects.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), state_->random);
  while (state_->positions.size() < conditions.thread_count) {
    // Sources and targets walk in different orders.
    state_->positions.push_back({.source = state_->random(), .target = state_->random()});
  }
  std::vector<Runner> runners;
  runners.reserve(conditions.thread_count);
  for (std::size_t i = 0; i < conditions.thread_count; ++i) {
    runners.push_back({.subjects = subjects,
                       .order = order,
                       .conditions = conditions,
                       .buffers = state_->buffers(conditions, i),
                       .position = state_->positions[i],
                       .random = Random(state_->random()),
                       .alike = state_->alike});
  }
  if (runners.size() == 1) {
    runners[0].run([] {});
  } else {
    std::barrier<> together(static_cast<std::ptrdiff_t>(runners.size()));
    std::vector<std::jthread> threads;
    threads.reserve(runners.size());
    for (std::size_t i = 0; i < runners.size(); ++i) {
      try {
        threads.emplace_back([&, i] {
          // If pinning is not permitted, the scheduler places the threads.
          static_cast<void>(platform::pin_this_thread(std::span(&cpus[i], 1)));
          runners[i].run([&] { together.arrive_and_wait(); });
        });
      } catch (const std::system_error& error) {
        // Remove the missing threads from the barrier, for which the started ones wait.
        for (; i < runners.size(); ++i) together.arrive_and_drop();
        return fail(Code::capacity_exceeded,
                    fmt::format("start {}", counted(runners.size(), "copying thread")),
                    fmt::format("the system allowed only {}", threads.size()), "use fewer threads",
                    error.code().value());
      }
    }
  }
  std::vector<double> times_ns(subjects.size());
  for (const Runner& runner : runners) {
    if (runner.wrong) {
      return fail(Code::corrupt_data, kTried,
                  fmt::format("subject {} copied wrongly", *runner.wrong),
                  "this is an error of headrace: please report it");
    }
    for (std::size_t i = 0; i < times_ns.size(); ++i) {
      times_ns[i] += runner.times_ns[i] / static_cast<double>(runners.size());
    }
  }
  return times_ns;
}

std::optional<ColdProbe> Meter::find_cold_probe() {
  if (!platform::may_read_ticks()) return std::nullopt;
  const std::span<std::byte> pool = state_->targets.get();
  const std::span<std::byte> near =
      pool.first(std::clamp(state_->last_level_bytes, kPageBytes, pool.size()));
  const auto touch = [](std::span<const std::byte> bytes) {
    for (std::size_t at = 0; at < bytes.size(); at += kLineBytes) {
      const std::byte seen = const_cast<const volatile std::byte&>(bytes[at]);
      static_cast<void>(seen);
    }
  };
  // Returns sorted ticks of loads of random lines.
  const auto draw = [this](std::span<const std::byte> bytes) {
    std::vector<std::uint32_t> ticks(kProbeSamples);
    for (std::uint32_t& each : ticks) {
      each = platform::load_ticks(bytes.data() +
                                  state_->random.below(bytes.size() / kLineBytes) * kLineBytes);
    }
    std::ranges::sort(ticks);
    return ticks;
  };
  touch(state_->sources.get());
  const std::vector<std::uint32_t> from_memory = draw(pool);
  for (int i = 0; i < 3; ++i) touch(near);
  const std::vector<std::uint32_t> from_cache = draw(near);
  const double slow_cache = from_cache[kProbeSamples * 3 / 4];
  const double fast_memory = from_memory[kProbeSamples / 4];
  constexpr double kClearly = 1.3;
  if (fast_memory < kClearly * slow_cache) return std::nullopt;
  // Page faults and interrupts take many times as long as memory.
  constexpr std::uint32_t kAtMost = 4;
  return ColdProbe{.ticks_min = static_cast<std::uint32_t>(std::sqrt(slow_cache * fast_memory)),
                   .ticks_max = kAtMost * from_memory[kProbeSamples / 2]};
}

std::optional<double> Meter::find_wide_cost() {
  constexpr std::array kVariants = {Variant{.through = Register::ymm, .block_line_count = 4},
                                    Variant{.through = Register::zmm, .block_line_count = 4}};
  if (!can_run(kVariants[0]) || !can_run(kVariants[1])) return std::nullopt;
  const auto code = GeneratedCode::make(kVariants);
  if (!code) return std::nullopt;
  constexpr std::size_t kSamples = 101;
  constexpr std::size_t kBatch = 64;
  constexpr std::chrono::milliseconds kPause{1};
  std::byte* const target = state_->targets.get().data();
  const std::byte* const source = state_->sources.get().data();
  const auto time_ns = [&](Move move, std::size_t count) {
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < count; ++i) move(target, source, kPageBytes);
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin)
               .count() /
           static_cast<double>(count);
  };
  struct Times {
    std::vector<double> alone_ns;
    std::vector<double> in_batch_ns;
  };
  std::array<Times, kVariants.size()> times;
  for (std::size_t i = 0; i < kSamples; ++i) {
    for (std::size_t which = 0; which < times.size(); ++which) {
      const Move move = code->moves()[which];
      times[which].in_batch_ns.push_back(time_ns(move, kBatch));
      const auto end = std::chrono::steady_clock::now() + kPause;
      while (std::chrono::steady_clock::now() < end) {
      }
      // Another process may have evicted the target from the caches.
      for (std::size_t at = 0; at < kPageBytes; at += kLineBytes) target[at] = source[at];
      times[which].alone_ns.push_back(time_ns(move, 1));
    }
  }
  // The lower quartile: other work only adds time, and the effect is always present.
  const auto typical = [](std::vector<double>& samples) {
    std::ranges::sort(samples);
    return samples[kSamples / 4];
  };
  // With any registers an isolated copy pays for the clock and for mispredicted branches: a
  // difference of times, not a factor.
  const double besides_ns = typical(times[0].alone_ns) - typical(times[0].in_batch_ns);
  return typical(times[1].alone_ns) / (typical(times[1].in_batch_ns) + std::max(0.0, besides_ns));
}

Meter::Meter(std::unique_ptr<State> state) : state_(std::move(state)) {}
Meter::Meter(Meter&& other) noexcept = default;
Meter& Meter::operator=(Meter&& other) noexcept = default;
Meter::~Meter() = default;

}  // namespace headrace::copy::lab
