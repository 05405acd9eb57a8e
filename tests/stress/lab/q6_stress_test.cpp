// SPDX-License-Identifier: Apache-2.0
// Queries share one cache while another thread keeps clearing it: many short chunks, copies that
// appear and disappear at any moment, and always the same answer.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "headrace/base/atomic.hpp"
#include "headrace/lab/q6.hpp"
#include "support/lineitem.hpp"
#include "support/machines.hpp"
#include "support/seed.hpp"

namespace headrace::query::lab {
namespace {

TEST(QueryStress, QueriesAgreeWhileTheirCopiesAreTakenAway) {
  constexpr int kRepeats = 20;
  const topo::Machine machine = test::one_node_machine();
  const test::Lineitem table = test::random_lineitem(30'000, test::seed());
  const test::Q6Answer expected = test::plain_q6(table.columns(), {});
  const auto engine = engine::Engine::make(machine).value();
  cache::CacheOptions cache_options;
  cache_options.placement = cache::placement::on(NodeId(0));
  cache_options.capacity_per_node = kib(256);  // Less than the 470 KiB of the two columns.
  const auto cache = cache::Cache::make(machine, *engine, cache_options).value();

  Atomic<std::uint32_t> queries_left{2};
  const auto query = [&](std::size_t thread_count) {
    for (int i = 0; i < kRepeats; ++i) {
      Q6Options options;
      options.prefetch = Prefetch::on;
      options.chunk = kib(4);
      options.thread_count = thread_count;
      options.record_timeline = i % 2 == 0;
      const Result<Q6Result> result = run_q6(machine, cache.get(), table.columns(), {}, options);
      ASSERT_TRUE(result.has_value()) << result.error().message();
      ASSERT_EQ(result->revenue, expected.revenue);
      ASSERT_EQ(result->rows_selected, expected.rows_selected);
    }
  };
  const auto finish = [&] {
    // relaxed: a count to stop by, nothing is published.
    queries_left.fetch_sub_relaxed(1);
  };
  std::thread first([&] { query(3), finish(); });
  std::thread second([&] { query(2), finish(); });
  // relaxed: as above.
  while (queries_left.load_relaxed() != 0) {
    cache->flush();
    cache->invalidate(std::as_bytes(table.columns().discount));
    cache->clear();
    std::this_thread::yield();
  }
  first.join();
  second.join();
}

}  // namespace
}  // namespace headrace::query::lab
