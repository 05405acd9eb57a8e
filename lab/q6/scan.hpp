// SPDX-License-Identifier: Apache-2.0
// The two halves of query 6 on one chunk: scan finds the selected rows, aggregate adds them up.
// Plain functions on plain memory; schedule.hpp decides which thread runs them, and when.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "headrace/lab/q6.hpp"

namespace headrace::query::lab {

__extension__ using Int128 = __int128;
__extension__ using UInt128 = unsigned __int128;

/// A sum of products of 64-bit integers that cannot overflow.
///
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

inline constexpr std::size_t kRowsPerWord = 64;
constexpr std::size_t words_for(std::size_t row_count) {
  return row_count / kRowsPerWord + (row_count % kRowsPerWord != 0 ? 1 : 0);
}

/// Selects among all rows of `columns`: bit j of `words[i]` is row 64 i + j. `words` holds
/// words_for(rows); bits beyond the rows are 0.
void scan(const Q6Parameters& parameters, const Q6Columns& columns, std::span<std::uint64_t> words);

/// Adds price * discount of the selected rows to `sum`; returns how many there are. Prices and
/// discounts of rows that are not selected are not touched.
[[nodiscard]] std::uint64_t aggregate(std::span<const std::uint64_t> words,
                                      std::span<const std::int64_t> extended_price,
                                      std::span<const std::int64_t> discount, ExactSum& sum);

}  // namespace headrace::query::lab
