// SPDX-License-Identifier: Apache-2.0
// The AVX2 family: registers of 32 bytes. Compiled with -mavx2, see src/copy/CMakeLists.txt.
#include <immintrin.h>

#include "kernels.hpp"
#include "vector_compare.hpp"
#include "vector_fill.hpp"

namespace headrace::copy::detail {
namespace {

struct Ymm {
  using Register = __m256i;
  static constexpr std::size_t kBytes = 32;
  static Register load(const std::byte* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static Register repeat(std::uint64_t low, std::uint64_t high) {
    return _mm256_set_epi64x(static_cast<std::int64_t>(high), static_cast<std::int64_t>(low),
                             static_cast<std::int64_t>(high), static_cast<std::int64_t>(low));
  }
  static void store(std::byte* to, Register value) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value);
  }
  static void store_aligned(std::byte* to, Register value) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(to), value);
  }
  static void stream(std::byte* to, Register value) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), value);
  }
  static void fence() { _mm_sfence(); }
  static std::uint32_t unlike(const std::byte* left, const std::byte* right) {
    return ~static_cast<std::uint32_t>(
        _mm256_movemask_epi8(_mm256_cmpeq_epi8(load(left), load(right))));
  }
  static std::size_t place(std::uint32_t unlike, const std::byte* /*left*/,
                           const std::byte* /*right*/) {
    return static_cast<std::size_t>(__builtin_ctz(unlike));
  }
  static bool turn_differs(const std::byte* left, const std::byte* right) {
    Register sum = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (std::size_t at = 0; at < kTurnBytes; at += kBytes) {
      sum = _mm256_or_si256(sum, _mm256_xor_si256(load(left + at), load(right + at)));
    }
    return _mm256_testz_si256(sum, sum) == 0;
  }
};

}  // namespace

void fill_avx2(std::byte* target, std::size_t byte_count, std::uint64_t low, std::uint64_t high) {
  fill_with<Ymm>(target, byte_count, low, high);
}

const Fill set_avx2 = set_with<Ymm, Stores::plain>;
const Fill set_avx2_prefetched = set_with<Ymm, Stores::prefetched>;
const Fill set_avx2_touching = set_with<Ymm, Stores::touching>;
const Fill set_avx2_nontemporal = set_with<Ymm, Stores::nontemporal>;
const FirstDifference difference_avx2 = difference_with<Ymm>;

}  // namespace headrace::copy::detail
