// SPDX-License-Identifier: Apache-2.0
// Why is the overhead of Engine::run over memcpy larger for uncached memory than for cached?
//
// Copies that walk through 64 MiB: by memcpy alone; by memcpy followed by stores to one line in the
// first-level cache, locked additions or other instructions; and by run(). All take turns in a
// round. Reports the median of `more_ns`, the time of each beyond memcpy alone in a round, and its
// quartiles. Argument: bytes.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "headrace/base/atomic.hpp"
#include "headrace/engine/engine.hpp"
#include "measure.hpp"

namespace {

using headrace::engine::Completion;
using headrace::engine::Engine;
using headrace::engine::Operation;
using headrace::engine::Submit;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kPoolBytes = std::size_t{64} << 20U;

struct Pool {
  std::vector<std::byte> source = std::vector<std::byte>(kPoolBytes, std::byte{1});
  std::vector<std::byte> target = std::vector<std::byte>(kPoolBytes, std::byte{2});
  std::unique_ptr<Engine> engine;
  std::size_t byte_count = 0;
  std::size_t at = 0;

  [[nodiscard]] std::size_t next() {
    at = at + 2 * byte_count > kPoolBytes ? 0 : at + byte_count;
    return at;
  }
};

alignas(64) volatile std::uint64_t hot = 0;
alignas(64) headrace::Atomic<std::uint64_t> locked{0};

template <int kStores, int kLocked, int kOthers>
void by_memcpy(Pool& pool) {
  const std::size_t at = pool.next();
  std::memcpy(pool.target.data() + at, pool.source.data() + at, pool.byte_count);
  for (int i = 0; i < kLocked; ++i) locked.fetch_add_relaxed(1);  // Relaxed: only its cost matters.
#pragma GCC unroll 200
  for (int i = 0; i < kStores; ++i) hot = at;
  std::uint64_t value = at;
#pragma GCC unroll 200
  for (int i = 0; i < kOthers; ++i) {
    ++value;
    benchmark::DoNotOptimize(value);
  }
}

void by_run(Pool& pool) {
  const std::size_t at = pool.next();
  Completion end;
  const std::span<const std::byte> source(pool.source);
  if (pool.engine->run(Operation::copy(std::span(pool.target).subspan(at, pool.byte_count),
                                       source.subspan(at, pool.byte_count)),
                       end) != Submit::accepted) {
    std::abort();
  }
  benchmark::DoNotOptimize(end);
}

template <void (*kCopy)(Pool&)>
double ns_of(Pool& pool) {
  const std::size_t times = std::max<std::size_t>(50, 400'000 / pool.byte_count);
  const Clock::time_point begun = Clock::now();
  for (std::size_t i = 0; i < times; ++i) kCopy(pool);
  return std::chrono::duration<double, std::nano>(Clock::now() - begun).count() /
         static_cast<double>(times);
}

struct Subject {
  const char* name;
  double (*ns_of)(Pool& pool);
};
constexpr std::array<Subject, 8> kSubjects{{{"memcpy", &ns_of<&by_memcpy<0, 0, 0>>},
                                            {"locked4", &ns_of<&by_memcpy<0, 4, 0>>},
                                            {"others160", &ns_of<&by_memcpy<0, 0, 160>>},
                                            {"stores20", &ns_of<&by_memcpy<20, 0, 0>>},
                                            {"stores35", &ns_of<&by_memcpy<35, 0, 0>>},
                                            {"stores60", &ns_of<&by_memcpy<60, 0, 0>>},
                                            {"all", &ns_of<&by_memcpy<35, 4, 100>>},
                                            {"run", &ns_of<&by_run>}}};

void cold(benchmark::State& state) {
  const auto machine = headrace::topo::discover({.find_movers = false});
  if (!machine) return state.SkipWithError("no machine");
  auto engine = Engine::make(*machine, {.threads_per_node = 1, .devices = {.use = false}});
  if (!engine) return state.SkipWithError("no engine");
  static Pool pool;  // Once for all sizes: filling it takes a second.
  pool.at = 0;
  pool.engine = std::move(*engine);
  pool.byte_count = static_cast<std::size_t>(state.range(0));
  std::array<std::vector<double>, kSubjects.size()> more;
  std::size_t round = 0;
  for (auto each : state) {
    static_cast<void>(each);
    std::array<double, kSubjects.size()> times{};
    for (std::size_t k = 0; k < kSubjects.size(); ++k) {
      const std::size_t i = (k + round) % kSubjects.size();
      times[i] = kSubjects[i].ns_of(pool);
    }
    ++round;
    for (std::size_t i = 0; i < kSubjects.size(); ++i) {
      more[i].push_back(i == 0 ? times[0] : times[i] - times[0]);
    }
  }
  for (std::size_t i = 0; i < kSubjects.size(); ++i) {
    const std::string name = kSubjects[i].name + std::string(i == 0 ? "_ns" : "_more_ns");
    state.counters[name] = headrace::bench::quantile(more[i], 0.5);
    state.counters[name + "_low"] = headrace::bench::quantile(more[i], 0.25);
    state.counters[name + "_high"] = headrace::bench::quantile(more[i], 0.75);
  }
}

BENCHMARK(cold)->RangeMultiplier(2)->Range(256, 4096);

}  // namespace

BENCHMARK_MAIN();
