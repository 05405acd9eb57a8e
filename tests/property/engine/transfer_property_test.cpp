// SPDX-License-Identifier: Apache-2.0
// Operations of every kind and length on devices whose maximum transfer size is any power of two,
// down to far below a page and below the smallest split: same bytes and results as without the
// limit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

#include "engine/software/software.hpp"
#include "support/operation_case.hpp"
#include "support/seed.hpp"
#include "unit/engine/emulated.hpp"

namespace headrace::engine::transfer_property_test {
namespace {

using headrace::test::OperationCase;
using test::Emulated;
using test::make_emulated;

constexpr std::size_t kCaseCount = 100;
/// Per operation, to limit the running time.
constexpr std::size_t kDescriptorsMax = 200;

class Transfer : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(Transfer, OfAnyLengthGivesTheSame) {
  const std::uint64_t transfer_max = GetParam();
  const Emulated machine = make_emulated({.transfer_bytes_max = transfer_max});
  const auto kinds = headrace::test::kinds_with_operands();
  const std::size_t bytes_max =
      std::min<std::size_t>(transfer_max * kDescriptorsMax, OperationCase::kBytesMax);
  for (std::size_t i = 0; i < kCaseCount && !HasFailure(); ++i) {
    Random random(headrace::test::seed() + i);
    OperationCase made(kinds[i % kinds.size()], 1 + random.below(bytes_max), random);
    const Operation& operation = made.operation();
    SCOPED_TRACE(fmt::format("case {}: {}", i, headrace::test::shown(operation)));
    const std::vector<std::byte> before = made.snapshot();
    const Completion expected = software::execute(operation);
    const std::vector<std::byte> after = made.snapshot();
    made.restore(before);
    Job job;
    Submit answer = Submit::full;
    while (answer == Submit::full) {
      answer = machine.engine->submit(job, operation, {.path = Path::dsa});
      machine.engine->poll();
    }
    ASSERT_EQ(answer, Submit::accepted) << name(answer);
    ASSERT_TRUE(job.wait_for(std::chrono::seconds(60)));
    const Completion& end = job.completion();
    EXPECT_EQ(end.cause, expected.cause) << name(end.cause);
    EXPECT_EQ(end.result, expected.result);
    EXPECT_EQ(end.bytes_done, expected.bytes_done);
    EXPECT_LE(end.bytes_by_device, end.bytes_done);
    EXPECT_TRUE(made.snapshot() == after);
  }
  EXPECT_EQ(machine.engine->device_statistics().at(0).errors, 0U) << "descriptors that cannot be";
}

INSTANTIATE_TEST_SUITE_P(TransferProperty, Transfer,
                         ::testing::Values(1, 4, 16, 512, 2048, 4096, 65'536));

}  // namespace
}  // namespace headrace::engine::transfer_property_test
