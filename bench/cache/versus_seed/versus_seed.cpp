// SPDX-License-Identifier: Apache-2.0
// Question: how fast is Cache beside the cache as it was first described (seed_cache.hpp)?
// Not a measure of copying: the mover ends every share without touching it, the memory of copies is
// an address, and the regions are addresses that are never read. Nor of the kernel: mapping pages,
// and looking whether sources are mapped.
//
//   headrace-bench-cache ROUNDS ENTRIES OPERATIONS MILLION
//
// Method. A round runs each of the two once per scenario, in an order that changes from round to
// round, over the same operations. Time is divided by the operations of all threads together: with
// two threads that of the wall, from the moment both are ready until the last has done; with one
// that of the thread, which what else runs on the machine disturbs less. Threads are pinned.
//   hit     accesses over ENTRIES entries of a filled cache in a random order of each thread's own;
//           all threads use all entries; the handle is dropped at once.
//   miss    accesses to regions that are not there; nothing is dropped meanwhile.
//   mixed   by two threads: 90 % accesses whose popularity is zipfian (0.99) over ENTRIES entries,
//           9 % to regions that are not there, 1 % invalidations of a popular entry.
// Memory: bytes allocated for MILLION entries without handles, by counting operator new.
// Prints one JSON document: nanoseconds per operation, one value per round.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "headrace/cache/cache.hpp"
#include "headrace/engine/engine.hpp"
#include "no_copies.hpp"
#include "seed_cache.hpp"

namespace {

// relaxed throughout, here and below: totals, and starting shots without data.
headrace::Atomic<std::int64_t> bytes_live{0};
headrace::Atomic<std::uint64_t> allocation_count{0};
headrace::Atomic<bool> counting{false};

void* counted(void* memory) {
  if (memory == nullptr) std::abort();
  if (counting.load_relaxed()) {
    bytes_live.fetch_add_relaxed(static_cast<std::int64_t>(::malloc_usable_size(memory)));
    allocation_count.fetch_add_relaxed(1);
  }
  return memory;
}
void uncounted(void* memory) {
  if (memory != nullptr && counting.load_relaxed()) {
    bytes_live.fetch_sub_relaxed(static_cast<std::int64_t>(::malloc_usable_size(memory)));
  }
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t byte_count) {
  return counted(std::malloc(byte_count));
}
void* operator new(std::size_t byte_count, std::align_val_t alignment) {
  const auto align = static_cast<std::size_t>(alignment);
  return counted(std::aligned_alloc(align, (byte_count + align - 1) / align * align));
}
void operator delete(void* memory) noexcept {
  uncounted(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  uncounted(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  uncounted(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  uncounted(memory);
}

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

/// A region that is never read.
std::span<const std::byte> region(std::size_t index) {
  return {reinterpret_cast<const std::byte*>((std::uintptr_t{1} << 44U) + index * kRegionBytes),
          kRegionBytes};
}

/// The two caches behind one face.
class Ours {
 public:
  Ours() {
    const topo::Machine machine = topo::discover({.find_movers = false}).value();
    cache::CacheOptions options;
    options.placement = cache::placement::on(machine.nodes.front().id);
    options.memory = std::make_shared<bench::NoMemory>();
    options.check_sources = false;  // There are none.
    cache_ = std::move(cache::Cache::make(machine, *engine_, std::move(options)).value());
  }
  const std::byte* access(std::size_t index) {
    const cache::Entry entry = cache_->access(region(index));
    return entry.data().data();
  }
  void invalidate(std::size_t index) { cache_->invalidate(region(index)); }
  void clear() { cache_->clear(); }

 private:
  std::unique_ptr<engine::Engine> engine_ = bench::engine_that_moves_nothing();
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
  void clear() { cache_.clear(); }

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
    // Popular entries do not lie side by side.
    const auto hot = static_cast<std::uint32_t>(popular(random) * 2654435761U % scale.entry_count);
    const int drawn = percent(random);
    operations.push_back(drawn < 90   ? hot
                         : drawn < 99 ? static_cast<std::uint32_t>(first + i)
                                      : ~hot);
  }
  return operations;
}

void pin(std::size_t cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu % std::max(1U, std::thread::hardware_concurrency()), &set);
  ::pthread_setaffinity_np(::pthread_self(), sizeof(set), &set);
}

double thread_time_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

/// Runs each thread's operations; returns nanoseconds per operation of all together.
template <typename Cache>
double run(Cache& cache, const std::vector<Operations>& per_thread) {
  Atomic<std::size_t> ready{0};
  Atomic<bool> go{false};
  std::vector<std::chrono::steady_clock::time_point> ends(per_thread.size());
  double thread_ns = 0;
  std::vector<std::thread> threads;
  std::size_t count = 0;
  for (std::size_t t = 0; t < per_thread.size(); ++t) {
    count += per_thread[t].size();
    threads.emplace_back([&, t] {
      pin(t);
      // The first access of a thread may set something up.
      std::uintptr_t sum = reinterpret_cast<std::uintptr_t>(cache.access(0));
      ready.fetch_add_relaxed(1);
      while (!go.load_relaxed()) {
      }
      const double begin_ns = thread_time_ns();
      for (const std::uint32_t operation : per_thread[t]) {
        if (static_cast<std::int32_t>(operation) < 0) {
          cache.invalidate(~operation);
        } else {
          sum += reinterpret_cast<std::uintptr_t>(cache.access(operation));
        }
      }
      ends[t] = std::chrono::steady_clock::now();
      if (t == 0) thread_ns = thread_time_ns() - begin_ns;
      if (sum == 1) std::fputs("", stderr);  // The sum is used.
    });
  }
  while (ready.load_relaxed() != per_thread.size()) std::this_thread::yield();
  const auto begin = std::chrono::steady_clock::now();
  go.store_relaxed(true);
  for (std::thread& thread : threads) thread.join();
  if (per_thread.size() == 1) return thread_ns / static_cast<double>(count);
  const auto end = *std::max_element(ends.begin(), ends.end());
  return std::chrono::duration<double, std::nano>(end - begin).count() / static_cast<double>(count);
}

template <typename Cache>
void fill(Cache& cache, std::size_t entry_count) {
  for (std::size_t i = 0; i < entry_count; ++i) static_cast<void>(cache.access(i));
}

struct Scenario {
  std::string name;
  std::vector<Operations> per_thread;

  std::vector<double> seed_ns;
  std::vector<double> ours_ns;
};

template <typename Cache>
double measure(const Scenario& scenario, const Scale& scale) {
  // What the other one has left in the heap would be tidied up by the next allocation of a large
  // piece: the small pieces of the first design within the misses of the other.
  ::malloc_trim(0);
  Cache cache;
  fill(cache, scale.entry_count);
  return run(cache, scenario.per_thread);
}

template <typename Cache>
double bytes_per_entry(std::size_t million) {
  counting.store_relaxed(true);
  bytes_live.store_relaxed(0);
  double bytes = 0;
  {
    Cache cache;
    const std::int64_t before = bytes_live.load_relaxed();
    fill(cache, million);
    bytes = static_cast<double>(bytes_live.load_relaxed() - before) / static_cast<double>(million);
  }
  counting.store_relaxed(false);
  return bytes;
}

double allocations_per_hit(const Scale& scale) {
  Ours cache;
  fill(cache, scale.entry_count);
  const Operations operations = hits(scale, 1);
  static_cast<void>(cache.access(0));
  counting.store_relaxed(true);
  allocation_count.store_relaxed(0);
  for (const std::uint32_t index : operations) static_cast<void>(cache.access(index));
  counting.store_relaxed(false);
  return static_cast<double>(allocation_count.load_relaxed()) /
         static_cast<double>(operations.size());
}

std::string list(const std::vector<double>& values) {
  return fmt::format("[{:.2f}]", fmt::join(values, ", "));
}

bool parse(std::string_view text, std::size_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value > 0;
}

}  // namespace

int main(int argc, char** argv) {
  Scale scale;
  const std::span<char*> words(argv, static_cast<std::size_t>(argc));
  std::size_t* const fields[] = {&scale.round_count, &scale.entry_count, &scale.operation_count,
                                 &scale.million};
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (i > std::size(fields) || !parse(words[i], *fields[i - 1])) {
      std::fputs("usage: headrace-bench-cache [ROUNDS [ENTRIES [OPERATIONS [MILLION]]]]\n", stderr);
      return 2;
    }
  }
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
          scenario.seed_ns.push_back(measure<Seeds>(scenario, scale));
        } else {
          scenario.ours_ns.push_back(measure<Ours>(scenario, scale));
        }
      }
    }
  }
  std::string series;
  for (const Scenario& scenario : scenarios) {
    series +=
        fmt::format("{}\"{}\": {{\"seed_ns\": {}, \"ours_ns\": {}}}", series.empty() ? "" : ", ",
                    scenario.name, list(scenario.seed_ns), list(scenario.ours_ns));
  }
  fmt::print(
      "{{\"round_count\": {}, \"entry_count\": {}, \"operation_count\": {}, \"series\": {{{}}}, "
      "\"bytes_per_entry\": {:.1f}, \"bytes_per_entry_seed\": {:.1f}, \"entries_counted\": {}, "
      "\"allocations_per_hit\": {}}}\n",
      scale.round_count, scale.entry_count, scale.operation_count, series,
      bytes_per_entry<Ours>(scale.million), bytes_per_entry<Seeds>(scale.million), scale.million,
      allocations_per_hit(scale));
  return 0;
}
