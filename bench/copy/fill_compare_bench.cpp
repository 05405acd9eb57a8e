// SPDX-License-Identifier: Apache-2.0
// Question: which fill and compare kernels are faster than the C library's memset and memcmp, at
// which length? ('headrace tune' chooses the ones to use.)
//
// Method. As copy_bench: batches by a variant and by the C library alternate, in processor time;
// reports the ratio of the medians (below 1: faster than the C library) and quartiles of the single
// ratios. hot: one place (compare: one pair) repeatedly; cold: places of a pool of 256 MiB, far
// apart. Compared bytes are equal, which takes longest, or differ early, in byte 20, which is most
// common in programs. Without HEADRACE_BENCH_FULL the sizes are too small for meaningful figures.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "headrace/copy/fill_compare.hpp"
#include "measure.hpp"

namespace {

std::size_t pool_bytes() {
  return !headrace::bench::is_full() ? std::size_t{2} << 20U : std::size_t{256} << 20U;
}

std::byte* pool() {
  static auto* const made = [] {
    void* const bytes = std::aligned_alloc(4096, 2 * pool_bytes());
    if (bytes == nullptr) std::abort();
    std::memset(bytes, 1, 2 * pool_bytes());
    return static_cast<std::byte*>(bytes);
  }();
  return made;
}

using headrace::copy::CompareKernel;
using headrace::copy::Fill;
using headrace::copy::FillKernel;
using headrace::copy::FirstDifference;

/// Calls `work(left, right)` on the places of a batch and times it.
template <typename Work>
double batch_ns(bool cold, std::size_t byte_count, std::size_t& slot, Work work) {
  const std::size_t batch_bytes = std::size_t{1} << (cold ? 18U : 20U);
  const std::size_t batch_count = std::max<std::size_t>(1, batch_bytes / byte_count);
  const std::size_t slot_bytes = std::max<std::size_t>(byte_count, 4096);
  const std::size_t slot_count = pool_bytes() / slot_bytes;
  const double begin_ns = headrace::bench::now_ns();
  for (std::size_t i = 0; i < batch_count; ++i) {
    // An odd stride visits every slot before repeating one, each far from the one before.
    if (cold) slot = (slot + (slot_count * 5 / 8 | 1U)) % slot_count;
    work(pool() + slot * slot_bytes, pool() + pool_bytes() + slot * slot_bytes);
  }
  return headrace::bench::now_ns() - begin_ns;
}

template <typename Baseline, typename Subject>
void measure(benchmark::State& state, bool cold, std::size_t byte_count, Baseline baseline,
             Subject subject) {
  std::size_t slot = 0;
  batch_ns(cold, byte_count, slot, baseline);
  batch_ns(cold, byte_count, slot, subject);
  headrace::bench::take_turns(
      state, [&] { return batch_ns(cold, byte_count, slot, subject); },
      [&] { return batch_ns(cold, byte_count, slot, baseline); });
}

void add_fill(const std::string& name, bool cold, std::size_t byte_count, Fill fill) {
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
    const auto filling = [byte_count](Fill by) {
      return [=](std::byte* target, std::byte* /*other*/) { by(target, 1, byte_count); };
    };
    measure(state, cold, byte_count, filling(&std::memset), filling(fill));
  })->UseManualTime();
}

void add_compare(const std::string& name, bool cold, std::size_t same_bytes, std::size_t byte_count,
                 FirstDifference find) {
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
    // Early differences exist only in the first pair of places, where a hot batch stays.
    std::byte* const right = pool() + pool_bytes();
    if (same_bytes < byte_count) right[same_bytes] = std::byte{2};
    const auto by_libc = [&](const std::byte* one, const std::byte* other) {
      const bool differs = std::memcmp(one, other, byte_count) != 0;
      if (differs != (same_bytes < byte_count)) state.SkipWithError("compared wrongly");
    };
    const auto by_kernel = [&](const std::byte* one, const std::byte* other) {
      if (find(one, other, byte_count) != same_bytes) state.SkipWithError("compared wrongly");
    };
    measure(state, cold, byte_count, by_libc, by_kernel);
    if (same_bytes < byte_count) right[same_bytes] = std::byte{1};
  })->UseManualTime();
}

void register_all() {
  const bool full = headrace::bench::is_full();
  constexpr std::size_t kEarly = 20;
  for (const char* const where : {"hot", "cold", "early"}) {
    const bool cold = std::string_view(where) == "cold";
    const bool early = std::string_view(where) == "early";
    for (unsigned bits = 6; bits <= (full ? 26U : 12U); ++bits) {
      const std::size_t byte_count = std::size_t{1} << bits;
      const auto name = [&](const char* what, std::string_view subject) {
        return fmt::format("{}/{}/{}/{}", what, where, byte_count, subject);
      };
      for (std::size_t i = 0; i < headrace::copy::kFillKernelCount && !early; ++i) {
        const auto kernel = static_cast<FillKernel>(i);
        const Fill fill = headrace::copy::fill_of(kernel);
        if (fill == nullptr) continue;
        add_fill(name("fill", headrace::copy::name(kernel)), cold, byte_count, fill);
      }
      for (std::size_t i = 0; i < headrace::copy::kCompareKernelCount; ++i) {
        const auto kernel = static_cast<CompareKernel>(i);
        const FirstDifference find = headrace::copy::first_difference_of(kernel);
        if (find == nullptr) continue;
        add_compare(name("compare", headrace::copy::name(kernel)), cold,
                    early ? kEarly : byte_count, byte_count, find);
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  register_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
