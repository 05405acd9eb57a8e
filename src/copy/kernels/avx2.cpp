// SPDX-License-Identifier: Apache-2.0
// The AVX2 family: registers of 32 bytes. Compiled with -mavx2, see src/copy/CMakeLists.txt.
#include "kernels.hpp"
#include "vector_fill.hpp"
#include "vector_move.hpp"

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
  static void move_less_than_one(std::byte* target, const std::byte* source,
                                 std::size_t byte_count) {
    move_tiny(target, source, byte_count);
  }
};

}  // namespace

void move_avx2_temporal(std::byte* target, const std::byte* source, std::size_t byte_count) {
  move_temporal<Ymm>(target, source, byte_count);
}

void move_avx2_nontemporal(std::byte* target, const std::byte* source, std::size_t byte_count) {
  move_nontemporal<Ymm>(target, source, byte_count);
}

void fill_avx2(std::byte* target, std::size_t byte_count, std::uint64_t low, std::uint64_t high) {
  fill_with<Ymm>(target, byte_count, low, high);
}

}  // namespace headrace::copy::detail
