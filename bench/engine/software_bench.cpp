// SPDX-License-Identifier: Apache-2.0
// Is any operation by a processor slower than what the C library or ISA-L does for it?
//
// A round does the same work on the same memory by both in turn, for some microseconds each, so
// that what else the machine does meets both alike. Reported are `vs`, the median over all rounds
// of their time by ours (1: as fast, more: faster), its quartiles, and `ours_ns` per call. What has
// no counterpart in one call is compared with the calls that one would make: dualcast with two
// copies, copy with checksum with a copy and a checksum, a delta with the comparison that finds
// nothing. `run` is the same copy by Engine::run, `run_cold` that of memory which is in no cache;
// `more_ns` is what ours takes more. Argument: bytes.
#include <benchmark/benchmark.h>
#include <isa-l/crc.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "engine/software/software.hpp"
#include "headrace/engine/engine.hpp"

namespace {

using headrace::engine::Completion;
using headrace::engine::DifBlock;
using headrace::engine::Engine;
using headrace::engine::kDifFieldBytes;
using headrace::engine::Operation;
using headrace::engine::Submit;
using Clock = std::chrono::steady_clock;

/// Of one side in one round.
constexpr double kRoundNs = 20'000;

struct Memory {
  explicit Memory(std::size_t size)
      : byte_count(size), source(room(size)), target(room(size)), second(room(size)) {
    const std::size_t all = size + size / 8;
    for (std::byte* const first : {paged(source), paged(target), paged(second)}) {
      for (std::size_t i = 0; i < all; ++i) first[i] = static_cast<std::byte>(i * 31 + (i >> 9U));
    }
  }
  /// With integrity fields, and to be put at the beginning of a page.
  static std::size_t room(std::size_t size) { return size + size / 8 + 2 * 4096; }
  static std::byte* paged(std::vector<std::byte>& bytes) {
    auto* const first = bytes.data();
    return first + (4096 - reinterpret_cast<std::uintptr_t>(first) % 4096);
  }
  [[nodiscard]] std::span<std::byte> from(std::size_t size) { return {paged(source), size}; }
  [[nodiscard]] std::span<std::byte> to(std::size_t size) { return {paged(target), size}; }
  [[nodiscard]] std::span<std::byte> other(std::size_t size) { return {paged(second), size}; }
  std::size_t byte_count;
  std::vector<std::byte> source;
  std::vector<std::byte> target;
  std::vector<std::byte> second;
};

double at_quantile(std::vector<double>& values, double quantile) {
  const auto place = static_cast<std::ptrdiff_t>(quantile * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + place, values.end());
  return values[static_cast<std::size_t>(place)];
}

template <typename Call>
double ns_per_call(const Call& call, std::size_t count) {
  const Clock::time_point begin = Clock::now();
  for (std::size_t i = 0; i < count; ++i) {
    call();
    benchmark::ClobberMemory();
  }
  const std::chrono::duration<double, std::nano> taken = Clock::now() - begin;
  return taken.count() / static_cast<double>(count);
}

template <typename Ours, typename Theirs>
void compare(benchmark::State& state, const Ours& ours, const Theirs& theirs) {
  const double once = std::max({ns_per_call(ours, 3), ns_per_call(theirs, 3), 1.0});
  const auto count = std::max(std::size_t{1}, static_cast<std::size_t>(kRoundNs / once));
  std::vector<double> ratios;
  std::vector<double> times;
  std::vector<double> more;
  bool first = false;
  for (auto _ : state) {
    // Who begins changes, so that neither always finds what the other left.
    first = !first;
    const double before = first ? ns_per_call(ours, count) : 0;
    const double their_ns = ns_per_call(theirs, count);
    const double our_ns = first ? before : ns_per_call(ours, count);
    ratios.push_back(their_ns / our_ns);
    times.push_back(our_ns);
    more.push_back(our_ns - their_ns);
  }
  state.counters["vs"] = at_quantile(ratios, 0.5);
  state.counters["vs_low"] = at_quantile(ratios, 0.25);
  state.counters["vs_high"] = at_quantile(ratios, 0.75);
  state.counters["ours_ns"] = at_quantile(times, 0.5);
  state.counters["more_ns"] = at_quantile(more, 0.5);
}

void execute(const Operation& operation) {
  benchmark::DoNotOptimize(headrace::engine::software::execute(operation));
}

unsigned char* data(std::span<std::byte> bytes) {
  return reinterpret_cast<unsigned char*>(bytes.data());
}

std::uint32_t sum(std::span<std::byte> bytes) {
  return crc32_iscsi(data(bytes), static_cast<int>(bytes.size()), ~0U);
}

/// By a pointer that the compiler does not know, or it would compare once for all rounds.
int compared(std::span<std::byte> one, std::span<std::byte> other) {
  const std::byte* first = one.data();
  benchmark::DoNotOptimize(first);
  return std::memcmp(first, other.data(), one.size());
}

std::size_t size_of(const benchmark::State& state) {
  return static_cast<std::size_t>(state.range(0));
}

void copy(benchmark::State& state) {
  const std::size_t size = size_of(state);
  Memory memory(size);
  const Operation operation = Operation::copy(memory.to(size), memory.from(size));
  compare(
      state, [&] { execute(operation); },
      [&] { std::memmove(memory.to(size).data(), memory.from(size).data(), size); });
}

/// Copies from everywhere in `pool_bytes` to everywhere in as many, one after the other.
void run_in_pool(benchmark::State& state, std::size_t pool_bytes) {
  const std::size_t size = size_of(state);
  Memory memory(pool_bytes);
  const auto machine = headrace::topo::discover({.find_movers = false});
  if (!machine) return state.SkipWithError("no machine");
  auto engine = Engine::make(*machine, {.threads_per_node = 1, .devices = {.use = false}});
  if (!engine) return state.SkipWithError("no engine on this machine");
  const std::size_t place_count = pool_bytes / size;
  std::size_t turn = 0;
  const auto next = [&] {
    turn = turn + 1 == place_count ? 0 : turn + 1;
    return turn * size;
  };
  compare(
      state,
      [&] {
        const std::size_t at = next();
        Completion end;
        if ((*engine)->run(Operation::copy(memory.to(pool_bytes).subspan(at, size),
                                           memory.from(pool_bytes).subspan(at, size)),
                           end) != Submit::accepted) {
          std::abort();
        }
        benchmark::DoNotOptimize(end);
      },
      [&] {
        const std::size_t at = next();
        std::memcpy(memory.to(pool_bytes).data() + at, memory.from(pool_bytes).data() + at, size);
      });
}

void run_of_copy(benchmark::State& state) {
  run_in_pool(state, size_of(state));
}

void run_of_cold_copy(benchmark::State& state) {
  constexpr std::size_t kNoCacheHolds = std::size_t{64} << 20U;
  run_in_pool(state, std::max(kNoCacheHolds, size_of(state)));
}

void fill(benchmark::State& state) {
  const std::size_t size = size_of(state);
  Memory memory(size);
  const Operation operation = Operation::fill(memory.to(size), 0x0102030405060708);
  compare(
      state, [&] { execute(operation); }, [&] { std::memset(memory.to(size).data(), 7, size); });
}

void compare_equal(benchmark::State& state) {
  const std::size_t size = size_of(state);
  Memory memory(size);
  const Operation operation = Operation::compare(memory.to(size), memory.from(size));
  compare(
      state, [&] { execute(operation); },
      [&] { benchmark::DoNotOptimize(compared(memory.to(size), memory.from(size))); });
}

void compare_pattern(benchmark::State& state) {
  const std::size_t size = size_of(state);
  Memory memory(size);
  std::memset(memory.from(size).data(), 7, size);
  std::memset(memory.to(size).data(), 7, size);
  const Operation operation = Operation::compare_pattern(memory.from(size), 0x0707070707070707);
  compare(
      state, [&] { execute(operation); },
      [&] { benchmark::DoNotOptimize(compared(memory.to(size), memory.from(size))); });
}

void create_delta(benchmark::State& state) {
  const std::size_t size = std::min(size_of(state), headrace::engine::kDeltaBytesMax);
  Memory memory(size);
  const Operation operation =
      Operation::create_delta(memory.other(4096), memory.to(size), memory.from(size));
  compare(
      state, [&] { execute(operation); },
      [&] { benchmark::DoNotOptimize(compared(memory.to(size), memory.from(size))); });
}

void dualcast(benchmark::State& state) {
  const std::size_t size = size_of(state);
  Memory memory(size);
  const Operation operation =
      Operation::dualcast(memory.to(size), memory.other(size), memory.from(size));
  compare(
      state, [&] { execute(operation); },
      [&] {
        std::memcpy(memory.to(size).data(), memory.from(size).data(), size);
        std::memcpy(memory.other(size).data(), memory.from(size).data(), size);
      });
}

void crc(benchmark::State& state) {
  const std::size_t size = size_of(state);
  Memory memory(size);
  const Operation operation = Operation::crc(memory.from(size));
  compare(
      state, [&] { execute(operation); },
      [&] { benchmark::DoNotOptimize(sum(memory.from(size))); });
}

void copy_crc(benchmark::State& state) {
  const std::size_t size = size_of(state);
  Memory memory(size);
  const Operation operation = Operation::copy_crc(memory.to(size), memory.from(size));
  compare(
      state, [&] { execute(operation); },
      [&] {
        std::memcpy(memory.to(size).data(), memory.from(size).data(), size);
        benchmark::DoNotOptimize(sum(memory.from(size)));
      });
}

/// Blocks in about `size` bytes; at least one.
struct Blocks {
  explicit Blocks(std::size_t size) : count(std::max(std::size_t{1}, size / 512)) {}
  std::size_t count;
  [[nodiscard]] std::size_t plain() const { return count * 512; }
  [[nodiscard]] std::size_t whole() const { return count * (512 + kDifFieldBytes); }
};

void dif_insert(benchmark::State& state) {
  const Blocks blocks(size_of(state));
  Memory memory(std::max(size_of(state), blocks.plain()));
  const Operation operation =
      Operation::dif_insert(memory.to(blocks.whole()), memory.from(blocks.plain()), {}, {});
  compare(
      state, [&] { execute(operation); },
      [&] {
        for (std::size_t i = 0; i < blocks.count; ++i) {
          unsigned char* const target = data(memory.to(blocks.whole())) + i * 520;
          const std::uint16_t guard =
              crc16_t10dif_copy(0, target, data(memory.from(blocks.plain())) + i * 512, 512);
          std::memcpy(target + 512, &guard, sizeof guard);
        }
      });
}

void dif_check(benchmark::State& state) {
  const Blocks blocks(size_of(state));
  Memory memory(std::max(size_of(state), blocks.plain()));
  execute(Operation::dif_insert(memory.to(blocks.whole()), memory.from(blocks.plain()), {}, {}));
  const Operation operation = Operation::dif_check(memory.to(blocks.whole()), {}, {});
  compare(
      state, [&] { execute(operation); },
      [&] {
        for (std::size_t i = 0; i < blocks.count; ++i) {
          const unsigned char* const block = data(memory.to(blocks.whole())) + i * 520;
          std::uint16_t guard = 0;
          std::memcpy(&guard, block + 512, sizeof guard);
          if (__builtin_bswap16(guard) != crc16_t10dif(0, block, 512)) std::abort();
        }
      });
}

void dif_strip(benchmark::State& state) {
  const Blocks blocks(size_of(state));
  Memory memory(std::max(size_of(state), blocks.plain()));
  execute(Operation::dif_insert(memory.to(blocks.whole()), memory.from(blocks.plain()), {}, {}));
  const Operation operation =
      Operation::dif_strip(memory.other(blocks.plain()), memory.to(blocks.whole()), {}, {});
  compare(
      state, [&] { execute(operation); },
      [&] {
        for (std::size_t i = 0; i < blocks.count; ++i) {
          benchmark::DoNotOptimize(
              crc16_t10dif_copy(0, data(memory.other(blocks.plain())) + i * 512,
                                data(memory.to(blocks.whole())) + i * 520, 512));
        }
      });
}

void dif_update(benchmark::State& state) {
  const Blocks blocks(size_of(state));
  Memory memory(std::max(size_of(state), blocks.plain()));
  execute(Operation::dif_insert(memory.to(blocks.whole()), memory.from(blocks.plain()), {}, {}));
  const Operation operation =
      Operation::dif_update(memory.other(blocks.whole()), memory.to(blocks.whole()), {}, {}, {});
  compare(
      state, [&] { execute(operation); },
      [&] {
        for (std::size_t i = 0; i < blocks.count; ++i) {
          unsigned char* const target = data(memory.other(blocks.whole())) + i * 520;
          const std::uint16_t guard =
              crc16_t10dif_copy(0, target, data(memory.to(blocks.whole())) + i * 520, 512);
          std::memcpy(target + 512, &guard, sizeof guard);
        }
      });
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  for (const std::int64_t byte_count : {64, 4 << 10, 64 << 10, 1 << 20}) {
    benchmark->Arg(byte_count);
  }
}

BENCHMARK(copy)->Apply(sizes);
BENCHMARK(run_of_copy)->Apply(sizes)->Name("run");
BENCHMARK(run_of_cold_copy)->Apply(sizes)->Name("run_cold");
BENCHMARK(fill)->Apply(sizes);
BENCHMARK(compare_equal)->Apply(sizes)->Name("compare");
BENCHMARK(compare_pattern)->Apply(sizes);
BENCHMARK(create_delta)->Apply(sizes);
BENCHMARK(dualcast)->Apply(sizes);
BENCHMARK(crc)->Apply(sizes);
BENCHMARK(copy_crc)->Apply(sizes);
BENCHMARK(dif_insert)->Apply(sizes);
BENCHMARK(dif_check)->Apply(sizes);
BENCHMARK(dif_strip)->Apply(sizes);
BENCHMARK(dif_update)->Apply(sizes);

}  // namespace

BENCHMARK_MAIN();
