// SPDX-License-Identifier: Apache-2.0
// Registers of 64 bytes: one store fills the write-combining buffer of a line. Compiled with
// -mavx512f, see src/pmem/CMakeLists.txt.
#include "vector_stream.hpp"

namespace headrace::pmem::detail {
namespace {

struct Zmm {
  using Register = __m512i;
  static constexpr std::size_t kBytes = 64;
  static Register load(const std::byte* from) { return _mm512_loadu_si512(from); }
  static void store(std::byte* to, Register value) { _mm512_storeu_si512(to, value); }
  static void stream(std::byte* to, Register value) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), value);
  }
  static Register all(long long value) { return _mm512_set1_epi64(value); }
  static Register add(Register a, Register b) { return _mm512_add_epi64(a, b); }
  static Register exclusive_or(Register a, Register b) { return _mm512_xor_si512(a, b); }
  // Forms with an all-ones mask, which costs nothing: those without a mask pass an undefined
  // operand, and GCC 12 warns that it is uninitialised.
  static Register multiply_halves(Register a) {
    return _mm512_maskz_mul_epu32(0xff, a, _mm512_maskz_srli_epi64(0xff, a, 32));
  }
  static Register swap_neighbours(Register a) {
    return _mm512_maskz_shuffle_epi32(0xffff, a, static_cast<_MM_PERM_ENUM>(0x4e));
  }
};

}  // namespace

void digest_lines_avx512(std::byte* target, const std::byte* source, std::size_t line_count,
                         std::uint64_t* lanes, std::uint64_t line_index) {
  digest_lines<Zmm>(target, source, line_count, lanes, line_index);
}

}  // namespace headrace::pmem::detail
