// SPDX-License-Identifier: Apache-2.0
// Time as a parameter: what waits or measures takes a Clock, so that tests decide when it is.
#pragma once

#include <chrono>

#include "headrace/base/atomic.hpp"
#include "headrace/base/export.hpp"

namespace headrace {

/// A monotonic clock. Instants are counted from an origin that means nothing.
///
/// Threading: shared.
class HEADRACE_API Clock {
 public:
  Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  virtual ~Clock() = default;
  [[nodiscard]] virtual std::chrono::nanoseconds now() const = 0;
};

/// The clock of the machine (CLOCK_MONOTONIC). Lives for ever.
[[nodiscard]] HEADRACE_API const Clock& steady_clock();

/// A clock that stands still until it is told otherwise.
///
/// Threading: shared.
class HEADRACE_API ManualClock final : public Clock {
 public:
  [[nodiscard]] std::chrono::nanoseconds now() const override;
  void advance(std::chrono::nanoseconds by);

 private:
  Atomic<std::int64_t> now_ns_{0};
};

}  // namespace headrace
