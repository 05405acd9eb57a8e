// SPDX-License-Identifier: Apache-2.0
// The AVX-512 family: registers of 64 bytes, which are whole lines. Compiled with -mavx512f, see
// src/copy/CMakeLists.txt.
#include <immintrin.h>

#include "kernels.hpp"
#include "vector_compare.hpp"
#include "vector_fill.hpp"

namespace headrace::copy::detail {
namespace {

struct Zmm {
  using Register = __m512i;
  static constexpr std::size_t kBytes = 64;
  static Register load(const std::byte* from) { return _mm512_loadu_si512(from); }
  static Register repeat(std::uint64_t low, std::uint64_t high) {
    const auto one = static_cast<std::int64_t>(low);
    const auto two = static_cast<std::int64_t>(high);
    return _mm512_set_epi64(two, one, two, one, two, one, two, one);
  }
  static void store(std::byte* to, Register value) { _mm512_storeu_si512(to, value); }
  static void store_aligned(std::byte* to, Register value) { _mm512_store_si512(to, value); }
  /// Bit n: word n differs. Bytes would need instructions that are not AVX-512 F.
  static std::uint32_t unlike(const std::byte* left, const std::byte* right) {
    return _mm512_cmpneq_epi64_mask(load(left), load(right));
  }
  static std::size_t place(std::uint32_t unlike, const std::byte* left, const std::byte* right) {
    const auto at = 8 * static_cast<std::size_t>(__builtin_ctz(unlike));
    return at + difference_plainly(left + at, right + at, 8);
  }
  static bool turn_differs(const std::byte* left, const std::byte* right) {
    Register sum = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (std::size_t at = 0; at < kTurnBytes; at += kBytes) {
      sum = _mm512_or_si512(sum, _mm512_xor_si512(load(left + at), load(right + at)));
    }
    return _mm512_test_epi64_mask(sum, sum) != 0;
  }
};

}  // namespace

void fill_avx512(std::byte* target, std::size_t byte_count, std::uint64_t low, std::uint64_t high) {
  fill_with<Zmm>(target, byte_count, low, high);
}

const Fill set_avx512 = set_with<Zmm, Stores::plain>;
const FirstDifference difference_avx512 = difference_with<Zmm>;

}  // namespace headrace::copy::detail
