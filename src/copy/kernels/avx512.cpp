// SPDX-License-Identifier: Apache-2.0
// The AVX-512 family: registers of 64 bytes, which are whole lines. Compiled with -mavx512f, see
// src/copy/CMakeLists.txt.
#include "kernels.hpp"
#include "vector_compare.hpp"
#include "vector_fill.hpp"
#include "vector_move.hpp"

namespace headrace::copy::detail {
namespace {

struct HalfZmm {
  using Register = __m256i;
  static constexpr std::size_t kBytes = 32;
  static Register load(const std::byte* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static void store(std::byte* to, Register value) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value);
  }
};

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
  static void stream(std::byte* to, Register value) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), value);
  }
  static void fence() { _mm_sfence(); }
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
  static void move_less_than_one(std::byte* target, const std::byte* source,
                                 std::size_t byte_count) {
    if (byte_count >= HalfZmm::kBytes) {
      move_ends<Block<HalfZmm, 1>>(target, source, byte_count);
    } else {
      move_tiny(target, source, byte_count);
    }
  }
};

}  // namespace

void move_avx512_temporal(std::byte* target, const std::byte* source, std::size_t byte_count) {
  move_temporal<Zmm>(target, source, byte_count);
}

void move_avx512_nontemporal(std::byte* target, const std::byte* source, std::size_t byte_count) {
  move_nontemporal<Zmm>(target, source, byte_count);
}

void fill_avx512(std::byte* target, std::size_t byte_count, std::uint64_t low, std::uint64_t high) {
  fill_with<Zmm>(target, byte_count, low, high);
}

const FillKernels kFillAvx512{.plain = set_with<Zmm, Stores::plain>,
                              .prefetched = set_with<Zmm, Stores::prefetched>,
                              .touching = set_with<Zmm, Stores::touching>,
                              .nontemporal = set_with<Zmm, Stores::nontemporal>};
const CompareKernels kCompareAvx512{.plain = difference_with<Zmm, false>,
                                    .prefetched = difference_with<Zmm, true>};

}  // namespace headrace::copy::detail
