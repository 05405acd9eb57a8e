// SPDX-License-Identifier: Apache-2.0
// Counter: a total that several threads add to.
#pragma once

#include <cstdint>

#include "headrace/base/atomic.hpp"

namespace headrace {

/// All accesses are relaxed: no addition is lost, and value() is a total that the counter had, but
/// a counter orders nothing. A thread that reads a new value may still read old values of other
/// memory, other counters included. Use it for statistics, not to synchronize.
///
/// Threading: shared.
class Counter {
 public:
  constexpr Counter() noexcept = default;
  void add(std::uint64_t count) noexcept { value_.fetch_add_relaxed(count); }
  /// As add(), cheaper, for a counter that only one thread ever adds to.
  [[gnu::always_inline]] void add_alone(std::uint64_t count) noexcept {
    value_.store_relaxed(value_.load_relaxed() + count);
  }
  [[nodiscard]] std::uint64_t value() const noexcept { return value_.load_relaxed(); }

 private:
  Atomic<std::uint64_t> value_{0};
};

}  // namespace headrace
