// SPDX-License-Identifier: Apache-2.0
// The two halves of query 6 on one chunk: scan finds the selected rows, aggregate adds them up.
// Plain functions on plain memory; schedule.hpp decides which thread runs them, and when.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "exact_sum.hpp"
#include "headrace/lab/q6.hpp"

namespace headrace::query::lab {

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
