// SPDX-License-Identifier: Apache-2.0
#include "scan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "support/lineitem.hpp"
#include "support/seed.hpp"

namespace headrace::query::lab::scan_test {
namespace {

constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

bool is_set(const std::vector<std::uint64_t>& words, std::size_t row) {
  return ((words[row / kRowsPerWord] >> (row % kRowsPerWord)) & 1U) != 0;
}

TEST(Scan, SelectsTheSameRowsAsAPlainLoop) {
  const Q6Parameters parameters;
  for (const std::size_t row_count : {1U, 63U, 64U, 65U, 512U, 4099U}) {
    const test::Lineitem table = test::random_lineitem(row_count, test::seed() + row_count);
    std::vector<std::uint64_t> words(words_for(row_count), ~std::uint64_t{0});
    scan(parameters, table.columns(), words);
    for (std::size_t row = 0; row < words.size() * kRowsPerWord; ++row) {
      bool expected = false;
      if (row < row_count) {
        const Q6Columns all = table.columns();
        const Q6Columns one{all.ship_date.subspan(row, 1), all.discount.subspan(row, 1),
                            all.quantity.subspan(row, 1), all.extended_price.subspan(row, 1)};
        expected = test::plain_q6(one, parameters).rows_selected == 1;
      }
      ASSERT_EQ(is_set(words, row), expected) << "row " << row << " of " << row_count;
    }
  }
}

TEST(Scan, BoundsAreInclusiveWhereTheQuerySaysSo) {
  const Q6Parameters parameters;
  test::Lineitem table = test::random_lineitem(64, test::seed());
  std::fill(table.ship_date.begin(), table.ship_date.end(), parameters.ship_date_begin);
  std::fill(table.discount.begin(), table.discount.end(), parameters.discount_min);
  std::fill(table.quantity.begin(), table.quantity.end(), parameters.quantity_below - 1);
  table.ship_date[1] = parameters.ship_date_begin - 1;
  table.ship_date[2] = parameters.ship_date_end;
  table.ship_date[3] = parameters.ship_date_end - 1;
  table.discount[4] = parameters.discount_min - 1;
  table.discount[5] = parameters.discount_max;
  table.discount[6] = parameters.discount_max + 1;
  table.quantity[7] = parameters.quantity_below;
  table.discount[8] = kMin;
  table.discount[9] = kMax;
  table.quantity[10] = kMin;
  table.quantity[11] = kMax;
  table.ship_date[12] = std::numeric_limits<std::int32_t>::min();
  table.ship_date[13] = std::numeric_limits<std::int32_t>::max();
  std::uint64_t expected = ~std::uint64_t{0};
  for (const unsigned row : {1U, 2U, 4U, 6U, 7U, 8U, 9U, 11U, 12U, 13U}) {
    expected &= ~(std::uint64_t{1} << row);
  }
  std::vector<std::uint64_t> words(1);
  scan(parameters, table.columns(), words);
  EXPECT_EQ(words[0], expected);
}

TEST(Scan, NoRowsGiveNoWords) {
  scan({}, {}, {});
  ExactSum sum;
  EXPECT_EQ(aggregate({}, {}, {}, sum), 0U);
  EXPECT_EQ(sum.value(), 0);
}

TEST(ExactSum, IsExactUpToBothEndsAndSaysWhenItDoesNotFit) {
  ExactSum sum;
  EXPECT_EQ(sum.value(), 0);
  sum.add_product(kMax, 1);
  EXPECT_EQ(sum.value(), kMax);
  sum.add_product(1, 1);
  EXPECT_EQ(sum.value(), std::nullopt);
  sum.add_product(-1, 1);
  EXPECT_EQ(sum.value(), kMax);
  sum.add_product(kMin, 1);
  EXPECT_EQ(sum.value(), -1);
  sum.add_product(kMin, 1);
  EXPECT_EQ(sum.value(), std::nullopt);
  sum.add_product(1, 1);
  EXPECT_EQ(sum.value(), kMin);
}

TEST(ExactSum, SurvivesProductsWhoseSumNeedsMoreThan128Bits) {
  ExactSum sum;
  for (int i = 0; i < 8; ++i) sum.add_product(kMin, kMin);  // 8 * 2^126 = 2^129
  EXPECT_EQ(sum.value(), std::nullopt);
  ExactSum back;
  for (int i = 0; i < 8; ++i) {  // -8 * (2^126 - 2^63)
    back.add_product(kMin, kMax);
    back.add_product(kMin, 1);
  }
  sum.add(back);
  EXPECT_EQ(sum.value(), 0);
}

}  // namespace
}  // namespace headrace::query::lab::scan_test
