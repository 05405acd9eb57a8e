// SPDX-License-Identifier: Apache-2.0
// CRC-32C of data while it is copied, by folding (Gopal et al., "Fast CRC Computation for Generic
// Polynomials Using PCLMULQDQ Instruction"). Compiled with -mvpclmulqdq.
#include <immintrin.h>

#include <array>

#include "software.hpp"

namespace headrace::engine::software {
namespace {

/// x^exponent modulo the polynomial, reflected, for a product of which bit 0 is not used.
constexpr std::int64_t power(unsigned exponent) {
  std::uint32_t value = 1U << 31U;
  for (; exponent != 0; --exponent) value = value >> 1U ^ (value % 2 * 0x82f63b78U);
  return std::int64_t{value} << 1U;
}

/// Moves the sum `kBits` further on, and adds what is there.
template <unsigned kBits>
__m512i fold(__m512i sum, __m512i data) {
  constexpr std::int64_t kLow = power(kBits + 32);
  constexpr std::int64_t kHigh = power(kBits - 32);
  const __m512i factors = _mm512_set4_epi64(kHigh, kLow, kHigh, kLow);
  const __m512i low = _mm512_clmulepi64_epi128(sum, factors, 0x00);
  const __m512i high = _mm512_clmulepi64_epi128(sum, factors, 0x11);
  return _mm512_xor_si512(_mm512_xor_si512(low, high), data);
}

}  // namespace

std::uint32_t sum_avx512(std::uint32_t state, std::byte* target,
                         std::span<const std::byte> source) noexcept {
  const auto load = [&](std::size_t at) {
    const __m512i data = _mm512_loadu_si512(source.data() + at);
    if (target != nullptr) _mm512_storeu_si512(target + at, data);
    return data;
  };
  __m512i first = _mm512_xor_si512(load(0), _mm512_maskz_set1_epi32(1, static_cast<int>(state)));
  __m512i second = load(64);
  __m512i third = load(128);
  __m512i fourth = load(192);
  for (std::size_t at = kFoldBytes; at < source.size(); at += kFoldBytes) {
    first = fold<2048>(first, load(at));
    second = fold<2048>(second, load(at + 64));
    third = fold<2048>(third, load(at + 128));
    fourth = fold<2048>(fourth, load(at + 192));
  }
  const __m512i sum = fold<512>(fold<512>(fold<512>(first, second), third), fourth);
  std::array<std::uint64_t, 8> words;
  _mm512_storeu_si512(words.data(), sum);
  std::uint64_t rest = 0;
  for (const std::uint64_t word : words) rest = _mm_crc32_u64(rest, word);
  return static_cast<std::uint32_t>(rest);
}

}  // namespace headrace::engine::software
