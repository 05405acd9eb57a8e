// SPDX-License-Identifier: Apache-2.0
// Registers of 32 bytes: two stores fill the write-combining buffer of a line. Compiled with
// -mavx2, see src/pmem/CMakeLists.txt.
#include "vector_stream.hpp"

namespace headrace::pmem::detail {
namespace {

struct Ymm {
  using Register = __m256i;
  static constexpr std::size_t kBytes = 32;
  static Register load(const std::byte* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static void store(std::byte* to, Register value) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value);
  }
  static void stream(std::byte* to, Register value) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), value);
  }
  static Register all(long long value) { return _mm256_set1_epi64x(value); }
  static Register add(Register a, Register b) { return _mm256_add_epi64(a, b); }
  static Register exclusive_or(Register a, Register b) { return _mm256_xor_si256(a, b); }
  static Register multiply_halves(Register a) {
    return _mm256_mul_epu32(a, _mm256_srli_epi64(a, 32));
  }
  static Register swap_neighbours(Register a) { return _mm256_shuffle_epi32(a, 0x4e); }
};

}  // namespace

void digest_lines_avx2(std::byte* target, const std::byte* source, std::size_t line_count,
                       std::uint64_t* lanes, std::uint64_t line_index) {
  digest_lines<Ymm>(target, source, line_count, lanes, line_index);
}

}  // namespace headrace::pmem::detail
