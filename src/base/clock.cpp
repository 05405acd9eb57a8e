// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/clock.hpp"

namespace headrace {
namespace {

class SteadyClock final : public Clock {
 public:
  [[nodiscard]] std::chrono::nanoseconds now() const override {
    return std::chrono::steady_clock::now().time_since_epoch();
  }
};

}  // namespace

const Clock& steady_clock() {
  static const SteadyClock kClock;
  return kClock;
}

std::chrono::nanoseconds ManualClock::now() const {
  return std::chrono::nanoseconds(now_ns_.load_relaxed());  // Publishes nothing but itself.
}

void ManualClock::advance(std::chrono::nanoseconds by) {
  now_ns_.fetch_add_relaxed(by.count());  // Publishes nothing but itself.
}

}  // namespace headrace
