// SPDX-License-Identifier: Apache-2.0
// Question: is any kernel, or the dispatch, faster than memmove - and what does the next reader of
// the target pay? Does not measure memory bandwidth: one thread, one copy at a time.
//
// Method. A benchmark compares one subject with memmove in one run. Each iteration times a batch of
// copies by each, in alternating order, so that drift of the machine affects both. Reports the
// ratio of the medians (below 1: faster than memmove) and, as spread, the quartiles of the ratios
// of the single iterations. Kernels are compared with the libc kernel called the same way, so that
// the call costs both the same; the dispatch and generated copies (non-temporal, and the same with
// pages touched ahead) with a plain memmove, which shows their overhead. The clock is the thread's
// processor time: it excludes other processes on this core, but not their effect on the shared
// cache.
//
//   hot             one pair of buffers repeatedly, at random alignments: cached if they fit
//   aligned         as hot, both buffers aligned to a page
//   cold            random places of a pool much larger than the caches, every place once per pass
//   cold_then_read  as cold, and the target is summed after each copy, inside the timed span
//
// Copies are checked after the timing; wrong bytes are an error. Without HEADRACE_BENCH_FULL the
// lengths and the pool are too small for meaningful figures. To measure:
//   HEADRACE_BENCH_FULL=1 taskset -c 1 copy_bench --benchmark_counters_tabular=true
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/random.hpp"
#include "headrace/copy/copy.hpp"
#include "headrace/copy/generated.hpp"
#include "measure.hpp"

namespace {

using namespace headrace;
using headrace::copy::Kernel;

constexpr std::size_t kPageBytes = 4096;
constexpr std::uint64_t kSeed = 1;

enum class Mode { hot, aligned, cold, cold_then_read };

struct Scale {
  std::vector<std::size_t> lengths_bytes;
  std::size_t pool_bytes;
};

Scale scale() {
  if (!bench::is_full()) return {{64, 4096, 65536}, 1U << 20U};
  Scale full{{}, 256U << 20U};
  for (std::size_t bits = 6; bits <= 26; bits += 2) {
    full.lengths_bytes.push_back(std::size_t{1} << bits);
  }
  return full;
}

/// Source and target bytes, allocated once for all benchmarks.
struct Pool {
  std::vector<std::byte> source;
  std::vector<std::byte> target;
};

Pool& pool() {
  static Pool both = [] {
    const Scale size = scale();
    const std::size_t byte_count =
        std::max(size.pool_bytes, size.lengths_bytes.back()) + 2 * kPageBytes;
    Pool made{std::vector<std::byte>(byte_count), std::vector<std::byte>(byte_count)};
    Random random(kSeed);
    for (std::size_t at = 0; at + 8 <= byte_count; at += 8) {
      const std::uint64_t word = random();
      std::memcpy(made.source.data() + at, &word, sizeof word);
    }
    return made;
  }();
  return both;
}

/// Where one copy reads and writes.
struct Place {
  std::size_t source_offset;
  std::size_t target_offset;
};

std::size_t offset_to_page(const std::byte* address) {
  return (kPageBytes - reinterpret_cast<std::uintptr_t>(address) % kPageBytes) % kPageBytes;
}

std::vector<Place> make_places(Mode mode, std::size_t byte_count) {
  Random random(kSeed);
  const Place base{offset_to_page(pool().source.data()), offset_to_page(pool().target.data())};
  if (mode == Mode::aligned) return {base};
  std::vector<Place> places;
  if (mode == Mode::hot) {
    for (int i = 0; i < 64; ++i) {
      places.push_back(
          {base.source_offset + random.below(64), base.target_offset + random.below(64)});
    }
    return places;
  }
  // Slots leave room for the random alignment. Those of short copies are few and far apart: the
  // pool is walked in random order, and its size in bytes keeps the places cold.
  const std::size_t slot_bytes = std::max<std::size_t>(byte_count + 64, 1024);
  const std::size_t slot_count = std::max<std::size_t>(1, scale().pool_bytes / slot_bytes);
  std::vector<std::size_t> sources(slot_count);
  std::iota(sources.begin(), sources.end(), std::size_t{0});
  std::vector<std::size_t> targets = sources;
  std::shuffle(sources.begin(), sources.end(), random);
  std::shuffle(targets.begin(), targets.end(), random);
  for (std::size_t i = 0; i < slot_count; ++i) {
    places.push_back(
        {sources[i] * slot_bytes + random.below(64), targets[i] * slot_bytes + random.below(64)});
  }
  return places;
}

std::uint64_t sum_of(std::span<const std::byte> bytes) {
  std::uint64_t sum = 0;
  for (std::size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    sum += word;
  }
  return sum;
}

void baseline_of_kernel(std::span<std::byte> target, std::span<const std::byte> source) {
  copy::copy_bytes_with(Kernel::libc, target, source);
}

void baseline_of_dispatch(std::span<std::byte> target, std::span<const std::byte> source) {
  std::memmove(target.data(), source.data(), source.size());
}

/// Walks the places and times batches of copies.
class Course {
 public:
  Course(Mode mode, std::size_t byte_count)
      : mode_(mode),
        byte_count_(byte_count),
        batch_count_(std::max<std::size_t>(1, (std::size_t{256} << 10U) / (byte_count + 64))),
        places_(make_places(mode, byte_count)) {}

  template <typename Copy>
  double measure_batch_ns(Copy&& copy_once) {
    const double start_ns = bench::now_ns();
    for (std::size_t i = 0; i < batch_count_; ++i) {
      const Place& place = places_[next_];
      next_ = next_ + 1 == places_.size() ? 0 : next_ + 1;
      const auto target = std::span(pool().target).subspan(place.target_offset, byte_count_);
      copy_once(
          target,
          std::span<const std::byte>(pool().source).subspan(place.source_offset, byte_count_));
      benchmark::DoNotOptimize(target.data());
      benchmark::ClobberMemory();
      if (mode_ == Mode::cold_then_read) benchmark::DoNotOptimize(sum_of(target));
    }
    return bench::now_ns() - start_ns;
  }

  [[nodiscard]] std::size_t batch_count() const { return batch_count_; }
  /// True if the last copy was correct.
  [[nodiscard]] bool last_copy_is_right() const {
    const Place& place = places_[next_ == 0 ? places_.size() - 1 : next_ - 1];
    return std::memcmp(pool().target.data() + place.target_offset,
                       pool().source.data() + place.source_offset, byte_count_) == 0;
  }

 private:
  Mode mode_;
  std::size_t byte_count_;
  std::size_t batch_count_;
  std::vector<Place> places_;
  std::size_t next_ = 0;
};

template <typename Baseline, typename Subject>
void compare(benchmark::State& state, Mode mode, std::size_t byte_count, Baseline baseline,
             Subject subject) {
  Course course(mode, byte_count);
  course.measure_batch_ns(baseline);
  course.measure_batch_ns(subject);
  const bench::Turns turns = bench::take_turns(
      state, [&] { return course.measure_batch_ns(subject); },
      [&] { return course.measure_batch_ns(baseline); });
  course.measure_batch_ns(subject);
  if (!course.last_copy_is_right()) state.SkipWithError("the copy differs from its source");
  const double copy_ns = turns.above_ns / static_cast<double>(course.batch_count());
  state.counters["copy_ns"] = copy_ns;
  state.counters["GB/s"] = static_cast<double>(byte_count) / copy_ns;
}

/// Non-temporal copies, without and with pages touched ahead. Empty if copies cannot be generated.
const std::vector<std::pair<const char*, copy::Move>>& generated_copies() {
  static const auto kCode = [] {
    copy::Variant past{.through = copy::Register::ymm, .store_nontemporal = true};
    copy::Variant touching = past;
    touching.touch = copy::Touch::both;
    return copy::GeneratedCode::make(std::to_array({past, touching}));
  }();
  static const std::vector<std::pair<const char*, copy::Move>> kCopies = [] {
    if (!kCode) return std::vector<std::pair<const char*, copy::Move>>{};
    return std::vector<std::pair<const char*, copy::Move>>{
        {"generated_nontemporal", kCode->moves()[0]},
        {"generated_nontemporal_touch", kCode->moves()[1]}};
  }();
  return kCopies;
}

void register_all() {
  constexpr std::pair<Mode, const char*> kModes[] = {{Mode::hot, "hot"},
                                                     {Mode::aligned, "aligned"},
                                                     {Mode::cold, "cold"},
                                                     {Mode::cold_then_read, "cold_then_read"}};
  for (const auto& [mode, mode_name] : kModes) {
    for (const std::size_t byte_count : scale().lengths_bytes) {
      const auto label = [&, mode_name = mode_name](std::string_view subject) {
        return fmt::format("{}/{}/{}", mode_name, byte_count, subject);
      };
      benchmark::RegisterBenchmark(label("dispatch").c_str(), [mode = mode, byte_count](
                                                                  benchmark::State& state) {
        compare(state, mode, byte_count, baseline_of_dispatch, copy::copy_bytes);
      })->UseManualTime();
      for (const auto& [subject, move] : generated_copies()) {
        benchmark::RegisterBenchmark(label(subject).c_str(), [mode = mode, byte_count, move = move](
                                                                 benchmark::State& state) {
          compare(state, mode, byte_count, baseline_of_dispatch,
                  [move](std::span<std::byte> target, std::span<const std::byte> source) {
                    move(target.data(), source.data(), source.size());
                  });
        })->UseManualTime();
      }
      for (const Kernel kernel : copy::available_kernels()) {
        if (kernel == Kernel::libc) continue;
        benchmark::RegisterBenchmark(
            label(copy::name(kernel)).c_str(),
            [mode = mode, byte_count, kernel](benchmark::State& state) {
              compare(state, mode, byte_count, baseline_of_kernel,
                      [kernel](std::span<std::byte> target, std::span<const std::byte> source) {
                        copy::copy_bytes_with(kernel, target, source);
                      });
            })
            ->UseManualTime();
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  register_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
