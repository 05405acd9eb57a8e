// SPDX-License-Identifier: Apache-2.0
// The monotonic clock of the system, in nanoseconds.
#pragma once

#include <chrono>

namespace headrace {

/// Threading: shared.
class SteadyClock {
 public:
  /// Time since an unspecified origin; never decreases.
  [[nodiscard]] static std::chrono::nanoseconds now() {
    return std::chrono::steady_clock::now().time_since_epoch();
  }
};
[[nodiscard]] constexpr SteadyClock steady_clock() {
  return {};
}

}  // namespace headrace
