// SPDX-License-Identifier: Apache-2.0
// Statistics by kind of operation: they equal the sums of the completions, whatever errors the
// device causes, in C++ and in C.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "emulated.hpp"
#include "headrace.h"

namespace headrace::engine::statistics_test {
namespace {

using emu::FaultKind;
using emu::FaultRule;
using test::Buffers;
using test::Emulated;
using test::make_emulated;

/// Larger than a transfer, so that a started operation may find the queue full.
constexpr std::size_t kBytes = 64U << 10U;
constexpr std::uint64_t kTransferMax = 4096;

template <typename Start>
Completion until_ended(Engine& engine, const Start& start) {
  Job job;
  Submit answer = Submit::full;
  while (answer == Submit::full) {
    answer = start(job);
    engine.poll();
  }
  EXPECT_EQ(answer, Submit::accepted) << name(answer);
  EXPECT_TRUE(job.wait_for(std::chrono::seconds(60)));
  return job.completion();
}

struct Trouble {
  const char* what;
  FaultRule rule;
  std::uint64_t OperationStatistics::* counted;
};

TEST(Statistics, EachTroubleIsCountedByKindAsTheCompletionsTell) {
  const std::array<Trouble, 3> troubles{{
      {"queue_full", {.kind = FaultKind::queue_full, .every = 3}, &OperationStatistics::retries},
      {"page_fault",
       {.kind = FaultKind::page_fault, .every = 3},
       &OperationStatistics::page_faults},
      {"status",
       {.kind = FaultKind::status, .every = 3, .raw_status = DSA_COMP_HW_ERR1},
       &OperationStatistics::fallbacks},
  }};
  for (const Trouble& trouble : troubles) {
    SCOPED_TRACE(trouble.what);
    const Emulated machine =
        make_emulated({.transfer_bytes_max = kTransferMax, .faults = test::script({trouble.rule})});
    Engine& engine = *machine.engine;
    Buffers buffers(kBytes);
    const std::array<Operation, 3> operations{Operation::copy(buffers.target, buffers.source),
                                              Operation::crc(buffers.source),
                                              Operation::compare(buffers.source, buffers.source)};
    std::array<OperationStatistics, kOperationKindCount + 1> told{};
    const auto note = [&](std::size_t kind, const Completion& end) {
      EXPECT_EQ(end.state, JobState::done);
      OperationStatistics& sums = told[kind];
      ++sums.jobs_done;
      sums.bytes += end.bytes_done;
      sums.bytes_by_device += end.bytes_by_device;
      sums.retries += end.retries;
      sums.page_faults += end.page_faults;
      sums.fallbacks += end.fell_back ? 1 : 0;
    };
    for (int round = 0; round < 5; ++round) {
      for (const Operation& operation : operations) {
        note(static_cast<std::size_t>(operation.kind()), until_ended(engine, [&](Job& job) {
               return engine.submit(job, operation, {.path = Path::dsa});
             }));
      }
      note(kOperationKindCount, until_ended(engine, [&](Job& job) {
             return engine.submit_batch(job, {operations, {}}, {.path = Path::dsa});
           }));
    }
    EXPECT_TRUE(buffers.equal());

    const EngineStatistics totals = engine.statistics();
    std::uint64_t fallback_count = 0;
    for (std::size_t kind = 0; kind < told.size(); ++kind) {
      SCOPED_TRACE(kind);
      const OperationStatistics& counted = totals.operations[kind];
      EXPECT_EQ(counted.jobs_done, told[kind].jobs_done);
      EXPECT_EQ(counted.bytes, told[kind].bytes);
      EXPECT_EQ(counted.bytes_by_device, told[kind].bytes_by_device);
      EXPECT_EQ(counted.retries, told[kind].retries);
      EXPECT_EQ(counted.page_faults, told[kind].page_faults);
      EXPECT_EQ(counted.fallbacks, told[kind].fallbacks);
      EXPECT_EQ(std::accumulate(counted.latency_counts.begin(), counted.latency_counts.end(),
                                std::uint64_t{0}),
                told[kind].jobs_done);
      EXPECT_EQ(counted.*trouble.counted > 0, told[kind].jobs_done > 0);
      fallback_count += counted.fallbacks;

      headrace_kind_statistics in_c{};
      ASSERT_TRUE(headrace_engine_kind_statistics(reinterpret_cast<headrace_engine*>(&engine),
                                                  static_cast<headrace_kind>(kind), &in_c));
      EXPECT_EQ(in_c.jobs_done, counted.jobs_done);
      EXPECT_EQ(in_c.bytes, counted.bytes);
      EXPECT_EQ(in_c.bytes_by_device, counted.bytes_by_device);
      EXPECT_EQ(in_c.retries, counted.retries);
      EXPECT_EQ(in_c.page_faults, counted.page_faults);
      EXPECT_EQ(in_c.fallbacks, counted.fallbacks);
      EXPECT_TRUE(std::ranges::equal(in_c.latency_counts, counted.latency_counts));
    }
    EXPECT_EQ(totals.jobs_fell_back, fallback_count);
  }
}

}  // namespace
}  // namespace headrace::engine::statistics_test
