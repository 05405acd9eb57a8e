// SPDX-License-Identifier: Apache-2.0
// Question: what does Cache::access cost by itself - a hit, an access that is not placed, a miss?
// Does not measure copying: the mover completes every request without touching it.
//
// Method. One access per iteration; the handle is dropped inside the timed span. For a spread use
// --benchmark_repetitions. Hits walk over the entries of a filled cache with a fixed stride, so
// that the map is searched. A miss is an access plus the invalidation that makes the next one a
// miss, with memory from a free list (pages: from the operating system, the default).
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "headrace/cache/cache.hpp"
#include "headrace/engine/engine.hpp"
#include "measure.hpp"
#include "no_copies.hpp"

namespace {

using namespace headrace;

constexpr std::size_t kRegionBytes = 4096;

std::size_t region_count() {
  return !bench::is_full() ? 64 : 4096;
}

/// Free list of regions of one length.
///
/// Threading: shared.
class FreeList final : public cache::MemorySource {
 public:
  Result<std::span<std::byte>> allocate(std::size_t byte_count, NodeId /*node*/) override {
    const std::scoped_lock lock(mutex_);
    if (free_.empty()) return std::span(owned_.emplace_back(byte_count));
    const std::span<std::byte> memory = free_.back();
    free_.pop_back();
    return memory;
  }
  void free(std::span<std::byte> memory) noexcept override {
    const std::scoped_lock lock(mutex_);
    free_.push_back(memory);
  }

 private:
  std::mutex mutex_;
  std::vector<std::vector<std::byte>> owned_;
  std::vector<std::span<std::byte>> free_;
};

/// A cache whose moves cost nothing, and regions to access.
struct Bench {
  explicit Bench(cache::CacheOptions options) {
    const topo::Machine machine = topo::discover({.find_movers = false}).value();
    if (!options.placement) options.placement = cache::placement::on(machine.nodes.front().id);
    cache = std::move(cache::Cache::make(machine, *engine, std::move(options)).value());
  }
  [[nodiscard]] std::span<const std::byte> region(std::size_t index) const {
    return std::span(source).subspan(index % region_count() * kRegionBytes, kRegionBytes);
  }
  void fill() const {
    for (std::size_t i = 0; i < region_count(); ++i) static_cast<void>(cache->access(region(i)));
  }

  std::vector<std::byte> source = std::vector<std::byte>(region_count() * kRegionBytes);
  std::unique_ptr<engine::Engine> engine = bench::engine_that_moves_nothing();
  std::unique_ptr<cache::Cache> cache;
};

cache::CacheOptions from_free_list() {
  cache::CacheOptions options;
  options.memory = std::make_shared<FreeList>();
  return options;
}

void hit(benchmark::State& state) {
  static const Bench kBench(from_free_list());
  if (state.thread_index() == 0) kBench.fill();
  // 31 is coprime to the count, so every region is accessed once per round.
  auto index = static_cast<std::size_t>(state.thread_index()) * 17;
  for (auto _ : state) {
    const cache::Entry entry = kBench.cache->access(kBench.region(index += 31));
    benchmark::DoNotOptimize(entry.data().data());
  }
  if (state.thread_index() == 0 && kBench.cache->statistics().misses != region_count()) {
    state.SkipWithError("an access was not a hit");
  }
}
BENCHMARK(hit)->ThreadRange(1, 2)->UseRealTime();

void not_placed(benchmark::State& state, cache::PlacementPolicy policy) {
  cache::CacheOptions options = from_free_list();
  options.placement = std::move(policy);
  const Bench bench(std::move(options));
  for (auto _ : state) {
    const cache::Entry entry = bench.cache->access(bench.region(0));
    benchmark::DoNotOptimize(entry.data().data());
  }
}
BENCHMARK_CAPTURE(not_placed, none, cache::placement::none);
// On a machine with one kind of memory: the cost of a cache with nothing to do.
BENCHMARK_CAPTURE(not_placed, fastest, cache::placement::fastest);

void miss(benchmark::State& state, bool pages) {
  const Bench bench(pages ? cache::CacheOptions() : from_free_list());
  for (auto _ : state) {
    {
      const cache::Entry entry = bench.cache->access(bench.region(0));
      benchmark::DoNotOptimize(entry.data().data());
    }
    bench.cache->invalidate(bench.region(0));
  }
}
BENCHMARK_CAPTURE(miss, free_list, false);
BENCHMARK_CAPTURE(miss, pages, true);

}  // namespace

BENCHMARK_MAIN();
