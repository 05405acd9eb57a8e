// SPDX-License-Identifier: Apache-2.0
// The seed of this run: HEADRACE_SEED if it is set, else drawn once; main() prints it.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>

namespace headrace::test {

inline std::uint64_t seed() {
  static const std::uint64_t kSeed = [] {
    if (const char* given = std::getenv("HEADRACE_SEED"); given != nullptr) {
      return static_cast<std::uint64_t>(std::stoull(given));
    }
    std::random_device device;
    return (std::uint64_t{device()} << 32U) | device();
  }();
  return kSeed;
}

}  // namespace headrace::test
