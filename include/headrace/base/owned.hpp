// SPDX-License-Identifier: Apache-2.0
// Owned: one owner for a value that must be released once, such as a descriptor or mapped pages.
#pragma once

#include <concepts>
#include <utility>

namespace headrace {

/// Releases its value by `kRelease` at the end. Without a value it holds -1 if T is an integer,
/// otherwise T{}; `kRelease` must accept that.
///
/// Threading: confined.
template <typename T, void (*kRelease)(T) noexcept>
class Owned {
 public:
  Owned() = default;
  explicit Owned(T value) : value_(value) {}
  Owned(Owned&& other) noexcept : value_(other.release()) {}
  Owned& operator=(Owned&& other) noexcept {
    reset(other.release());
    return *this;
  }
  ~Owned() { kRelease(value_); }

  [[nodiscard]] T get() const { return value_; }
  [[nodiscard]] bool valid() const { return value_ != none(); }
  /// Gives the value away.
  [[nodiscard]] T release() { return std::exchange(value_, none()); }
  void reset(T value = none()) { kRelease(std::exchange(value_, value)); }

 private:
  static constexpr T none() {
    if constexpr (std::integral<T>) {
      return -1;
    } else {
      return T{};
    }
  }
  T value_ = none();
};

}  // namespace headrace
