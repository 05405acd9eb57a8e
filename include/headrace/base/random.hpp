// SPDX-License-Identifier: Apache-2.0
// A small random number generator, always seeded, so that runs are repeatable.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "headrace/base/export.hpp"

namespace headrace {

/// xoshiro256** (Blackman and Vigna, 2018), seeded by splitmix64. Not for cryptography.
/// Satisfies std::uniform_random_bit_generator.
///
/// Threading: confined.
class HEADRACE_API Random {
 public:
  using result_type = std::uint64_t;
  explicit Random(std::uint64_t seed);
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return std::numeric_limits<result_type>::max(); }
  result_type operator()();
  /// Uniform in [0, bound); `bound` must not be 0.
  std::uint64_t below(std::uint64_t bound);
  /// True with probability `numerator / denominator`.
  bool chance(std::uint64_t numerator, std::uint64_t denominator) {
    return below(denominator) < numerator;
  }

 private:
  std::array<std::uint64_t, 4> state_;
};

}  // namespace headrace
