// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/random.hpp"

#include <bit>

#include "headrace/base/check.hpp"

namespace headrace {

Random::Random(std::uint64_t seed) : state_{} {
  for (std::uint64_t& word : state_) {
    seed += 0x9e3779b97f4a7c15U;
    std::uint64_t mixed = seed;
    mixed = (mixed ^ (mixed >> 30U)) * 0xbf58476d1ce4e5b9U;
    mixed = (mixed ^ (mixed >> 27U)) * 0x94d049bb133111ebU;
    word = mixed ^ (mixed >> 31U);
  }
}

Random::result_type Random::operator()() {
  const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const std::uint64_t shifted = state_[1] << 17U;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

std::uint64_t Random::below(std::uint64_t bound) {
  HEADRACE_CHECK(bound != 0, "an empty range has no member");
  // Rejects the few values that would bias the remainder.
  const std::uint64_t uneven = (0 - bound) % bound;
  std::uint64_t value = (*this)();
  while (value < uneven) {
    value = (*this)();
  }
  return value % bound;
}

}  // namespace headrace
