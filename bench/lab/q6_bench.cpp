// SPDX-License-Identifier: Apache-2.0
// Question: what does prefetching cost and gain in query 6 on this machine? Method: synthetic
// columns with the value ranges of TPC-H at scale factor 1 (a hundredth of it as a smoke test).
// Each iteration runs the query four ways in sequence, so that other load affects all: without
// prefetching, automatic, on with an empty cache, and on with a cache that holds everything.
// Reports medians, ratios of medians as throughput relative to `off`, and the interquartile range
// of `off` over its median. Not for: comparison with a database ('headrace query' does that on real
// data).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "headrace/cache/cache.hpp"
#include "headrace/engine/engine.hpp"
#include "headrace/lab/q6.hpp"
#include "headrace/topo/machine.hpp"
#include "measure.hpp"

namespace {

using namespace headrace;  // NOLINT(google-build-using-namespace): a main file, read top to bottom.

struct Table {
  std::vector<std::int32_t> ship_date;
  std::vector<std::int64_t> discount;
  std::vector<std::int64_t> quantity;
  std::vector<std::int64_t> extended_price;

  explicit Table(std::size_t row_count) {
    std::mt19937_64 random(6);  // Always the same rows.
    std::uniform_int_distribution<std::int32_t> days(8036, 10561);
    std::uniform_int_distribution<std::int64_t> hundredths(0, 10);
    std::uniform_int_distribution<std::int64_t> pieces(1, 50);
    std::uniform_int_distribution<std::int64_t> price(90'000, 10'494'950);
    for (std::size_t row = 0; row < row_count; ++row) {
      ship_date.push_back(days(random));
      discount.push_back(hundredths(random));
      quantity.push_back(100 * pieces(random));
      extended_price.push_back(price(random));
    }
  }
  [[nodiscard]] query::lab::Q6Columns columns() const {
    return {ship_date, discount, quantity, extended_price};
  }
};

const Table& table() {
  static const Table kTable(bench::is_full() ? 6'001'215 : 60'012);
  return kTable;
}

/// Caches every chunk of the aggregate's columns.
void fill(cache::Cache& cache, Bytes chunk) {
  const query::lab::Q6Columns columns = table().columns();
  for (const std::span<const std::int64_t> column : {columns.extended_price, columns.discount}) {
    const std::span<const std::byte> bytes = std::as_bytes(column);
    for (std::size_t first = 0; first < bytes.size(); first += chunk.count()) {
      const std::size_t count = std::min<std::size_t>(chunk.count(), bytes.size() - first);
      cache.access(bytes.subspan(first, count)).wait();
    }
  }
}

enum Way : std::size_t { off, automatic, on_cold, on_warm, way_count };

void q6(benchmark::State& state) {
  const Result<topo::Machine> machine = topo::discover();
  if (!machine.has_value()) return state.SkipWithError(machine.error().message().c_str());
  const auto engine = engine::Engine::make(*machine);
  if (!engine.has_value()) return state.SkipWithError(engine.error().message().c_str());
  // Copies are made even if no memory is faster, to measure the cost of `on`.
  cache::CacheOptions cache_options;
  cache_options.placement = [](const cache::PlacementContext& context) {
    const cache::Placement faster = cache::placement::fastest(context);
    return faster.nodes().empty() ? cache::placement::local(context) : faster;
  };
  const auto cache = cache::Cache::make(*machine, **engine, cache_options);
  if (!cache.has_value()) return state.SkipWithError(cache.error().message().c_str());

  query::lab::Q6Options options;
  options.thread_count = static_cast<std::size_t>(state.range(0));
  std::array<std::vector<double>, way_count> times_ms;
  std::array<double, way_count> cache_share{};
  std::int64_t revenue = 0;
  const auto run = [&](Way way, query::lab::Prefetch prefetch) {
    options.prefetch = prefetch;
    const auto result = query::lab::run_q6(*machine, cache->get(), table().columns(), {}, options);
    if (!result.has_value()) return state.SkipWithError(result.error().message().c_str());
    if (revenue == 0) revenue = result->revenue;
    if (result->revenue != revenue) state.SkipWithError("the ways disagree on the revenue");
    times_ms[way].push_back(static_cast<double>(result->time.count()) / 1e6);
    cache_share[way] = static_cast<double>(result->chunks_from_cache) /
                       static_cast<double>(result->chunks_from_cache + result->chunks_from_source);
  };
  for (auto _ : state) {
    run(off, query::lab::Prefetch::off);
    run(automatic, query::lab::Prefetch::automatic);
    run(on_cold, query::lab::Prefetch::on);
    fill(**cache, options.chunk);
    run(on_warm, query::lab::Prefetch::on);
    (*cache)->clear();
  }
  const double off_ms = bench::quantile(times_ms[off], 0.5);
  state.counters["off_ms"] = off_ms;
  state.counters["off_spread"] =
      (bench::quantile(times_ms[off], 0.75) - bench::quantile(times_ms[off], 0.25)) / off_ms;
  for (const auto& [way, name] : {std::pair(automatic, "auto"), std::pair(on_cold, "on_cold"),
                                  std::pair(on_warm, "on_warm")}) {
    state.counters[std::string(name) + "_vs_off"] = off_ms / bench::quantile(times_ms[way], 0.5);
  }
  state.counters["on_cold_from_cache"] = cache_share[on_cold];
  state.counters["on_warm_from_cache"] = cache_share[on_warm];
  // Printed, so that neither compiler nor author can omit the work.
  state.SetLabel("revenue " + std::to_string(revenue));
}
BENCHMARK(q6)
    ->ArgName("threads")
    ->Arg(1)
    ->Arg(2)
    ->Arg(0)
    ->Iterations(bench::is_full() ? 31 : 3)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
