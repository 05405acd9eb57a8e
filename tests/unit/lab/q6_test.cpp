// SPDX-License-Identifier: Apache-2.0
// Query 6 without prefetching: the answer, its limits and refusals.
#include "headrace/lab/q6.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "support/lineitem.hpp"
#include "support/machines.hpp"
#include "support/seed.hpp"

namespace headrace::query::lab {
namespace {

constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

Result<Q6Result> run(const Q6Columns& columns, const Q6Parameters& parameters = {},
                     Q6Options options = {}) {
  options.prefetch = Prefetch::off;
  return run_q6(test::one_node_machine(), nullptr, columns, parameters, options);
}

test::Lineitem rows_of(std::size_t row_count, std::int64_t price, std::int64_t discount) {
  test::Lineitem table;
  table.ship_date.assign(row_count, 9000);
  table.discount.assign(row_count, discount);
  table.quantity.assign(row_count, 100);
  table.extended_price.assign(row_count, price);
  return table;
}

TEST(Q6, GivesTheAnswerOfAPlainLoopForAnyThreadsAndChunks) {
  for (const std::size_t row_count : {1U, 63U, 64U, 511U, 512U, 513U, 20'000U, 70'001U}) {
    const test::Lineitem table = test::random_lineitem(row_count, test::seed() + row_count);
    const test::Q6Answer expected = test::plain_q6(table.columns(), {});
    for (const std::size_t thread_count : {0U, 1U, 2U, 3U, 8U}) {
      for (const Bytes chunk : {kib(4), Bytes(5000), kib(64), mib(1), Bytes(~std::uint64_t{0})}) {
        const Result<Q6Result> result =
            run(table.columns(), {}, {.chunk = chunk, .thread_count = thread_count});
        ASSERT_TRUE(result.has_value()) << result.error().message();
        EXPECT_EQ(result->revenue, expected.revenue);
        EXPECT_EQ(result->rows_selected, expected.rows_selected);
        EXPECT_FALSE(result->prefetched);
        EXPECT_EQ(result->chunks_from_cache, 0U);
        EXPECT_GT(result->chunks_from_source, 0U);
        EXPECT_GT(result->time.count(), 0);
        EXPECT_TRUE(result->timeline.empty());
      }
    }
  }
}

TEST(Q6, CountsTwoColumnsPerChunk) {
  const test::Lineitem table = test::random_lineitem(512 * 3 + 1, test::seed());
  EXPECT_EQ(run(table.columns(), {}, {.chunk = kib(4)})->chunks_from_source, 8U);
}

TEST(Q6, NoRowsHaveNoRevenue) {
  const Result<Q6Result> result = run({});
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->revenue, 0);
  EXPECT_EQ(result->rows_selected, 0U);
}

TEST(Q6, SelectsAllRowsOrNone) {
  const test::Lineitem table = test::random_lineitem(10'000, test::seed());
  const Q6Parameters all = test::everything();
  const Result<Q6Result> whole = run(table.columns(), all, {.chunk = kib(4)});
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(whole->rows_selected, 10'000U);
  EXPECT_EQ(whole->revenue, test::plain_q6(table.columns(), all).revenue);
  Q6Parameters none;
  none.ship_date_end = none.ship_date_begin;
  const Result<Q6Result> nothing = run(table.columns(), none, {.chunk = kib(4)});
  ASSERT_TRUE(nothing.has_value());
  EXPECT_EQ(nothing->rows_selected, 0U);
  EXPECT_EQ(nothing->revenue, 0);
}

TEST(Q6, ASumThatDoesNotFitIsAnErrorAndNotAWrongNumber) {
  const test::Lineitem table = rows_of(2, kMax, 5);
  EXPECT_EQ(run(table.columns()).error().code, Code::out_of_range);
  const test::Lineitem lowest = rows_of(3000, kMin, kMin);
  EXPECT_EQ(run(lowest.columns(), test::everything(), {.chunk = kib(4)}).error().code,
            Code::out_of_range);
}

TEST(Q6, OnlyTheTotalHasToFit) {
  test::Lineitem table = rows_of(2048, kMax, 7);
  for (std::size_t row = 1024; row < 2048; ++row) table.extended_price[row] = -kMax;
  table.extended_price[2047] = -kMax + 3;
  const Result<Q6Result> result = run(table.columns(), {}, {.chunk = kib(4), .thread_count = 4});
  ASSERT_TRUE(result.has_value()) << result.error().message();
  EXPECT_EQ(result->revenue, 21);
}

TEST(Q6, ReachesBothEndsOfTheRange) {
  test::Lineitem table = rows_of(64, 0, 1);
  Q6Parameters parameters;
  parameters.discount_min = 1;
  table.extended_price[63] = kMax;
  EXPECT_EQ(run(table.columns(), parameters)->revenue, kMax);
  table.extended_price[63] = kMin;
  EXPECT_EQ(run(table.columns(), parameters)->revenue, kMin);
}

TEST(Q6, ColumnsOfDifferentLengthAreRefusedWithTheirLengths) {
  test::Lineitem table = test::random_lineitem(100, test::seed());
  table.quantity.pop_back();
  const Result<Q6Result> result = run(table.columns());
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, Code::invalid_argument);
  EXPECT_NE(result.error().message().find("quantity 99"), std::string::npos);
}

TEST(Q6, ChunksUnderFourKibibytesAreRefused) {
  const test::Lineitem table = test::random_lineitem(100, test::seed());
  for (const Bytes chunk : {Bytes(0), Bytes(4095)}) {
    EXPECT_EQ(run(table.columns(), {}, {.chunk = chunk}).error().code, Code::invalid_argument);
  }
}

TEST(Q6, PrefetchingWithoutACacheIsRefusedAndAutomaticGoesWithout) {
  const test::Lineitem table = test::random_lineitem(100, test::seed());
  const topo::Machine machine = test::two_tier_machine(NodeId(0), NodeId(1));
  EXPECT_EQ(run_q6(machine, nullptr, table.columns(), {}, {.prefetch = Prefetch::on}).error().code,
            Code::invalid_argument);
  const Result<Q6Result> result = run_q6(machine, nullptr, table.columns(), {}, {});
  ASSERT_TRUE(result.has_value());
  EXPECT_FALSE(result->prefetched);
}

TEST(Q6, MoreThreadsThanChunksAreNotStarted) {
  const test::Lineitem table = test::random_lineitem(1000, test::seed());
  const Result<Q6Result> result =
      run(table.columns(), {},
          {.chunk = kib(4), .thread_count = 1'000'000'000, .record_timeline = true});
  ASSERT_TRUE(result.has_value()) << result.error().message();
  for (const Q6Event& event : result->timeline) EXPECT_LT(event.worker_index, 2U);
}

TEST(Q6, NamesItsOptions) {
  EXPECT_EQ(name(Prefetch::automatic), "auto");
  EXPECT_EQ(name(Pipeline::aggregate), "aggregate");
}

}  // namespace
}  // namespace headrace::query::lab
