// SPDX-License-Identifier: Apache-2.0
// Question: how fast is Cache compared with the cache as originally described (seed_cache.hpp)?
// Does not measure copying: the mover completes every request without touching it. Beside the
// seed's design memory for copies is an address, and nothing checks whether sources are mapped.
//
//   headrace-bench-cache ROUNDS ENTRIES OPERATIONS MILLION
//   headrace-bench-cache curve LIST ROUNDS MILLISECONDS
//   headrace-bench-cache count MODE COUNT
//
// `curve`: Cache only (curve.hpp), with the options that a program gets: memory of the system, here
// full of 64 MiB, and sources that are checked. `count`: the instructions, locked instructions,
// system calls and process-wide barriers of COUNT operations, by single steps. MODE: hit, miss (a
// new region each), miss_many (by access_many of 32); with the cache's own memory and regions of
// 64 KiB, empty_miss (there is room, in pages that were used before) and full_miss (each evicts).
//
// Method. A round runs each of the two once per scenario over the same operations, in an order that
// alternates. Time is divided by the operations of all threads: with two threads it is wall time
// from the common start until the last thread finishes; with one it is thread time, which other
// programs disturb less. Threads are pinned.
//   hit     accesses to ENTRIES entries of a filled cache, in a different random order per thread;
//           the handle is dropped at once.
//   miss    accesses to uncached regions; nothing is dropped meanwhile.
//   mixed   by two threads: 90 % Zipf-distributed (0.99) accesses to ENTRIES entries, 9 % to
//           uncached regions, 1 % invalidations of a popular entry.
// Memory: what malloc() says to have allocated for MILLION entries without handles.
// Prints one JSON document: nanoseconds per operation, one value per round.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <malloc.h>
#include <sys/mman.h>

#include "curve.hpp"
#include "headrace/cache/cache.hpp"
#include "headrace/engine/engine.hpp"
#include "measure.hpp"
#include "seed_cache.hpp"
#include "stepper.hpp"
#include "threads.hpp"

namespace {

using namespace headrace;

constexpr std::size_t kRegionBytes = 4096;
constexpr double kZipf = 0.99;

struct Scale {
  std::size_t round_count = 15;
  std::size_t entry_count = 4096;
  std::size_t operation_count = 400'000;
  std::size_t million = 1'000'000;
};

/// The region's bytes are never read.
std::span<const std::byte> region(std::size_t index, std::size_t byte_count = kRegionBytes) {
  return {reinterpret_cast<const std::byte*>((std::uintptr_t{1} << 44U) + index * byte_count),
          byte_count};
}

/// Completes every request at once without moving anything.
///
/// Threading: shared.
class NoMover final : public engine::Mover {
 public:
  [[nodiscard]] const engine::MoverInfo& info() const override { return info_; }
  [[nodiscard]] engine::Submit post(engine::Request& request) noexcept override {
    for (engine::Completion& end : request.batch().completions) {
      end = {.state = engine::JobState::done};
    }
    request.complete({.bytes_done = request.byte_count()});
    return engine::Submit::accepted;
  }
  void stop() noexcept override {}

 private:
  engine::MoverInfo info_{.name = "none", .batches = true};
};

/// An engine whose only mover is NoMover.
[[nodiscard]] std::unique_ptr<engine::Engine> engine_that_moves_nothing() {
  std::vector<std::unique_ptr<engine::Mover>> movers;
  movers.push_back(std::make_unique<NoMover>());
  return std::move(engine::Engine::make(std::move(movers)).value());
}

/// Returns addresses that are never read or written.
///
/// Threading: shared.
class NoMemory final : public cache::MemorySource {
 public:
  Result<std::span<std::byte>> allocate(std::size_t byte_count, NodeId /*node*/) override {
    return std::span(reinterpret_cast<std::byte*>(std::uintptr_t{1} << 45U), byte_count);
  }
  void free(std::span<std::byte> /*memory*/) noexcept override {}
};

/// The two caches behind a common interface.
class Ours {
 public:
  explicit Ours(std::shared_ptr<cache::MemorySource> memory = std::make_shared<NoMemory>(),
                Bytes capacity = Bytes(std::uint64_t{1} << 40U), bool check_sources = false) {
    const topo::Machine machine = topo::discover({.find_movers = false}).value();
    cache::CacheOptions options;
    options.placement = cache::placement::on(machine.nodes.front().id);
    options.memory = std::move(memory);
    options.capacity_per_node = capacity;
    options.check_sources = check_sources;
    cache_ = std::move(cache::Cache::make(machine, *engine_, std::move(options)).value());
  }
  const std::byte* access(std::size_t index) {
    const cache::Entry entry = cache_->access(region(index));
    return entry.data().data();
  }
  void invalidate(std::size_t index) { cache_->invalidate(region(index)); }
  [[nodiscard]] cache::Cache& cache() { return *cache_; }

 private:
  std::unique_ptr<engine::Engine> engine_ = engine_that_moves_nothing();
  std::unique_ptr<cache::Cache> cache_;
};

class Seeds {
 public:
  const std::byte* access(std::size_t index) {
    const auto bytes = region(index);
    const auto entry = cache_.access(bytes.data(), bytes.size());
    entry->wait_on_completion();
    return entry->data();
  }
  void invalidate(std::size_t index) { cache_.invalidate(region(index).data()); }

 private:
  bench::SeedCache cache_{1, [](int, const std::byte*, std::size_t) { return 0; },
                          [](int, int, std::size_t) { return std::vector<int>{0}; }};
};

/// An operation: the index of a region, or its complement to invalidate it.
using Operations = std::vector<std::uint32_t>;

Operations hits(const Scale& scale, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Operations order(scale.entry_count);
  std::iota(order.begin(), order.end(), 0U);
  Operations operations;
  while (operations.size() < scale.operation_count) {
    std::shuffle(order.begin(), order.end(), random);
    operations.insert(operations.end(), order.begin(), order.end());
  }
  operations.resize(scale.operation_count);
  return operations;
}

Operations misses(const Scale& scale, std::size_t thread_index) {
  const std::size_t count = scale.operation_count / 4;
  Operations operations(count);
  std::iota(operations.begin(), operations.end(),
            static_cast<std::uint32_t>(scale.entry_count + thread_index * count));
  std::shuffle(operations.begin(), operations.end(), std::mt19937_64(thread_index));
  return operations;
}

Operations mixed(const Scale& scale, std::size_t thread_index) {
  std::mt19937_64 random(thread_index + 100);
  std::vector<double> weights(scale.entry_count);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = std::pow(static_cast<double>(i + 1), -kZipf);
  }
  std::discrete_distribution<std::uint32_t> popular(weights.begin(), weights.end());
  std::uniform_int_distribution<int> percent(0, 99);
  const std::size_t first = scale.entry_count + (1 + thread_index) * scale.operation_count;
  Operations operations;
  for (std::size_t i = 0; i < scale.operation_count; ++i) {
    // Spread popular entries.
    const auto hot = static_cast<std::uint32_t>(popular(random) * 2654435761U % scale.entry_count);
    const int drawn = percent(random);
    operations.push_back(drawn < 90   ? hot
                         : drawn < 99 ? static_cast<std::uint32_t>(first + i)
                                      : ~hot);
  }
  return operations;
}

/// Runs each thread's operations; returns nanoseconds per operation over all threads.
template <typename Cache>
double run(Cache& cache, const std::vector<Operations>& per_thread) {
  double thread_ns = 0;
  std::size_t count = 0;
  for (const Operations& operations : per_thread) count += operations.size();
  const auto work = [&](std::size_t t, const std::function<void()>& wait_for_start) {
    // The first access of a thread may initialise thread-local state.
    std::uintptr_t sum = reinterpret_cast<std::uintptr_t>(cache.access(0));
    wait_for_start();
    const double begin_ns = headrace::bench::now_ns();
    for (const std::uint32_t operation : per_thread[t]) {
      if (static_cast<std::int32_t>(operation) < 0) {
        cache.invalidate(~operation);
      } else {
        sum += reinterpret_cast<std::uintptr_t>(cache.access(operation));
      }
    }
    if (t == 0) thread_ns = headrace::bench::now_ns() - begin_ns;
    if (sum == 1) std::fputs("", stderr);  // Uses the sum.
  };
  const std::chrono::duration<double, std::nano> wall =
      bench::run_together(per_thread.size(), work);
  return (per_thread.size() == 1 ? thread_ns : wall.count()) / static_cast<double>(count);
}

template <typename Cache>
void fill(Cache& cache, std::size_t entry_count) {
  for (std::size_t i = 0; i < entry_count; ++i) static_cast<void>(cache.access(i));
}

struct Scenario {
  std::string name;
  std::vector<Operations> per_thread;

  std::vector<double> fuerst_ns;
  std::vector<double> ours_ns;
};

template <typename Cache>
double measure(const Scenario& scenario, const Scale& scale) {
  // Otherwise the next large allocation would consolidate the small chunks that the other cache
  // freed, within this one's measured misses.
  ::malloc_trim(0);
  Cache cache;
  fill(cache, scale.entry_count);
  return run(cache, scenario.per_thread);
}

double bytes_per_entry(std::size_t million) {
  const auto allocated = [] {
    const auto all = ::mallinfo2();
    return all.uordblks + all.hblkhd;
  };
  Ours cache;
  const std::size_t before = allocated();
  fill(cache, million);
  return static_cast<double>(allocated() - before) / static_cast<double>(million);
}

/// One cache of all threads. Operations beyond the entries are accesses to uncached regions.
int print_curves(const bench::CurveSettings& settings) {
  static constexpr std::size_t kTurn = 128;
  static constexpr std::size_t kRegionsOfThread = std::size_t{1} << 24U;
  // Of a page of zeros.
  const std::size_t all = (settings.threads.back() + 1) * kRegionsOfThread * kRegionBytes;
  void* const wanted = const_cast<std::byte*>(region(0).data());
  if (::mmap(wanted, all, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) !=
      wanted) {
    bench::die("the sources cannot be mapped");
  }
  using Kind = Operations (*)(const Scale& scale, std::size_t thread_index);
  struct alignas(128) Thread {
    Operations operations;
    std::size_t at = 0;
    std::size_t uncached = 0;  ///< The next one.
  };
  const auto curve = [](const char* name, Kind kind) {
    const auto threads = std::make_shared<std::vector<Thread>>();
    const auto make = [=](std::size_t thread_count) -> bench::Curve::Turn {
      const Scale scale{.operation_count = 64 * 1024};
      while (threads->size() < thread_count) {
        const std::size_t index = threads->size();
        threads->push_back({kind(scale, index), 0, (index + 1) * kRegionsOfThread});
      }
      const auto cache = std::make_shared<Ours>(nullptr, Bytes(std::uint64_t{64} << 20U), true);
      fill(*cache, 4 * scale.entry_count);  // All that it has room for.
      return [=](std::size_t index) {
        Thread& thread = (*threads)[index];
        std::uintptr_t sum = 0;
        for (std::size_t i = 0; i < kTurn; ++i) {
          const std::uint32_t operation = thread.operations[thread.at++ % thread.operations.size()];
          if (static_cast<std::int32_t>(operation) < 0) {
            cache->invalidate(~operation);
          } else {
            const bool is_new = operation >= scale.entry_count;
            sum += reinterpret_cast<std::uintptr_t>(
                cache->access(is_new ? thread.uncached++ : operation));
          }
        }
        if (sum == 1) std::fputs("", stderr);  // Uses the sum.
        return kTurn;
      };
    };
    return bench::Curve{name, make};
  };
  const std::array curves{
      curve("hit", [](const Scale& scale, std::size_t index) { return hits(scale, index + 1); }),
      curve("miss", misses), curve("mixed", mixed)};
  return bench::print_curves(settings, curves);
}

constexpr std::size_t kMany = 32;

void miss_many(cache::Cache& cache, std::size_t first, std::size_t count) {
  std::vector<std::span<const std::byte>> regions(kMany);
  for (std::size_t i = 0; i < count; i += kMany) {
    for (std::size_t k = 0; k < kMany; ++k) regions[k] = region(first + i + k);
    static_cast<void>(cache.access_many(regions));
  }
}

/// Regions of 64 KiB, in the cache's own memory: after `filled` of them, `count` more.
constexpr std::size_t kLongBytes = std::size_t{64} << 10U;
constexpr std::size_t kFullCount = 4096;

void miss_long(cache::Cache& cache, std::size_t first, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    static_cast<void>(cache.access(region(first + i, kLongBytes)));
  }
}

/// Returns false if there is no such mode.
bool count(std::string_view mode, std::size_t count) {
  constexpr std::array kModes{"hit", "miss", "miss_many", "empty_miss", "full_miss"};
  if (std::ranges::find(kModes, mode) == kModes.end()) return false;
  const bool full = mode == "full_miss";
  const bool is_long = full || mode == "empty_miss";
  constexpr std::size_t kEntries = 4096;
  std::optional<Ours> ours;
  if (is_long) {
    ours.emplace(full ? nullptr : cache::recycled(cache::operating_system_pages()),
                 Bytes((full ? kFullCount : count) * kLongBytes));
    miss_long(ours->cache(), 0, full ? 2 * kFullCount : count);
    if (!full) ours->cache().clear();
  } else {
    fill(ours.emplace(), kEntries);
  }
  const auto work = [&] {
    if (mode == "miss_many") return miss_many(ours->cache(), 2 * kEntries, count);
    if (is_long) return miss_long(ours->cache(), 2 * kFullCount, count);
    if (mode == "miss") {
      for (std::size_t i = 0; i < count; ++i) ours->access(2 * kEntries + i);
    } else {
      for (std::size_t i = 0; i < count; ++i) ours->access(i * 31 % kEntries);
    }
  };
  bench::begin_stepping();
  work();
  const bench::Steps seen = bench::end_stepping();
  bench::print({{"operations", count},
                {"evictions", ours->cache().statistics().evictions},
                {"instructions", seen.instructions},
                {"locked_instructions", seen.locked},
                {"system_calls", seen.system_calls},
                {"barriers", seen.barriers}});
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Scale scale;
  const auto words = std::span(argv, static_cast<std::size_t>(argc)).subspan(1);
  const std::string_view mode = words.empty() ? "" : words[0];
  const auto fail = [] {
    std::fputs(
        "usage: headrace-bench-cache [ROUNDS [ENTRIES [OPERATIONS [MILLION]]]]\n"
        "       headrace-bench-cache curve LIST ROUNDS MILLISECONDS\n"
        "       headrace-bench-cache count hit|miss|miss_many|empty_miss|full_miss COUNT\n",
        stderr);
    return 2;
  };
  if (mode == "count") {
    return words.size() == 3 && count(words[1], bench::parse_number(words[2])) ? 0 : fail();
  }
  if (const auto settings = bench::curve_in(argc, argv)) return print_curves(*settings);
  std::size_t* const fields[] = {&scale.round_count, &scale.entry_count, &scale.operation_count,
                                 &scale.million};
  if (words.size() > std::size(fields)) return fail();
  for (std::size_t i = 0; i < words.size(); ++i) *fields[i] = bench::parse_number(words[i]);
  std::vector<Scenario> scenarios{
      {"hit_1t", {hits(scale, 1)}, {}, {}},
      {"hit_2t", {hits(scale, 1), hits(scale, 2)}, {}, {}},
      {"miss_1t", {misses(scale, 0)}, {}, {}},
      {"mixed_2t", {mixed(scale, 0), mixed(scale, 1)}, {}, {}},
  };
  for (std::size_t round = 0; round < scale.round_count; ++round) {
    for (Scenario& scenario : scenarios) {
      for (std::size_t turn = 0; turn < 2; ++turn) {
        if ((round + turn) % 2 == 0) {
          scenario.fuerst_ns.push_back(measure<Seeds>(scenario, scale));
        } else {
          scenario.ours_ns.push_back(measure<Ours>(scenario, scale));
        }
      }
    }
  }
  bench::Json series = bench::Json::object();
  for (const Scenario& scenario : scenarios) {
    series[scenario.name] = {{"fuerst_ns", bench::list_of(scenario.fuerst_ns)},
                             {"ours_ns", bench::list_of(scenario.ours_ns)}};
  }
  bench::print({{"round_count", scale.round_count},
                {"entry_count", scale.entry_count},
                {"operation_count", scale.operation_count},
                {"series", series},
                {"bytes_per_entry", bytes_per_entry(scale.million)}});
  return 0;
}
