// SPDX-License-Identifier: Apache-2.0
// The mover of a DSA queue on the emulated device: moves and error handling.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <deque>
#include <thread>

#include "emulated.hpp"
#include "engine/software/software.hpp"
#include "headrace/base/atomic.hpp"
#include "headrace/platform/memory.hpp"
#include "headrace/platform/wait.hpp"
#include "support/watchdog.hpp"

namespace headrace::engine {
namespace {

using emu::FaultKind;
using emu::FaultRule;
using test::Buffers;
using test::Emulated;
using test::make_emulated;

std::vector<std::byte> random_bytes(std::size_t byte_count, std::uint64_t seed) {
  return Buffers(byte_count, seed).source;
}

Completion submit_and_wait(Engine& engine, const Operation& operation) {
  Job job;
  Submit answer = Submit::full;
  while (answer == Submit::full) {
    answer = engine.submit(job, operation, {.path = Path::dsa});
    engine.poll();
  }
  EXPECT_EQ(answer, Submit::accepted);
  EXPECT_TRUE(job.wait_for(std::chrono::seconds(60)));
  return job.completion();
}

DeviceStatistics totals(const Engine& engine) {
  DeviceStatistics sum;
  for (const DeviceStatistics& one : engine.device_statistics()) {
    sum.descriptors += one.descriptors;
    sum.retries += one.retries;
    sum.page_faults += one.page_faults;
    sum.errors += one.errors;
    sum.lost += one.lost;
    sum.bytes_on_cpu += one.bytes_on_cpu;
  }
  return sum;
}

TEST(Dsa, CopiesOfEverySizeAreTheDevices) {
  const Emulated machine = make_emulated({.dedicated_count = 1, .policy = movers::round_robin});
  for (const std::size_t byte_count : {std::size_t{1}, std::size_t{64}, std::size_t{4097},
                                       std::size_t{2U << 20U}, std::size_t{9'000'001}}) {
    for (int round = 0; round < 2; ++round) {
      Buffers buffers(byte_count, byte_count);
      const Completion end = submit_and_wait(
          *machine.engine, Operation::copy(buffers.target, buffers.source).into_cache());
      EXPECT_EQ(end.state, JobState::done);
      EXPECT_EQ(end.bytes_done, byte_count);
      // Unwritten pages may fault, and then a processor may help; never silently.
      EXPECT_TRUE(end.bytes_by_device == byte_count || end.fell_back);
      EXPECT_TRUE(buffers.equal());
    }
  }
  EXPECT_GT(machine.engine->statistics().bytes_by_device, 0U);
}

TEST(Dsa, LeastLoadedPassesOverABusyQueue) {
  std::size_t chosen = 0;
  const Emulated machine = make_emulated(
      {.device_count = 4,
       .entry_count = 32,
       .policy = [&](const MoveContext&, MoverChoice& choice) { choice.add(chosen); }});
  Engine& engine = *machine.engine;
  const MoverPolicy least_loaded = movers::least_loaded;
  std::deque<Buffers> buffers;
  std::deque<Job> jobs;
  // No thread polls yet, so each job stays with its mover.
  const auto submit = [&](const MoverPolicy* policy) {
    ASSERT_EQ(engine.submit_copy(jobs.emplace_back(), buffers.emplace_back(1000).plan(),
                                 {.policy = policy, .path = Path::dsa}),
              Submit::accepted);
  };
  const auto taken = [&] {
    std::vector<std::uint64_t> counts;
    for (const DeviceStatistics& one : engine.device_statistics())
      counts.push_back(one.descriptors);
    return counts;
  };
  for (const std::size_t index : {0U, 0U, 0U, 1U, 2U}) {
    chosen = index;
    submit(nullptr);
  }
  ASSERT_EQ(taken(), (std::vector<std::uint64_t>{3, 1, 1, 0}));
  submit(&least_loaded);
  EXPECT_EQ(taken(), (std::vector<std::uint64_t>{3, 1, 1, 1}));
  for (int turn = 0; turn < 6; ++turn) submit(&least_loaded);
  EXPECT_EQ(taken(), (std::vector<std::uint64_t>{3, 3, 3, 3}));
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_EQ(jobs[i].wait().state, JobState::done);
    EXPECT_TRUE(buffers[i].equal());
  }
}

TEST(Dsa, EveryOperationIsTheSameAsByAProcessor) {
  for (const std::uint64_t transfer_max : {std::uint64_t{1} << 21U, std::uint64_t{8192}}) {
    const Emulated machine = make_emulated({.transfer_bytes_max = transfer_max});
    constexpr std::size_t kLong = 50'000;
    const std::vector<std::byte> source = random_bytes(kLong, 1);
    const std::vector<std::byte> same = source;
    std::vector<std::byte> changed = source;
    changed[33'333] ^= std::byte{1};
    changed[40'001] ^= std::byte{1};
    std::vector<std::byte> target(kLong + 8 * 4096);
    std::vector<std::byte> record(1000);
    const std::span<const std::byte> all(source);
    const std::span<std::byte> out(target);
    const DifFormat format{.block = DifBlock::bytes_520, .invert_guard = true};
    const DifTarget tags{.tags = {7, 8, 0x0f0f}, .increment_application = true};
    std::vector<std::byte> fields(96 * 528);
    static_cast<void>(software::execute(
        Operation::dif_insert(fields, all.first(std::size_t{96} * 520), format, tags)));
    const DifSource check{.tags = {7, 8, 0x0f0f}, .increment_application = true};
    std::vector<std::byte> broken = fields;
    broken[70 * 528 + 1] ^= std::byte{4};
    const std::vector<Operation> operations{
        Operation::no_op(),
        Operation::drain(),
        Operation::copy(out.first(kLong), all),
        Operation::fill(out.first(kLong), 0x1122334455667788),
        Operation::fill(out.first(kLong), 0x1122334455667788, 0x99aabbccddeeff00),
        Operation::compare(all, changed),
        Operation::compare(all, same),
        Operation::compare_pattern(all, 5),
        Operation::create_delta(std::span(record).first(80), all.first(4096),
                                std::span(changed).subspan(32'768, 4096)),
        Operation::create_delta(record, all, changed),
        Operation::dualcast(out.first(8000), out.subspan(8192, 8000), all.first(8000)),
        Operation::crc(all),
        Operation::crc(all, {3, true, false}),
        Operation::copy_crc(out.first(kLong), all, {4, false, true}),
        Operation::dif_check(fields, format, check),
        Operation::dif_check(broken, format, check),
        Operation::dif_insert(out.first(96 * 528), all.first(std::size_t{96} * 520), format, tags),
        Operation::dif_strip(out.first(std::size_t{96} * 520), fields, format, check),
        Operation::dif_update(out.first(96 * 528), fields, format, check,
                              {.tags = {1, 2, 0}, .keep_guard = true}),
        Operation::cache_flush(out)};
    for (const Operation& operation : operations) {
      if (operation.validate() == Submit::misaligned) continue;
      ASSERT_EQ(operation.validate(), Submit::accepted) << name(operation.kind());
      std::fill(target.begin(), target.end(), std::byte{0});
      std::fill(record.begin(), record.end(), std::byte{0});
      const Completion expected = software::execute(operation);
      const std::vector<std::byte> expected_target = target;
      const std::vector<std::byte> expected_record = record;
      std::fill(target.begin(), target.end(), std::byte{0});
      std::fill(record.begin(), record.end(), std::byte{0});
      const Completion end = submit_and_wait(*machine.engine, operation);
      EXPECT_EQ(end.cause, expected.cause) << name(operation.kind());
      EXPECT_EQ(end.result, expected.result) << name(operation.kind());
      if (!expected.result.different || operation.byte_count() <= transfer_max) {
        EXPECT_EQ(end.bytes_done, expected.bytes_done) << name(operation.kind());
      }
      EXPECT_EQ(target, expected_target) << name(operation.kind());
      EXPECT_EQ(record, expected_record) << name(operation.kind());
    }
  }
}

TEST(Dsa, ABatchOfEverythingIsTheSameAsOneByOne) {
  const Emulated machine = make_emulated({.transfer_bytes_max = 65'536});
  const std::vector<std::byte> source = random_bytes(200'000, 2);
  std::vector<std::byte> target(source.size());
  std::vector<Operation> operations;
  std::size_t byte_count = 0;
  for (std::size_t i = 0; i < 100; ++i) {
    const std::size_t length = i == 50 ? 100'000 : 1000;  // Does not fit a descriptor.
    operations.push_back(Operation::copy(std::span(target).subspan(i * 1000, length),
                                         std::span(source).subspan(i * 1000, length)));
    if (i == 50) operations.back() = operations.back().fenced();
    byte_count += length;
  }
  operations.push_back(Operation::crc(std::span(source).first(1000)));
  operations.push_back(Operation::drain());
  operations.push_back(Operation::no_op());
  std::vector<Completion> completions(operations.size());
  Job job;
  ASSERT_EQ(machine.engine->submit_batch(job, {operations, completions}, {.path = Path::dsa}),
            Submit::accepted);
  ASSERT_TRUE(job.wait_for(std::chrono::seconds(60)));
  EXPECT_EQ(job.completion().state, JobState::done) << name(job.completion().cause);
  EXPECT_EQ(job.completion().bytes_done, byte_count + 1000);
  EXPECT_TRUE(std::equal(target.begin(), target.begin() + 150'000, source.begin()));
  for (const Completion& one : completions) EXPECT_EQ(one.state, JobState::done);
  EXPECT_FALSE(completions[50].fell_back);
  EXPECT_EQ(completions[50].bytes_by_device, 100'000U);
  EXPECT_EQ(job.completion().bytes_by_device, byte_count + 1000);
  EXPECT_EQ(completions[100].result.crc, software::execute(operations[100]).result.crc);
  EXPECT_LT(totals(*machine.engine).descriptors, 20U);
}

TEST(Dsa, AFenceInABatchOfTheDeviceHoldsBackWhatIsBehindAFailure) {
  const Emulated machine = make_emulated({});
  std::vector<std::byte> target(4096);
  std::vector<std::byte> record(10);
  record[0] = std::byte{200};
  const std::span<std::byte> out(target);
  const std::array<Operation, 4> operations{
      Operation::apply_delta(out.first(8), record), Operation::fill(out.subspan(8, 8), 1),
      Operation::fill(out.subspan(16, 8), 1).fenced(), Operation::fill(out.subspan(24, 8), 1)};
  std::array<Completion, 4> completions;
  Job job;
  ASSERT_EQ(machine.engine->submit_batch(job, {operations, completions}, {.path = Path::dsa}),
            Submit::accepted);
  EXPECT_EQ(job.wait().cause, Cause::batch_failed);
  EXPECT_EQ(completions[0].cause, Cause::bad_record);
  EXPECT_EQ(completions[1].state, JobState::done);
  EXPECT_EQ(completions[2].cause, Cause::fence_broken);
  EXPECT_EQ(completions[3].cause, Cause::fence_broken);
  EXPECT_EQ(target[16], std::byte{0});
}

TEST(Dsa, AFenceHoldsBackWhatIsBehindAFailureOfAProcessorOrOfAnEarlierList) {
  constexpr std::size_t kLong = 8192;
  std::vector<std::byte> target(kLong);
  const std::span<std::byte> out(target);
  // The offset is beyond the target. A target that no descriptor supports goes to a processor.
  alignas(8) const std::array<std::byte, 10> record{std::byte{0xff}, std::byte{0xff}};
  for (const bool by_processor : {false, true}) {
    const Emulated machine = make_emulated({.transfer_bytes_max = 4096});
    std::vector<Operation> operations{
        Operation::apply_delta(out.first(by_processor ? kLong : 8), record)};
    // The next list begins with an operation without fence.
    operations.resize(32, Operation::no_op());
    operations.push_back(Operation::fill(out.first(8), 1));
    operations.push_back(Operation::fill(out.subspan(8, 8), 1).fenced());
    operations.push_back(Operation::fill(out.subspan(16, 8), 1));
    std::fill(target.begin(), target.end(), std::byte{0});
    std::vector<Completion> completions(operations.size());
    Job job;
    ASSERT_EQ(machine.engine->submit_batch(job, {operations, completions}, {.path = Path::dsa}),
              Submit::accepted);
    ASSERT_TRUE(job.wait_for(std::chrono::seconds(60)));
    EXPECT_EQ(job.completion().cause, Cause::batch_failed);
    EXPECT_EQ(completions[0].cause, Cause::bad_record);
    EXPECT_EQ(completions[32].state, JobState::done);
    EXPECT_EQ(completions[33].cause, Cause::fence_broken);
    EXPECT_EQ(completions[34].cause, Cause::fence_broken);
    EXPECT_EQ(target[0], std::byte{1});
    EXPECT_EQ(target[8], std::byte{0});
    EXPECT_EQ(target[16], std::byte{0});
  }
}

class Faults : public ::testing::TestWithParam<FaultPolicy> {};

TEST_P(Faults, PagesThatAreNotPresentCostTimeOnly) {
  const Emulated machine = make_emulated({.transfer_bytes_max = 1U << 20U,
                                          .block_on_fault = GetParam() == FaultPolicy::block,
                                          .device = {.page_faults = GetParam()}});
  constexpr std::size_t kLong = 3U << 20U;
  const std::vector<std::byte> source = random_bytes(kLong, 3);
  const auto pages = platform::allocate_pages(2 * kLong, std::nullopt);
  ASSERT_TRUE(pages.has_value());
  for (std::size_t round = 0; round < 2; ++round) {
    const std::span<std::byte> target = pages->subspan(round * kLong, kLong);
    const Operation operation =
        round == 0 ? Operation::copy(target, source) : Operation::copy_crc(target, source);
    const Completion end = submit_and_wait(*machine.engine, operation);
    EXPECT_EQ(end.state, JobState::done);
    EXPECT_EQ(end.fell_back, GetParam() == FaultPolicy::finish_on_cpu);
    EXPECT_TRUE(std::equal(target.begin(), target.end(), source.begin()));
    if (round == 1) {
      EXPECT_EQ(end.result.crc, software::execute(Operation::crc(source)).result.crc);
    }
  }
  EXPECT_EQ(totals(*machine.engine).page_faults > 0, GetParam() != FaultPolicy::block);
  platform::free_pages(*pages);
}

TEST_P(Faults, PagesThatAreNotPresentCostABatchTimeOnly) {
  const Emulated machine = make_emulated(
      {.block_on_fault = GetParam() == FaultPolicy::block, .device = {.page_faults = GetParam()}});
  constexpr std::size_t kCount = 40;
  constexpr std::size_t kLong = 2 * 4096;
  const std::vector<std::byte> source = random_bytes(kCount * kLong, 3);
  for (const bool fences : {false, true}) {
    const auto pages = platform::allocate_pages(kCount * kLong, std::nullopt);
    ASSERT_TRUE(pages.has_value());
    std::vector<Operation> operations;
    for (std::size_t i = 0; i < kCount; ++i) {
      const Operation copy = Operation::copy(pages->subspan(i * kLong, kLong),
                                             std::span(source).subspan(i * kLong, kLong));
      operations.push_back(fences && i % 7 == 3 ? copy.fenced() : copy);
    }
    std::vector<Completion> completions(kCount);
    Job job;
    ASSERT_EQ(machine.engine->submit_batch(job, {operations, completions}, {.path = Path::dsa}),
              Submit::accepted);
    ASSERT_TRUE(job.wait_for(std::chrono::seconds(60)));
    const Completion& end = job.completion();
    EXPECT_EQ(end.state, JobState::done) << name(end.cause);
    EXPECT_EQ(end.bytes_done, kCount * kLong);
    EXPECT_EQ(end.fell_back, GetParam() == FaultPolicy::finish_on_cpu);
    EXPECT_EQ(end.bytes_by_device == kCount * kLong, GetParam() != FaultPolicy::finish_on_cpu);
    EXPECT_EQ(end.page_faults > 0, GetParam() != FaultPolicy::block);
    for (const Completion& one : completions) EXPECT_EQ(one.bytes_done, kLong);
    EXPECT_TRUE(std::equal(source.begin(), source.end(), pages->begin()));
    platform::free_pages(*pages);
  }
}

INSTANTIATE_TEST_SUITE_P(Dsa, Faults,
                         ::testing::Values(FaultPolicy::touch_and_resubmit,
                                           FaultPolicy::finish_on_cpu, FaultPolicy::block));

TEST(Dsa, MemoryThatIsNotThereOrMayNotBeWrittenIsNamed) {
  const Emulated machine = make_emulated({});
  const auto pages = platform::allocate_pages(4 * 4096, std::nullopt);
  ASSERT_TRUE(pages.has_value());
  const std::vector<std::byte> source = random_bytes(4 * 4096, 4);
  // The third page is read-only, the fourth unmapped.
  std::memset(pages->data(), 1, pages->size());
  ASSERT_EQ(::mprotect(pages->data() + 2 * 4096, 4096, PROT_READ), 0);
  ASSERT_EQ(::munmap(pages->data() + 3 * 4096, 4096), 0);
  const Completion read_only = submit_and_wait(
      *machine.engine, Operation::copy(pages->first(3 * 4096), std::span(source).first(3 * 4096)));
  EXPECT_EQ(read_only.state, JobState::failed);
  EXPECT_EQ(read_only.cause, Cause::page_fault);
  EXPECT_EQ(read_only.bytes_done, 2 * 4096U);
  EXPECT_EQ(read_only.fault_address, reinterpret_cast<std::uintptr_t>(pages->data() + 2 * 4096));
  const Completion absent = submit_and_wait(*machine.engine, Operation::crc(*pages));
  EXPECT_EQ(absent.cause, Cause::page_fault);
  EXPECT_EQ(absent.fault_address, reinterpret_cast<std::uintptr_t>(pages->data() + 3 * 4096));
  EXPECT_EQ(absent.bytes_done, 3 * 4096U);
  ::munmap(pages->data(), 3 * 4096);
}

TEST(Dsa, AnErrorOfTheDeviceIsMendedByAProcessorAndReported) {
  const Emulated machine =
      make_emulated({.faults = test::script({FaultRule{
                         .kind = FaultKind::status, .every = 2, .raw_status = DSA_COMP_HW_ERR1}})});
  int fixed = 0;
  for (std::uint64_t i = 0; i < 10; ++i) {
    Buffers buffers(50'000, i);
    const Completion end =
        submit_and_wait(*machine.engine, Operation::copy(buffers.target, buffers.source));
    EXPECT_EQ(end.state, JobState::done);
    EXPECT_TRUE(buffers.equal());
    EXPECT_EQ(end.fell_back, end.device_status == DSA_COMP_HW_ERR1);
    fixed += end.fell_back ? 1 : 0;
  }
  EXPECT_EQ(fixed, 5);
  EXPECT_EQ(totals(*machine.engine).errors, 5U);
}

TEST(Dsa, AFullQueueIsSaidAndNothingIsLost) {
  for (const bool dedicated : {false, true}) {
    const Emulated machine = make_emulated(
        {.shared_count = dedicated ? 0U : 1U,
         .dedicated_count = dedicated ? 1U : 0U,
         .engine_count = 1,
         .entry_count = 4,
         .faults = test::script(
             {FaultRule{.kind = FaultKind::queue_full, .queue = dedicated ? 9 : 0, .every = 3}})});
    constexpr std::size_t kJobCount = 64;
    std::vector<Buffers> buffers;
    for (std::uint64_t i = 0; i < kJobCount; ++i) buffers.emplace_back(100'000, i);
    std::vector<Job> jobs(kJobCount);
    std::size_t full_count = 0;
    for (std::size_t i = 0; i < kJobCount; ++i) {
      Submit answer = Submit::full;
      while (answer == Submit::full) {
        answer = machine.engine->submit(
            jobs[i], Operation::copy(buffers[i].target, buffers[i].source), {.path = Path::dsa});
        if (answer == Submit::full) {
          ++full_count;
          machine.engine->poll();
        }
      }
      ASSERT_EQ(answer, Submit::accepted);
    }
    for (Job& job : jobs) EXPECT_EQ(job.wait().state, JobState::done);
    for (const Buffers& one : buffers) EXPECT_TRUE(one.equal());
    EXPECT_GT(full_count, 0U);
  }
}

TEST(Dsa, AJobOfADeviceThatDiesIsDoneByAProcessorInTime) {
  // A retired device may still write to its targets.
  std::deque<Buffers> all;
  const Emulated machine = make_emulated(
      {.device_count = 2,
       // Long enough for a live device on any loaded machine.
       .device = {.timeout = std::chrono::seconds(2)},
       .faults = test::script({FaultRule{.kind = FaultKind::halt, .device = 0, .nth = 3}}),
       .policy = movers::round_robin});
  for (std::uint64_t i = 0; i < 20; ++i) {
    Buffers& buffers = all.emplace_back(50'000, i);
    const Completion end =
        submit_and_wait(*machine.engine, Operation::copy(buffers.target, buffers.source));
    EXPECT_EQ(end.state, JobState::done);
    EXPECT_TRUE(buffers.equal());
    EXPECT_LE(end.late_write_possible, end.fell_back);
  }
  const std::uint64_t lost = machine.engine->device_statistics().at(0).lost;
  EXPECT_GE(lost, 1U);
  EXPECT_LE(lost, 3U) << "a dead device is not asked again and again";
}

TEST(Dsa, ADeviceThatAnswersAgainIsFoundThoughNothingThatWasLostIsEverAnswered) {
  if (test::kReportsEveryRace) GTEST_SKIP() << test::kWhyNoLostCompletion;
  const auto lost = [](std::uint64_t nth) {
    return FaultRule{.kind = FaultKind::lost_completion, .nth = nth};
  };
  // Long enough for a live device on any loaded machine.
  const Emulated machine = make_emulated({.device = {.timeout = std::chrono::seconds(1)},
                                          .faults = test::script({lost(1), lost(2), lost(3)})});
  std::vector<std::unique_ptr<Buffers>> kept;
  const auto copy = [&] {
    Buffers& buffers = *kept.emplace_back(std::make_unique<Buffers>(5000, kept.size()));
    const Completion end =
        submit_and_wait(*machine.engine, Operation::copy(buffers.target, buffers.source));
    EXPECT_EQ(end.state, JobState::done);
    EXPECT_TRUE(buffers.equal());
    return end.bytes_by_device == 5000;
  };
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(copy()) << i;
  EXPECT_EQ(totals(*machine.engine).lost, 3U);
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  bool found = false;
  while (!found && std::chrono::steady_clock::now() < give_up) {
    found = copy();
    std::this_thread::yield();
  }
  EXPECT_TRUE(found);
  EXPECT_EQ(totals(*machine.engine).lost, 3U) << "jobs are no probes";
}

TEST(Dsa, WhatAResetTookAwayIsDoneAgain) {
  const Emulated machine =
      make_emulated({.pace = {.latency_ns = 20'000'000, .bytes_per_second = 0}});
  Buffers buffers(100'000);
  Job job;
  ASSERT_EQ(machine.engine->submit(job, Operation::copy(buffers.target, buffers.source),
                                   {.path = Path::dsa}),
            Submit::accepted);
  machine.devices->control().reset(DeviceId(0));
  EXPECT_EQ(job.wait().state, JobState::done);
  EXPECT_TRUE(buffers.equal());
}

TEST(Dsa, StoppingEndsWhatHasNotBegun) {
  const Emulated machine = make_emulated(
      {.transfer_bytes_max = 4096, .pace = {.latency_ns = 1'000'000, .bytes_per_second = 0}});
  Buffers buffers(4U << 20U);
  Job job;
  ASSERT_EQ(machine.engine->submit(job, Operation::copy(buffers.target, buffers.source),
                                   {.path = Path::dsa}),
            Submit::accepted);
  job.stop();
  EXPECT_EQ(job.wait().state, JobState::stopped);
  EXPECT_EQ(buffers.moved_bytes(), job.completion().bytes_done);
  Job other;
  ASSERT_EQ(machine.engine->submit(other, Operation::copy(buffers.target, buffers.source),
                                   {.path = Path::dsa}),
            Submit::accepted);
  machine.engine->stop();
  EXPECT_EQ(other.state(), JobState::stopped);
  EXPECT_EQ(machine.engine->submit(other, Operation::fill(buffers.target, 1)), Submit::closed);
}

/// Says when it is destroyed.
///
/// Threading: shared.
class OpenPortal final : public dsa::Portal {
 public:
  OpenPortal(dsa::Portal& portal, int& open_count) : portal_(portal), open_count_(open_count) {
    ++open_count_;
  }
  ~OpenPortal() override { --open_count_; }
  [[nodiscard]] const dsa::QueueInfo& info() const override { return portal_.info(); }
  [[nodiscard]] bool submit(const dsa::Descriptor& descriptor) noexcept override {
    return portal_.submit(descriptor);
  }

 private:
  dsa::Portal& portal_;
  int& open_count_;
};

TEST(Dsa, StoppingClosesQueuesExceptThoseOfChannels) {
  const Emulated machine = make_emulated({.dedicated_count = 1});
  int open_count = 0;
  std::vector<std::unique_ptr<Mover>> movers;
  for (const std::uint32_t queue : {0U, 1U}) {
    dsa::Portal& portal = machine.devices->portal(DeviceId(0), QueueId(queue));
    movers.push_back(DsaQueue::make(std::make_unique<OpenPortal>(portal, open_count), {}).value());
  }
  const std::string name = movers.back()->info().name;
  const std::unique_ptr<Engine> engine = Engine::make(std::move(movers)).value();
  EXPECT_EQ(open_count, 2);
  auto channel = engine->open_channel({.queue = name}).value();
  engine->stop();
  EXPECT_EQ(open_count, 1);
  channel.reset();
  engine->stop();
  EXPECT_EQ(engine->movers().size(), 2U);
}

TEST(Dsa, AutomaticTakesTheDeviceForWhatIsLarge) {
  const Emulated machine = make_emulated({});
  Buffers buffers(1U << 20U);
  const auto run = [&](std::size_t byte_count, std::optional<Path> path) {
    Completion end;
    EXPECT_EQ(machine.engine->run(Operation::copy(std::span(buffers.target).first(byte_count),
                                                  std::span(buffers.source).first(byte_count)),
                                  end, {.path = path}),
              Submit::accepted);
    EXPECT_EQ(end.state, JobState::done);
    return end.bytes_by_device;
  };
  EXPECT_EQ(run(1000, std::nullopt), 0U);
  EXPECT_EQ(run(1U << 20U, std::nullopt), 1U << 20U);
  EXPECT_EQ(run(1U << 20U, Path::cpu), 0U);
  EXPECT_EQ(run(1000, Path::dsa), 1000U);
}

/// Records waits for a device, by replaced wait instructions.
struct Rests {
  Atomic<std::uint32_t> wait_count;
  Atomic<const void*> watched{nullptr};
};
Rests rests;

TEST(Dsa, AWaiterRestsOnTheRecordOfTheDeviceAndLooksAgain) {
  constexpr platform::LineWait kTold{
      [](const void* address) noexcept { rests.watched.store_relaxed(address); },  // Relaxed: only
                                                                                   // read later.
      [](std::uint64_t) noexcept { rests.wait_count.fetch_add_relaxed(1); }};      // Relaxed: a
                                                                                   // counter.
  platform::replace_line_wait(&kTold);
  {
    // It completes late enough for a wait; each wait ends spuriously.
    const Emulated machine =
        make_emulated({.faults = test::script({FaultRule{
                           .kind = FaultKind::slow, .every = 1, .delay_ns = 3'000'000}})});
    // A waiter that is not scheduled meanwhile may not wait at all.
    for (int i = 0; i < 1000 && rests.wait_count.load_relaxed() == 0; ++i) {
      Buffers buffers(5000);
      const Completion end =
          submit_and_wait(*machine.engine, Operation::copy(buffers.target, buffers.source));
      EXPECT_EQ(end.bytes_by_device, 5000U);
      EXPECT_TRUE(buffers.equal());
    }
    EXPECT_GT(rests.wait_count.load_relaxed(), 0U);
    const auto line = reinterpret_cast<std::uintptr_t>(rests.watched.load_relaxed());
    EXPECT_NE(line, 0U);
    EXPECT_EQ(line % 32, 0U);  // A completion record.
  }
  platform::replace_line_wait(nullptr);
}

TEST(Dsa, JobsOfDevicesAndProcessorsWaitForEachOther) {
  // Each copies what the previous one wrote; alternately by a device, by a processor and as a
  // batch. Queues are repeatedly full.
  Emulated machine =
      test::make_emulated({.device_count = 2,
                           .entry_count = 4,
                           .faults = test::script({{.kind = FaultKind::queue_full, .every = 7}})});
  constexpr std::size_t kCount = 300;
  constexpr std::size_t kBytes = 1000;
  std::vector<Buffers> rows;
  rows.emplace_back(kBytes);
  for (std::size_t i = 1; i <= kCount; ++i) rows.emplace_back(kBytes, i + 1);
  std::deque<Job> jobs(kCount);
  std::vector<Operation> copies;
  for (std::size_t i = 0; i < kCount; ++i) {
    copies.push_back(Operation::copy(rows[i + 1].source, rows[i].source));
  }
  for (std::size_t i = 0; i < kCount; ++i) {
    std::array<Job*, 2> named{};
    for (std::size_t k = 0; k < 2 && k < i; ++k) named[k] = &jobs[i - 1 - k];
    const SubmitOptions options{.path = i % 3 == 1 ? Path::cpu : Path::dsa,
                                .after = std::span(named).first(std::min<std::size_t>(i, 2))};
    const Batch batch{{&copies[i], 1}, {}};
    Submit answer = Submit::full;
    while (answer == Submit::full) {
      answer = i % 3 == 2 ? machine.engine->submit_batch(jobs[i], batch, options)
                          : machine.engine->submit(jobs[i], copies[i], options);
      machine.engine->poll();
    }
    ASSERT_EQ(answer, Submit::accepted);
  }
  ASSERT_TRUE(jobs.back().wait_for(std::chrono::seconds(60)));
  for (const Job& job : jobs) EXPECT_EQ(job.completion().state, JobState::done);
  EXPECT_EQ(rows.back().source, rows.front().source);
  EXPECT_GT(machine.engine->statistics().bytes_by_device, kCount / 2 * kBytes);
}

}  // namespace
}  // namespace headrace::engine
