// SPDX-License-Identifier: Apache-2.0
// Question: would memset and memcmp gain by being generated and tuned as copies are? Measures what
// the space of copies has in common with them: the register, prefetches, the string instruction,
// and stores that go past the caches, beside the C library's. Not for use: the heads and tails of
// these are whole vectors.
//
// Method. As copy_bench: batches by a variant and by the C library in turn, processor time; ratio
// of the medians (below 1: faster than the C library) and quartiles of the single ratios. hot: one
// place (of compare: one pair) again and again; cold: places of a pool of 256 MiB, far apart. What
// is compared is equal, which takes longest. Without HEADRACE_BENCH_FULL the sizes mean nothing.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

constexpr std::size_t kLine = 64;

std::size_t pool_bytes() {
  return std::getenv("HEADRACE_BENCH_FULL") == nullptr ? std::size_t{2} << 20U
                                                       : std::size_t{256} << 20U;
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

// A fill gives `value` to all bytes; a comparison is true if all are equal. Lengths are whole
// turns.
using Fill = void (*)(std::byte* target, std::size_t byte_count);
using Compare = bool (*)(const std::byte* left, const std::byte* right, std::size_t byte_count);

void fill_libc(std::byte* target, std::size_t byte_count) {
  std::memset(target, 1, byte_count);
}

bool compare_libc(const std::byte* left, const std::byte* right, std::size_t byte_count) {
  return std::memcmp(left, right, byte_count) == 0;
}

#if defined(__x86_64__)
void fill_string(std::byte* target, std::size_t byte_count) {
  asm volatile("rep stosb" : "+D"(target), "+c"(byte_count) : "a"(1) : "memory");
}

template <int kPrefetchLines>
[[gnu::target("avx2")]] void fill_ymm(std::byte* target, std::size_t byte_count) {
  const __m256i ones = _mm256_set1_epi8(1);
  for (std::size_t at = 0; at < byte_count; at += 4 * kLine) {
    if constexpr (kPrefetchLines != 0) {
      for (std::size_t i = 0; i < 4; ++i) {
        __builtin_prefetch(target + at + (kPrefetchLines + i) * kLine, 1);
      }
    }
    for (std::size_t i = 0; i < 4 * kLine; i += 32) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(target + at + i), ones);
    }
  }
}

[[gnu::target("avx512f,avx512bw")]] void fill_zmm(std::byte* target, std::size_t byte_count) {
  const __m512i ones = _mm512_set1_epi8(1);
  for (std::size_t at = 0; at < byte_count; at += 4 * kLine) {
    for (std::size_t i = 0; i < 4 * kLine; i += kLine) {
      _mm512_store_si512(target + at + i, ones);
    }
  }
}

[[gnu::target("avx2")]] void fill_past_caches(std::byte* target, std::size_t byte_count) {
  const __m256i ones = _mm256_set1_epi8(1);
  for (std::size_t at = 0; at < byte_count; at += 32) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(target + at), ones);
  }
  _mm_sfence();
}

template <int kPrefetchLines>
[[gnu::target("avx2")]] bool compare_ymm(const std::byte* left, const std::byte* right,
                                         std::size_t byte_count) {
  for (std::size_t at = 0; at < byte_count; at += 2 * kLine) {
    if constexpr (kPrefetchLines != 0) {
      for (std::size_t i = 0; i < 2; ++i) {
        __builtin_prefetch(left + at + (kPrefetchLines + i) * kLine);
        __builtin_prefetch(right + at + (kPrefetchLines + i) * kLine);
      }
    }
    __m256i unlike = _mm256_setzero_si256();
    for (std::size_t i = 0; i < 2 * kLine; i += 32) {
      const auto* const a = reinterpret_cast<const __m256i*>(left + at + i);
      const auto* const b = reinterpret_cast<const __m256i*>(right + at + i);
      unlike =
          _mm256_or_si256(unlike, _mm256_xor_si256(_mm256_loadu_si256(a), _mm256_loadu_si256(b)));
    }
    if (_mm256_testz_si256(unlike, unlike) == 0) return false;
  }
  return true;
}

[[gnu::target("avx512f,avx512bw")]] bool compare_zmm(const std::byte* left, const std::byte* right,
                                                     std::size_t byte_count) {
  for (std::size_t at = 0; at < byte_count; at += 2 * kLine) {
    const __m512i first =
        _mm512_xor_si512(_mm512_loadu_si512(left + at), _mm512_loadu_si512(right + at));
    const __m512i second = _mm512_xor_si512(_mm512_loadu_si512(left + at + kLine),
                                            _mm512_loadu_si512(right + at + kLine));
    const __m512i unlike = _mm512_or_si512(first, second);
    if (_mm512_test_epi8_mask(unlike, unlike) != 0) return false;
  }
  return true;
}
#endif

double processor_time_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

double quantile(std::vector<double> values, double share) {
  const auto rank = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + rank, values.end());
  return values[static_cast<std::size_t>(rank)];
}

/// Calls `work(left, right)` on the places of a batch and times it.
template <typename Work>
double batch_ns(bool cold, std::size_t byte_count, std::size_t& slot, Work work) {
  const std::size_t batch_bytes = std::size_t{1} << (cold ? 18U : 20U);
  const std::size_t batch_count = std::max<std::size_t>(1, batch_bytes / byte_count);
  const std::size_t slot_bytes = std::max<std::size_t>(byte_count, 4096);
  const std::size_t slot_count = pool_bytes() / slot_bytes;
  const double begin_ns = processor_time_ns();
  for (std::size_t i = 0; i < batch_count; ++i) {
    // Odd, so that every slot is met before one is met again; far from the one before.
    if (cold) slot = (slot + (slot_count * 5 / 8 | 1U)) % slot_count;
    work(pool() + slot * slot_bytes, pool() + pool_bytes() + slot * slot_bytes);
  }
  return processor_time_ns() - begin_ns;
}

template <typename Baseline, typename Subject>
void measure(benchmark::State& state, bool cold, std::size_t byte_count, Baseline baseline,
             Subject subject) {
  std::size_t slot = 0;
  batch_ns(cold, byte_count, slot, baseline);
  batch_ns(cold, byte_count, slot, subject);
  std::vector<double> baseline_ns;
  std::vector<double> subject_ns;
  std::vector<double> ratios;
  for ([[maybe_unused]] auto _ : state) {
    const bool first = ratios.size() % 2 == 1;
    if (first) subject_ns.push_back(batch_ns(cold, byte_count, slot, subject));
    baseline_ns.push_back(batch_ns(cold, byte_count, slot, baseline));
    if (!first) subject_ns.push_back(batch_ns(cold, byte_count, slot, subject));
    ratios.push_back(subject_ns.back() / baseline_ns.back());
    state.SetIterationTime((subject_ns.back() + baseline_ns.back()) * 1e-9);
  }
  state.counters["ratio"] = quantile(subject_ns, 0.5) / quantile(baseline_ns, 0.5);
  state.counters["ratio_q1"] = quantile(ratios, 0.25);
  state.counters["ratio_q3"] = quantile(ratios, 0.75);
}

void add_fill(const std::string& name, bool cold, std::size_t byte_count, Fill fill) {
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
    const auto filling = [byte_count](Fill by) {
      return [=](std::byte* target, std::byte* /*other*/) { by(target, byte_count); };
    };
    measure(state, cold, byte_count, filling(fill_libc), filling(fill));
  })->UseManualTime();
}

void add_compare(const std::string& name, bool cold, std::size_t byte_count, Compare compare) {
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
    const auto comparing = [byte_count, &state](Compare by) {
      return [=, &state](std::byte* left, std::byte* right) {
        if (!by(left, right, byte_count)) state.SkipWithError("equal bytes were found unequal");
      };
    };
    measure(state, cold, byte_count, comparing(compare_libc), comparing(compare));
  })->UseManualTime();
}

void register_all() {
  std::vector<std::pair<const char*, Fill>> fills = {{"libc", fill_libc}};
  std::vector<std::pair<const char*, Compare>> comparisons = {{"libc", compare_libc}};
#if defined(__x86_64__)
  __builtin_cpu_init();
  fills.emplace_back("rep_stosb", fill_string);
  if (__builtin_cpu_supports("avx2") != 0) {
    fills.emplace_back("ymm", fill_ymm<0>);
    fills.emplace_back("ymm_prefetch", fill_ymm<16>);
    fills.emplace_back("past_caches", fill_past_caches);
    comparisons.emplace_back("ymm", compare_ymm<0>);
    comparisons.emplace_back("ymm_prefetch", compare_ymm<8>);
  }
  if (__builtin_cpu_supports("avx512bw") != 0) {
    fills.emplace_back("zmm", fill_zmm);
    comparisons.emplace_back("zmm", compare_zmm);
  }
#endif
  const bool full = std::getenv("HEADRACE_BENCH_FULL") != nullptr;
  for (const bool cold : {false, true}) {
    for (unsigned bits = 8; bits <= (full ? 24U : 12U); bits += 2) {
      const std::size_t byte_count = std::size_t{1} << bits;
      const auto name = [&](const char* what, const char* subject) {
        return fmt::format("{}/{}/{}/{}", what, cold ? "cold" : "hot", byte_count, subject);
      };
      for (const auto& [subject, fill] : fills) {
        add_fill(name("fill", subject), cold, byte_count, fill);
      }
      for (const auto& [subject, compare] : comparisons) {
        add_compare(name("compare", subject), cold, byte_count, compare);
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
