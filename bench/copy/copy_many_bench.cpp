// SPDX-License-Identifier: Apache-2.0
// Question: what does a list of copies save over the same copies one by one?
//
// Method. An iteration times one list of 64 copies by copy_many and one by a loop of move_bytes, in
// alternating order, in thread time. Places are random, in a pool much larger than the caches
// (cold) or in half the first-level cache (hot, each list several times). Reports the ratio of the
// medians (above 1: the list is faster) and the quartiles of the ratios of the iterations. The
// copies are checked. Without HEADRACE_BENCH_FULL the pool is too small for meaningful figures. To
// measure: HEADRACE_BENCH_FULL=1 copy_many_bench
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "headrace/base/random.hpp"
#include "headrace/copy/copy.hpp"
#include "measure.hpp"

namespace {

using namespace headrace;

constexpr std::size_t kListCount = 64;
constexpr std::size_t kHotBytes = std::size_t{16} << 10U;

std::size_t pool_bytes() {
  return bench::is_full() ? std::size_t{96} << 20U : std::size_t{1} << 20U;
}

/// Lists of copies at random places of two pools, used cyclically.
class Lists {
 public:
  Lists(std::size_t byte_count, bool hot)
      : repeat_count_(hot ? 16 : 1), source_(pool_bytes(), std::byte{1}), target_(pool_bytes()) {
    Random random(1);
    const std::size_t slot_bytes =
        hot ? byte_count + 64 : std::max<std::size_t>(byte_count, 960) + 64;
    const std::size_t used_bytes = hot ? std::max(kHotBytes, slot_bytes) : pool_bytes();
    std::vector<std::size_t> sources(used_bytes / slot_bytes);
    std::iota(sources.begin(), sources.end(), std::size_t{0});
    std::vector<std::size_t> targets = sources;
    std::shuffle(sources.begin(), sources.end(), random);
    std::shuffle(targets.begin(), targets.end(), random);
    for (std::size_t i = 0; i < std::max(sources.size(), kListCount); ++i) {
      const std::size_t k = i % sources.size();
      items_.push_back({target_.data() + targets[k] * slot_bytes + random.below(64),
                        source_.data() + sources[k] * slot_bytes + random.below(64), byte_count});
    }
  }
  template <typename Copy>
  double measure_ns(Copy copy_list) {
    if (at_ + kListCount > items_.size()) at_ = 0;
    const auto list = std::span<const copy::CopyItem>(items_).subspan(at_, kListCount);
    at_ += kListCount;
    const double start_ns = bench::now_ns();
    for (std::size_t i = 0; i < repeat_count_; ++i) copy_list(list);
    return (bench::now_ns() - start_ns) / static_cast<double>(kListCount * repeat_count_);
  }
  [[nodiscard]] bool are_right() const {
    const auto copied = std::span(items_).first(list_count() * kListCount);
    return std::ranges::all_of(copied, [](const copy::CopyItem& item) {
      return std::memcmp(item.target, item.source, item.byte_count) == 0;
    });
  }
  [[nodiscard]] std::size_t list_count() const { return items_.size() / kListCount; }

 private:
  std::size_t repeat_count_;
  std::vector<std::byte> source_;
  std::vector<std::byte> target_;
  std::vector<copy::CopyItem> items_;
  std::size_t at_ = 0;
};

void one_by_one(std::span<const copy::CopyItem> list) {
  for (const copy::CopyItem& item : list) {
    copy::move_bytes(item.target, item.source, item.byte_count);
  }
}

void compare(benchmark::State& state, std::size_t byte_count, bool hot) {
  Lists lists(byte_count, hot);
  const bench::Turns turns = bench::take_turns(
      state, [&] { return lists.measure_ns(one_by_one); },
      [&] { return lists.measure_ns(copy::copy_many); });
  for (std::size_t i = 0; i <= lists.list_count(); ++i) lists.measure_ns(copy::copy_many);
  if (!lists.are_right()) state.SkipWithError("a copy differs from its source");
  state.counters["copy_ns"] = turns.below_ns;
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  for (const bool hot : {true, false}) {
    for (const std::size_t byte_count :
         {16U, 32U, 64U, 128U, 256U, 512U, 1024U, 2048U, 4096U, 8192U}) {
      benchmark::RegisterBenchmark(
          fmt::format("{}/{}", hot ? "hot" : "cold", byte_count).c_str(),
          [byte_count, hot](benchmark::State& state) { compare(state, byte_count, hot); })
          ->UseManualTime()
          ->Iterations(bench::is_full() ? 1000 : 5);  // Fixed: set-up runs once, not per guess.
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
