// SPDX-License-Identifier: Apache-2.0
// What does EngineOptions::check_memory cost?
//
// Alternates Engine::run of a copy (in the caches if it fits) by an engine that checks every page
// with the system first and by one that does not. Reports the medians of `more_ns`, the cost of the
// check, and of `ratio`, time with it over time without, with its quartiles. Argument: bytes.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

#include "headrace/engine/engine.hpp"
#include "measure.hpp"

namespace {

using headrace::engine::Completion;
using headrace::engine::Engine;
using headrace::engine::Operation;
using headrace::engine::Submit;
using Clock = std::chrono::steady_clock;

std::unique_ptr<Engine> make(const headrace::topo::Machine& machine, bool check_memory) {
  auto engine = Engine::make(
      machine, {.threads_per_node = 1, .devices = {.use = false}, .check_memory = check_memory});
  if (!engine) std::abort();
  return std::move(*engine);
}

double ns_of(Engine& engine, const Operation& operation, int times) {
  const Clock::time_point begun = Clock::now();
  for (int i = 0; i < times; ++i) {
    Completion end;
    if (engine.run(operation, end) != Submit::accepted) std::abort();
    benchmark::DoNotOptimize(end);
  }
  return std::chrono::duration<double, std::nano>(Clock::now() - begun).count() / times;
}

void check(benchmark::State& state) {
  const auto machine = headrace::topo::discover({.find_movers = false});
  if (!machine) return state.SkipWithError("no machine");
  const auto with = make(*machine, true);
  const auto without = make(*machine, false);
  const auto size = static_cast<std::size_t>(state.range(0));
  std::vector<std::byte> source(size, std::byte{1});
  std::vector<std::byte> target(size);
  const Operation copy = Operation::copy(target, source);
  const int times = std::max(1, static_cast<int>(200'000 / (size + 1000)));
  std::vector<double> more;
  std::vector<double> ratios;
  for (auto round : state) {
    static_cast<void>(round);
    const double one = ns_of(*with, copy, times);
    const double other = ns_of(*without, copy, times);
    more.push_back(one - other);
    ratios.push_back(one / other);
  }
  state.counters["more_ns"] = headrace::bench::quantile(more, 0.5);
  state.counters["ratio_low"] = headrace::bench::quantile(ratios, 0.25);
  state.counters["ratio"] = headrace::bench::quantile(ratios, 0.5);
  state.counters["ratio_high"] = headrace::bench::quantile(ratios, 0.75);
}

BENCHMARK(check)->RangeMultiplier(16)->Range(64, 16 << 20)->Arg(2 << 20);

}  // namespace

BENCHMARK_MAIN();
