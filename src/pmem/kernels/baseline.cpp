// SPDX-License-Identifier: Apache-2.0
// Kernels for every processor: words, and the non-temporal stores of SSE2.
#include <immintrin.h>

#include <cstring>

#include "kernels.hpp"

namespace headrace::pmem::detail {

void digest_lines_baseline(std::byte* target, const std::byte* source, std::size_t line_count,
                           std::uint64_t* lanes, std::uint64_t line_index) {
  if (target != nullptr) stream_lines(target, source, line_count);
  for (std::size_t line = 0; line < line_count; ++line) {
    const std::uint64_t shift = kDigestStep * (line_index + line);
    for (std::size_t i = 0; i < 8; ++i) {
      std::uint64_t word = 0;
      std::memcpy(&word, source + line * 64 + i * 8, 8);
      const std::uint64_t keyed = word ^ (kDigestKeys[i] + shift);
      lanes[i] += (keyed & 0xffffffffU) * (keyed >> 32U);
      lanes[i ^ 1U] += word;
    }
  }
}

void stream_lines(std::byte* target, const std::byte* source, std::size_t line_count) {
  for (std::size_t offset = 0; offset < line_count * 64; offset += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(target + offset),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + offset)));
  }
}

void stream_words(std::byte* target, const std::byte* source) {
  for (std::size_t offset = 0; offset < 64; offset += 8) {
    long long word = 0;
    std::memcpy(&word, source + offset, 8);
    _mm_stream_si64(reinterpret_cast<long long*>(target + offset), word);
  }
}

}  // namespace headrace::pmem::detail
