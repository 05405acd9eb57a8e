// SPDX-License-Identifier: Apache-2.0
// What does it cost to move bytes by the engine instead of by memcpy?
//
// Each round submits one copy and waits for it; source and target stay the same, so they are cached
// if they fit. `memcpy` is the same copy by the calling thread. `submit_and_poll` does not sleep,
// like a caller with other work. `many` keeps 64 jobs in flight, which amortises hand-over and
// wake-up. Argument: bytes (for `many`, per job).
#include <benchmark/benchmark.h>

#include <cstring>
#include <string>
#include <vector>

#include "headrace/engine/engine.hpp"

namespace {

using headrace::engine::Engine;
using headrace::engine::Job;
using headrace::engine::Submit;

struct Setup {
  explicit Setup(const benchmark::State& state)
      : source(static_cast<std::size_t>(state.range(0)), std::byte{1}), target(source.size()) {
    if (auto machine = headrace::topo::discover({.find_movers = false})) {
      if (auto made = Engine::make(*machine)) engine = std::move(*made);
    }
  }
  std::vector<std::byte> source;
  std::vector<std::byte> target;
  std::unique_ptr<Engine> engine;
};

void report(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void by_memcpy(benchmark::State& state) {
  Setup setup(state);
  for (auto _ : state) {
    if (!setup.source.empty()) {
      std::memcpy(setup.target.data(), setup.source.data(), setup.source.size());
    }
    benchmark::ClobberMemory();
  }
  report(state);
}

template <bool kSleep>
void by_engine(benchmark::State& state) {
  Setup setup(state);
  if (!setup.engine) return state.SkipWithError("no engine on this machine");
  Job job;
  for (auto _ : state) {
    if (setup.engine->submit_copy(job, {.target = setup.target, .source = setup.source}) !=
        Submit::accepted) {
      return state.SkipWithError("refused");
    }
    if (kSleep) {
      job.wait();
    } else {
      while (!job.poll()) {
      }
    }
  }
  report(state);
}

void by_engine_many(benchmark::State& state) {
  Setup setup(state);
  if (!setup.engine) return state.SkipWithError("no engine on this machine");
  constexpr std::size_t kJobCount = 64;
  std::vector<std::vector<std::byte>> targets(kJobCount, setup.target);
  std::vector<Job> jobs(kJobCount);
  std::size_t next = 0;
  for (auto _ : state) {
    Job& job = jobs[next];
    if (job.state() == headrace::engine::JobState::running) job.wait();
    if (setup.engine->submit_copy(job, {.target = targets[next], .source = setup.source}) !=
        Submit::accepted) {
      return state.SkipWithError("refused");
    }
    next = (next + 1) % kJobCount;
  }
  report(state);
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  for (const std::int64_t byte_count : {0, 4 << 10, 1 << 20}) benchmark->Arg(byte_count);
  benchmark->UseRealTime();
}

BENCHMARK(by_memcpy)->Name("memcpy")->Apply(sizes);
BENCHMARK(by_engine<true>)->Name("submit_and_wait")->Apply(sizes);
BENCHMARK(by_engine<false>)->Name("submit_and_poll")->Apply(sizes);
BENCHMARK(by_engine_many)->Name("many")->Apply(sizes);

}  // namespace

BENCHMARK_MAIN();
