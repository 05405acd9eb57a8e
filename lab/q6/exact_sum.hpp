// SPDX-License-Identifier: Apache-2.0
// ExactSum: a sum of products of 64-bit integers that cannot overflow.
#pragma once

#include <cstdint>
#include <optional>

namespace headrace::query::lab {

__extension__ using Int128 = __int128;
__extension__ using UInt128 = unsigned __int128;

/// Invariant: sum == high_ * 2^64 + low_. A product adds less than 2^64 to low_ and at most 2^62 in
/// magnitude to high_, so that neither overflows within 2^63 products.
///
/// Threading: confined.
class ExactSum {
 public:
  void add_product(std::int64_t a, std::int64_t b) {
    const Int128 product = static_cast<Int128>(a) * b;
    low_ += static_cast<std::uint64_t>(product);
    high_ += static_cast<std::int64_t>(product >> 64U);
  }
  void add(const ExactSum& other) {
    low_ += other.low_;
    high_ += other.high_;
  }
  /// The sum, if it fits.
  [[nodiscard]] std::optional<std::int64_t> value() const {
    const auto low = static_cast<std::int64_t>(static_cast<std::uint64_t>(low_));
    const Int128 high = high_ + static_cast<Int128>(low_ >> 64U);
    // It fits if the upper 64 bits do nothing but repeat the sign of the lower ones.
    if (high != (low < 0 ? -1 : 0)) return std::nullopt;
    return low;
  }

 private:
  UInt128 low_ = 0;
  Int128 high_ = 0;
};

}  // namespace headrace::query::lab
