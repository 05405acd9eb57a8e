// SPDX-License-Identifier: Apache-2.0
// The vector kernels for any register width; avx2.cpp and avx512.cpp define the register. Not for
// other files: the generated code depends on the -m flags of the including file. For that reason
// everything is in an unnamed namespace and no std:: function is called.
#pragma once

#include <immintrin.h>

#include "kernels.hpp"

namespace headrace::pmem::detail {
namespace {

template <typename Vector, bool kStream>
void walk_lines(std::byte* target, const std::byte* source, std::size_t line_count,
                std::uint64_t* lanes, std::uint64_t line_index) {
  using Register = typename Vector::Register;
  constexpr std::size_t kCount = 64 / Vector::kBytes;
  Register sums[kCount];
  Register keys[kCount];
  const Register step = Vector::all(static_cast<long long>(kDigestStep));
  const Register start = Vector::all(static_cast<long long>(kDigestStep * line_index));
  for (std::size_t i = 0; i < kCount; ++i) {
    sums[i] = Vector::load(reinterpret_cast<const std::byte*>(lanes) + i * Vector::kBytes);
    keys[i] = Vector::add(
        Vector::load(reinterpret_cast<const std::byte*>(kDigestKeys) + i * Vector::kBytes), start);
  }
  for (std::size_t line = 0; line < line_count; ++line) {
    for (std::size_t i = 0; i < kCount; ++i) {
      const std::size_t offset = line * 64 + i * Vector::kBytes;
      const Register words = Vector::load(source + offset);
      if constexpr (kStream) Vector::stream(target + offset, words);
      const Register keyed = Vector::exclusive_or(words, keys[i]);
      sums[i] = Vector::add(sums[i], Vector::multiply_halves(keyed));
      sums[i] = Vector::add(sums[i], Vector::swap_neighbours(words));
      keys[i] = Vector::add(keys[i], step);
    }
  }
  for (std::size_t i = 0; i < kCount; ++i) {
    Vector::store(reinterpret_cast<std::byte*>(lanes) + i * Vector::kBytes, sums[i]);
  }
}

template <typename Vector>
void digest_lines(std::byte* target, const std::byte* source, std::size_t line_count,
                  std::uint64_t* lanes, std::uint64_t line_index) {
  if (target != nullptr) {
    walk_lines<Vector, true>(target, source, line_count, lanes, line_index);
  } else {
    walk_lines<Vector, false>(target, source, line_count, lanes, line_index);
  }
}

}  // namespace
}  // namespace headrace::pmem::detail
