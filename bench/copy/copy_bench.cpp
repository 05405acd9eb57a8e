// SPDX-License-Identifier: Apache-2.0
// Question: does a non-temporal copy still pay if the target is read next? Does not compare copies
// otherwise: 'headrace bench copy' does, in a program.
//
// Method. Batches of copies by a generated variant and by memmove alternate, at random places of a
// pool much larger than the caches, every place once per pass; with `then_read` the target is
// summed after each copy, inside the timed span. Reports the ratio of the medians (below 1: faster
// than memmove) and the quartiles of the ratios of the iterations. The clock is the thread's
// processor time. Copies are checked after the timing. Without HEADRACE_BENCH_FULL the lengths and
// the pool are too small for meaningful figures. To measure:
//   HEADRACE_BENCH_FULL=1 taskset -c 1 copy_bench --benchmark_counters_tabular=true
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "headrace/base/random.hpp"
#include "headrace/copy/generated.hpp"
#include "measure.hpp"

namespace {

using namespace headrace;

constexpr std::uint64_t kSeed = 1;

std::size_t pool_bytes() {
  return bench::is_full() ? std::size_t{256} << 20U : std::size_t{1} << 20U;
}

struct Place {
  std::byte* target;
  const std::byte* source;
};

/// Source and target bytes, allocated once for all benchmarks.
std::pair<std::vector<std::byte>, std::vector<std::byte>>& pool() {
  static std::pair both{std::vector<std::byte>(pool_bytes() + 4096, std::byte{1}),
                        std::vector<std::byte>(pool_bytes() + 4096)};
  return both;
}

/// Slots leave room for the random alignment. Those of short copies are few and far apart: the pool
/// is walked in random order, and its size in bytes keeps the places cold.
std::vector<Place> make_places(std::size_t byte_count) {
  Random random(kSeed);
  const std::size_t slot_bytes = std::max<std::size_t>(byte_count + 64, 1024);
  std::vector<std::size_t> sources(std::max<std::size_t>(1, pool_bytes() / slot_bytes));
  std::iota(sources.begin(), sources.end(), std::size_t{0});
  std::vector<std::size_t> targets = sources;
  std::shuffle(sources.begin(), sources.end(), random);
  std::shuffle(targets.begin(), targets.end(), random);
  std::vector<Place> places;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    places.push_back({pool().second.data() + targets[i] * slot_bytes + random.below(64),
                      pool().first.data() + sources[i] * slot_bytes + random.below(64)});
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

void compare(benchmark::State& state, std::size_t byte_count, bool then_read, copy::Move subject) {
  const std::vector<Place> places = make_places(byte_count);
  const std::size_t batch_count = std::max<std::size_t>(1, (256U << 10U) / (byte_count + 64));
  std::size_t next = 0;
  const auto batch_ns = [&](copy::Move move) {
    const double start_ns = bench::now_ns();
    for (std::size_t i = 0; i < batch_count; ++i) {
      const Place& place = places[next];
      next = next + 1 == places.size() ? 0 : next + 1;
      move(place.target, place.source, byte_count);
      benchmark::ClobberMemory();
      if (then_read) benchmark::DoNotOptimize(sum_of({place.target, byte_count}));
    }
    return bench::now_ns() - start_ns;
  };
  batch_ns(copy::libc_move());
  batch_ns(subject);
  const bench::Turns turns = bench::take_turns(
      state, [&] { return batch_ns(subject); }, [&] { return batch_ns(copy::libc_move()); });
  const Place& last = places[next == 0 ? places.size() - 1 : next - 1];
  if (std::memcmp(last.target, last.source, byte_count) != 0) {
    state.SkipWithError("the copy differs from its source");
  }
  state.counters["copy_ns"] = turns.above_ns / static_cast<double>(batch_count);
}

void register_all(const copy::GeneratedCode& code) {
  constexpr std::array<const char*, 2> kNames = {"nontemporal", "nontemporal_touch"};
  const unsigned bits_max = bench::is_full() ? 26 : 16;
  for (const bool then_read : {false, true}) {
    for (unsigned bits = 12; bits <= bits_max; bits += 2) {
      for (std::size_t i = 0; i < kNames.size(); ++i) {
        const std::size_t byte_count = std::size_t{1} << bits;
        const copy::Move move = code.moves()[i];
        benchmark::RegisterBenchmark(
            fmt::format("{}/{}/{}", then_read ? "cold_then_read" : "cold", byte_count, kNames[i])
                .c_str(),
            [=](benchmark::State& state) { compare(state, byte_count, then_read, move); })
            ->UseManualTime();
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const copy::Variant past{.through = copy::Register::ymm, .store_nontemporal = true};
  copy::Variant touching = past;
  touching.touch = copy::Touch::both;
  // Nothing is registered where copies cannot be generated.
  const auto code = copy::GeneratedCode::make(std::array{past, touching});
  if (code) register_all(*code);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
