// SPDX-License-Identifier: Apache-2.0
// Random batches of every kind of operation, some of which fail or report a difference, with fences
// in between: with every mover, and despite errors of the device, every completion, the job's
// result and every byte follow the rules of batches.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/completions.hpp"
#include "engine/software/software.hpp"
#include "support/operation_case.hpp"
#include "support/seed.hpp"
#include "unit/engine/emulated.hpp"

namespace headrace::engine {
namespace {

using emu::FaultKind;
using emu::FaultRule;
using headrace::test::OperationCase;
using test::Emulated;
using test::EmulatedOptions;
using test::make_emulated;

constexpr int kBatchCount = 60;
/// More than fit a list of the device.
constexpr std::size_t kOperationsMax = 40;
/// Beyond the largest transfer of some devices below.
constexpr std::size_t kBytesMax = 24U << 10U;

/// A batch with the memory of its operands.
class AnyBatch {
 public:
  explicit AnyBatch(Random& random) {
    const std::span<const OperationKind> kinds = headrace::test::kinds_with_operands();
    const std::size_t count = 1 + random.below(random.chance(1, 4) ? kOperationsMax : 8);
    for (std::size_t i = 0; i < count; ++i) {
      const Operation operation = any(kinds[random.below(kinds.size())], i, random);
      operations_.push_back(random.chance(1, 5) ? operation.fenced() : operation);
    }
  }

  [[nodiscard]] const std::vector<Operation>& operations() const { return operations_; }
  [[nodiscard]] std::vector<std::vector<std::byte>> snapshot() const {
    std::vector<std::vector<std::byte>> all;
    for (const OperationCase& one : cases_) all.push_back(one.snapshot());
    for (const std::vector<std::byte>& one : copies_) all.push_back(one);
    return all;
  }
  /// Describes the operation whose memory has byte `index` of a snapshot.
  [[nodiscard]] std::string shown(std::size_t index) const {
    return index < cases_.size() ? headrace::test::shown(cases_[index].operation())
                                 : "a copy of another's target";
  }
  void restore(const std::vector<std::vector<std::byte>>& snapshot) {
    std::size_t i = 0;
    for (OperationCase& one : cases_) one.restore(snapshot[i++]);
    for (std::vector<std::byte>& one : copies_) std::ranges::copy(snapshot[i++], one.begin());
  }

 private:
  Operation any(OperationKind kind, std::size_t index, Random& random) {
    if (random.chance(1, 16)) return Operation::no_op();
    if (random.chance(1, 32)) return Operation::drain();
    if (random.chance(1, 4) && !cases_.empty()) {
      // Written by an operation before the fence.
      const auto written = cases_[random.below(cases_.size())].operation().target();
      if (!written.empty()) {
        return Operation::copy(copies_.emplace_back(written.size()), written).fenced();
      }
    }
    const std::size_t most = random.chance(1, 3) ? kBytesMax : 2000;
    return cases_.emplace_back(kind, 1 + random.below(most), random, index).operation();
  }

  std::deque<OperationCase> cases_;
  std::deque<std::vector<std::byte>> copies_;
  std::vector<Operation> operations_;
};

/// Expected result of a batch, by operation.
struct Expected {
  std::vector<Completion> completions = {};
  Completion whole = {.state = JobState::done};

  explicit Expected(const std::vector<Operation>& operations) {
    bool broken = false;
    for (const Operation& operation : operations) {
      broken = broken || (operation.is_fenced() && whole.cause != Cause::none);
      const Completion outcome =
          broken ? Completion{.cause = Cause::fence_broken} : software::execute(operation);
      completions.push_back(detail::ended(outcome));
      whole.bytes_done += outcome.bytes_done;
      if (outcome.cause == Cause::none) continue;
      whole.state = JobState::failed;
      whole.cause = Cause::batch_failed;
    }
  }
};

/// The part of a completion that is the same for every mover.
std::string shown(const Completion& end) {
  std::string all = fmt::format("{} {} {} bytes", name(end.state), name(end.cause), end.bytes_done);
  const OperationResult& r = end.result;
  return all +
         fmt::format(" different {} at {} full {} delta {} crc {:#x} dif {:#x} tags {}/{} {}/{}",
                     r.different, r.difference_offset, r.record_full, r.delta_bytes, r.crc,
                     r.dif_errors, r.source_tags.reference, r.source_tags.application,
                     r.target_tags.reference, r.target_tags.application);
}

/// Submits batches to `engine` and compares.
void check(Engine& engine, Path path, int batch_count = kBatchCount) {
  for (int i = 0; i < batch_count && !::testing::Test::HasFailure(); ++i) {
    Random random(headrace::test::seed() + static_cast<std::uint64_t>(i));
    AnyBatch batch(random);
    SCOPED_TRACE(fmt::format("batch {} of {}", i, batch.operations().size()));
    const auto before = batch.snapshot();
    const Expected expected(batch.operations());
    const auto after = batch.snapshot();
    // Also without completions, which is a different path in a device's mover.
    for (const bool asked : {true, false}) {
      batch.restore(before);
      std::vector<Completion> completions(asked ? batch.operations().size() : 0);
      Job job;
      Submit answer = Submit::full;
      while (answer == Submit::full) {
        answer = engine.submit_batch(job, {batch.operations(), completions}, {.path = path});
        engine.poll();
      }
      ASSERT_EQ(answer, Submit::accepted) << name(answer);
      ASSERT_TRUE(job.wait_for(std::chrono::seconds(60)));
      const Completion& whole = job.completion();
      EXPECT_EQ(name(whole.state), name(expected.whole.state));
      EXPECT_EQ(name(whole.cause), name(expected.whole.cause));
      EXPECT_EQ(whole.bytes_done, expected.whole.bytes_done);
      for (std::size_t k = 0; k < completions.size(); ++k) {
        EXPECT_EQ(shown(completions[k]), shown(expected.completions[k]))
            << k << ": " << headrace::test::shown(batch.operations()[k])
            << (batch.operations()[k].is_fenced() ? ", fenced" : "");
      }
      const auto got = batch.snapshot();
      for (std::size_t k = 0; k < got.size(); ++k) {
        EXPECT_TRUE(got[k] == after[k]) << "bytes of " << batch.shown(k);
      }
    }
  }
}

TEST(BatchProperty, WorkersDoWhatTheRulesSay) {
  const auto engine = test::make_engine();
  check(*engine, Path::cpu);
}

TEST(BatchProperty, TheCallerDoesWhatTheRulesSayWhereNoMoverTakesBatches) {
  const auto engine = test::make_polled_engine(test::PolledMover::Options{});
  check(*engine, Path::automatic);
}

TEST(BatchProperty, ADeviceDoesWhatTheRulesSay) {
  for (const std::uint64_t transfer_max : {1U << 21U, 8192U, 512U, 64U}) {
    SCOPED_TRACE(transfer_max);
    const Emulated machine =
        make_emulated({.dedicated_count = 1, .transfer_bytes_max = transfer_max});
    // Hundreds of pieces per operation: a batch takes most of a second, during which the threads
    // sleep.
    const bool few = transfer_max == 64;
    check(*machine.engine, Path::dsa, few ? kBatchCount / 20 : kBatchCount);
    // A few random batches may all have an operation that the device cannot do.
    if (!few) {
      EXPECT_GT(machine.engine->statistics().bytes_by_device, 0U);
    }
  }
}

TEST(BatchProperty, ADeviceInTroubleDoesWhatTheRulesSay) {
  const emu::FaultScript trouble = test::script(
      {FaultRule{.kind = FaultKind::page_fault, .every = 5, .at_byte = 100},
       FaultRule{.kind = FaultKind::page_fault, .every = 11, .write = true},
       FaultRule{.kind = FaultKind::status, .every = 13, .raw_status = DSA_COMP_HW_ERR1},
       FaultRule{.kind = FaultKind::queue_full, .every = 3}});
  for (const FaultPolicy policy : {FaultPolicy::touch_and_resubmit, FaultPolicy::finish_on_cpu}) {
    const Emulated machine = make_emulated({.transfer_bytes_max = 8192,
                                            .entry_count = 4,
                                            .device = {.page_faults = policy},
                                            .faults = trouble});
    check(*machine.engine, Path::dsa);
  }
}

TEST(BatchProperty, AQueueThatTakesNothingMoreLeavesTheRulesAsTheyAre) {
  // Started operations are abandoned at once; the first descriptor of a batch is accepted.
  const Emulated machine = make_emulated(
      {.transfer_bytes_max = 8192,
       .device = {.timeout = std::chrono::seconds(60)},
       .faults = test::script({FaultRule{.kind = FaultKind::queue_full, .every = 2}})});
  check(*machine.engine, Path::dsa);
}

}  // namespace
}  // namespace headrace::engine
