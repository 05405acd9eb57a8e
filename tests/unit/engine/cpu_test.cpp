// SPDX-License-Identifier: Apache-2.0
// The engine with worker threads.
#include <gtest/gtest.h>

#include "fixtures.hpp"
#include "headrace/base/atomic.hpp"
#include "support/seed.hpp"

namespace headrace::engine {
namespace {

using test::Buffers;
using test::make_engine;
using test::this_machine;

TEST(CpuEngine, CopiesOfEverySizeAreCorrect) {
  const auto engine = make_engine({.threads_per_node = 2, .piece = kib(64)});
  Random random(headrace::test::seed());
  std::vector<std::size_t> sizes{
      0,     1,     2,     63,      64,      65,      4095,          4096,         4097,
      65535, 65536, 65537, 1 << 20, 1 << 21, 8 << 20, (8 << 20) - 1, (8 << 20) + 1};
  for (int i = 0; i < 40; ++i) sizes.push_back(random.below(std::uint64_t{1} << (1 + i % 22)));
  Job job;
  for (const std::size_t size : sizes) {
    Buffers buffers(size, random());
    ASSERT_EQ(engine->submit_copy(job, buffers.plan()), Submit::accepted);
    const Completion& completion = job.wait();
    ASSERT_EQ(completion.state, JobState::done);
    ASSERT_EQ(completion.bytes_done, size);
    ASSERT_FALSE(completion.fell_back);
    ASSERT_TRUE(buffers.equal()) << size;
  }
  EXPECT_EQ(engine->statistics().jobs_done, sizes.size());
}

}  // namespace
}  // namespace headrace::engine
