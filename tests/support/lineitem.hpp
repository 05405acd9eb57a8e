// SPDX-License-Identifier: Apache-2.0
// Random columns of lineitem, and a reference implementation of query 6.
#pragma once

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "headrace/lab/q6.hpp"

namespace headrace::test {

struct Lineitem {
  std::vector<std::int32_t> ship_date;
  std::vector<std::int64_t> discount;
  std::vector<std::int64_t> quantity;
  std::vector<std::int64_t> extended_price;

  [[nodiscard]] query::lab::Q6Columns columns() const {
    return {ship_date, discount, quantity, extended_price};
  }
};

/// Rows with the value ranges of TPC-H, extended to negative values; about 2 % are selected.
inline Lineitem random_lineitem(std::size_t row_count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<std::int32_t> ship_date(8036, 10561);
  std::uniform_int_distribution<std::int64_t> discount(-1, 10);
  std::uniform_int_distribution<std::int64_t> quantity(-100, 5000);
  std::uniform_int_distribution<std::int64_t> extended_price(-100'000, 10'494'950);
  Lineitem table;
  for (std::size_t row = 0; row < row_count; ++row) {
    table.ship_date.push_back(ship_date(random));
    table.discount.push_back(discount(random));
    table.quantity.push_back(quantity(random));
    table.extended_price.push_back(extended_price(random));
  }
  return table;
}

struct Q6Answer {
  std::int64_t revenue = 0;
  std::uint64_t rows_selected = 0;
};

/// The sum must not overflow.
inline Q6Answer plain_q6(const query::lab::Q6Columns& columns,
                         const query::lab::Q6Parameters& parameters) {
  Q6Answer answer;
  for (std::size_t row = 0; row < columns.ship_date.size(); ++row) {
    if (columns.ship_date[row] >= parameters.ship_date_begin &&
        columns.ship_date[row] < parameters.ship_date_end &&
        columns.discount[row] >= parameters.discount_min &&
        columns.discount[row] <= parameters.discount_max &&
        columns.quantity[row] < parameters.quantity_below) {
      answer.revenue += columns.extended_price[row] * columns.discount[row];
      ++answer.rows_selected;
    }
  }
  return answer;
}

/// Parameters that select every row.
inline query::lab::Q6Parameters everything() {
  query::lab::Q6Parameters parameters;
  parameters.ship_date_begin = std::numeric_limits<std::int32_t>::min();
  parameters.ship_date_end = std::numeric_limits<std::int32_t>::max();
  parameters.discount_min = std::numeric_limits<std::int64_t>::min();
  parameters.discount_max = std::numeric_limits<std::int64_t>::max();
  parameters.quantity_below = std::numeric_limits<std::int64_t>::max();
  return parameters;
}

}  // namespace headrace::test
