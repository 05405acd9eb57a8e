// SPDX-License-Identifier: Apache-2.0
// Every operation by every path without a device: the calling thread, workers, a batch; and
// refusals.
#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "fixtures.hpp"
#include "headrace/platform/process.hpp"

namespace headrace::engine {
namespace {

using test::make_engine;

constexpr std::size_t kLong = 3U << 20U;

std::vector<std::byte> random_bytes(std::size_t byte_count, std::uint64_t seed) {
  return test::Buffers(byte_count, seed).source;
}

struct DoneBy {
  std::string name;
  std::function<Completion(Engine&, const Operation&)> how;
};

Completion submit_and_wait(Engine& engine, const Operation& operation) {
  Job job;
  EXPECT_EQ(engine.submit(job, operation), Submit::accepted);
  return job.wait();
}

Completion run(Engine& engine, const Operation& operation) {
  Completion completion;
  EXPECT_EQ(engine.run(operation, completion), Submit::accepted);
  return completion;
}

Completion batch(Engine& engine, const Operation& operation) {
  const std::array<Operation, 2> operations{Operation::no_op(), operation};
  std::array<Completion, 2> completions;
  Job job;
  EXPECT_EQ(engine.submit_batch(job, {operations, completions}), Submit::accepted);
  job.wait();
  return completions[1];
}

class EveryWay : public ::testing::TestWithParam<DoneBy> {
 protected:
  Completion done(const Operation& operation) {
    const Completion completion = GetParam().how(*engine_, operation);
    EXPECT_EQ(completion.state, JobState::done) << name(completion.cause);
    return completion;
  }
  std::unique_ptr<Engine> engine_ = make_engine({.threads_per_node = 3, .piece = kib(64)});
};

TEST_P(EveryWay, FillRepeatsItsPattern) {
  for (const std::size_t length : {std::size_t{1}, std::size_t{23}, kLong + 5}) {
    std::vector<std::byte> target(length + 1, std::byte{0xee});
    const std::span<std::byte> bytes = std::span(target).first(length);
    EXPECT_EQ(done(Operation::fill(bytes, 0x0807060504030201)).bytes_done, length);
    for (std::size_t i = 0; i < length; ++i) ASSERT_EQ(target[i], std::byte(i % 8 + 1)) << i;
    done(Operation::fill(bytes, 0x0807060504030201, 0x100f0e0d0c0b0a09));
    for (std::size_t i = 0; i < length; ++i) ASSERT_EQ(target[i], std::byte(i % 16 + 1)) << i;
    done(Operation::fill(bytes, 0x7777777777777777));
    for (std::size_t i = 0; i < length; ++i) ASSERT_EQ(target[i], std::byte{0x77}) << i;
    EXPECT_EQ(target[length], std::byte{0xee});
  }
}

TEST_P(EveryWay, CompareTellsTheFirstDifference) {
  const std::vector<std::byte> one = random_bytes(kLong, 3);
  std::vector<std::byte> other = one;
  const Completion same = done(Operation::compare(one, other));
  EXPECT_FALSE(same.result.different);
  EXPECT_EQ(same.bytes_done, kLong);
  other[2'500'001] ^= std::byte{1};
  other[2'900'000] ^= std::byte{1};
  other[1'700'003] ^= std::byte{0x80};
  const Completion found = done(Operation::compare(one, other));
  EXPECT_TRUE(found.result.different);
  EXPECT_EQ(found.result.difference_offset, 1'700'003U);
}

TEST_P(EveryWay, ComparePatternTellsTheFirstDifference) {
  std::vector<std::byte> source(kLong);
  for (std::size_t i = 0; i < kLong; ++i) source[i] = std::byte(i % 8 + 1);
  EXPECT_FALSE(done(Operation::compare_pattern(source, 0x0807060504030201)).result.different);
  for (const std::size_t at : {kLong - 1, std::size_t{1'000'000}, std::size_t{3}}) {
    source[at] ^= std::byte{0x40};
    const Completion found = done(Operation::compare_pattern(source, 0x0807060504030201));
    EXPECT_TRUE(found.result.different);
    EXPECT_EQ(found.result.difference_offset, at);
  }
}

TEST_P(EveryWay, ADeltaMakesTheNewOutOfTheOld) {
  constexpr std::size_t kBytes = kDeltaBytesMax;
  std::vector<std::byte> before = random_bytes(kBytes, 4);
  std::vector<std::byte> after = before;
  for (const std::size_t at : {std::size_t{0}, std::size_t{9}, std::size_t{100'000}, kBytes - 1}) {
    after[at] ^= std::byte{1};
  }
  std::vector<std::byte> record(100);
  const Completion made = done(Operation::create_delta(record, before, after));
  EXPECT_TRUE(made.result.different);
  EXPECT_EQ(made.result.delta_bytes, 4 * kDeltaEntryBytes);
  const std::span<const std::byte> entries = std::span(record).first(made.result.delta_bytes);
  done(Operation::apply_delta(before, entries));
  EXPECT_EQ(before, after);
  EXPECT_FALSE(done(Operation::create_delta(record, before, after)).result.different);

  std::vector<std::byte> other = random_bytes(kBytes, 5);
  const Completion full = done(Operation::create_delta(record, before, other));
  EXPECT_TRUE(full.result.record_full);
  EXPECT_EQ(full.result.delta_bytes, 100U);
}

TEST_P(EveryWay, ABrokenDeltaRecordFails) {
  std::vector<std::byte> target(64);
  std::vector<std::byte> record(20);
  record[0] = std::byte{3};
  record[10] = std::byte{3};
  const Completion twice = GetParam().how(*engine_, Operation::apply_delta(target, record));
  EXPECT_EQ(twice.cause, Cause::bad_record);
  EXPECT_EQ(twice.bytes_done, 0U);
  record[10] = std::byte{8};
  EXPECT_EQ(GetParam().how(*engine_, Operation::apply_delta(target, record)).cause,
            Cause::bad_record);
}

TEST_P(EveryWay, DualcastWritesBothTargets) {
  const std::vector<std::byte> source = random_bytes(kLong, 6);
  std::vector<std::byte> both(2 * (kLong + 4096));
  std::byte* const second = both.data() + (kLong / 4096 + 1) * 4096;
  done(Operation::dualcast({both.data(), kLong}, {second, kLong}, source));
  EXPECT_TRUE(std::equal(source.begin(), source.end(), both.data()));
  EXPECT_TRUE(std::equal(source.begin(), source.end(), second));
}

TEST_P(EveryWay, CrcIsThatOfIscsi) {
  std::array<std::byte, 32> bytes{};
  EXPECT_EQ(done(Operation::crc(bytes)).result.crc, 0x8a9136aaU);  // RFC 3720, B.4.
  std::iota(reinterpret_cast<unsigned char*>(bytes.data()),
            reinterpret_cast<unsigned char*>(bytes.data()) + bytes.size(),
            static_cast<unsigned char>(0));
  EXPECT_EQ(done(Operation::crc(bytes)).result.crc, 0x46dd794eU);
  const std::vector<std::byte> source = random_bytes(kLong, 7);
  const std::span<const std::byte> all(source);
  for (const CrcOptions& options : {CrcOptions{}, CrcOptions{5, true, true},
                                    CrcOptions{6, false, false}, CrcOptions{7, true, false}}) {
    std::vector<std::byte> target(kLong);
    const std::uint32_t whole = done(Operation::crc(all, options)).result.crc;
    EXPECT_EQ(done(Operation::copy_crc(target, all, options)).result.crc, whole);
    EXPECT_EQ(target, source);
    CrcOptions next = options;
    next.seed = done(Operation::crc(all.first(1'000'001), options)).result.crc;
    EXPECT_EQ(done(Operation::crc(all.subspan(1'000'001), next)).result.crc, whole);
  }
}

TEST_P(EveryWay, IntegrityFieldsAreInsertedCheckedUpdatedAndStripped) {
  for (const DifBlock block :
       {DifBlock::bytes_512, DifBlock::bytes_520, DifBlock::bytes_4096, DifBlock::bytes_4104}) {
    const std::size_t unit = block_bytes(block);
    const std::size_t count = (1U << 20U) / unit;
    const DifFormat format{.block = block, .invert_seed = true};
    const std::vector<std::byte> source = random_bytes(count * unit, 8);
    std::vector<std::byte> fields(count * (unit + kDifFieldBytes));
    std::vector<std::byte> updated(fields.size());
    std::vector<std::byte> stripped(source.size());
    const DifTags tags{.reference = 77, .application = 0xabcd, .application_mask = 0x00ff};
    const DifTags others{.reference = 5, .application = 6, .application_mask = 0};
    const Completion made = done(Operation::dif_insert(fields, source, format, {.tags = tags}));
    EXPECT_EQ(made.result.target_tags.reference, 77 + count);
    done(Operation::dif_check(fields, format, {.tags = tags}));
    done(Operation::dif_update(updated, fields, format, {.tags = tags},
                               {.tags = others, .increment_application = true}));
    done(Operation::dif_strip(stripped, updated, format,
                              {.tags = others, .increment_application = true}));
    EXPECT_EQ(stripped, source);
    const std::size_t bad = count / 2;
    fields[bad * (unit + kDifFieldBytes) + 3] ^= std::byte{1};
    const Completion wrong =
        GetParam().how(*engine_, Operation::dif_check(fields, format, {.tags = tags}));
    EXPECT_EQ(wrong.cause, Cause::integrity_error);
    EXPECT_EQ(wrong.result.dif_errors, dif_error::guard);
    EXPECT_EQ(wrong.bytes_done, bad * (unit + kDifFieldBytes));
  }
}

TEST_P(EveryWay, NoOpDrainAndFlushJustEnd) {
  std::vector<std::byte> target = random_bytes(10'000, 9);
  const std::vector<std::byte> before = target;
  done(Operation::no_op());
  done(Operation::drain());
  EXPECT_EQ(done(Operation::cache_flush(target)).bytes_done, target.size());
  EXPECT_EQ(target, before);
}

INSTANTIATE_TEST_SUITE_P(Operation, EveryWay,
                         ::testing::Values(DoneBy{"workers", submit_and_wait},
                                           DoneBy{"caller", run}, DoneBy{"batch", batch}),
                         [](const auto& parameter) { return parameter.param.name; });

TEST(Operation, WhatCannotBeIsRefusedByName) {
  std::vector<std::byte> bytes(3 << 20);
  const std::span<std::byte> all(bytes);
  const auto at = [&](std::size_t offset, std::size_t count) { return all.subspan(offset, count); };
  const std::span<std::byte> null{static_cast<std::byte*>(nullptr), 8};
  EXPECT_EQ(Operation::fill({}, 1).validate(), Submit::empty);
  EXPECT_EQ(Operation::crc({}).validate(), Submit::empty);
  EXPECT_EQ(Operation::copy({}, {}).validate(), Submit::empty);
  EXPECT_EQ(Operation::fill(null, 1).validate(), Submit::null_address);
  EXPECT_EQ(Operation::compare(null, at(0, 8)).validate(), Submit::null_address);
  EXPECT_EQ(Operation::compare(at(0, 8), at(0, 9)).validate(), Submit::length_differs);
  EXPECT_EQ(Operation::fill({all.data(), SIZE_MAX}, 1).validate(), Submit::too_large);
  EXPECT_EQ(Operation::copy({all.data(), SIZE_MAX}, {all.data(), SIZE_MAX}).validate(),
            Submit::too_large);
  EXPECT_EQ(Operation::create_delta(at(0, 80), at(80, 81), at(200, 81)).validate(),
            Submit::misaligned);
  EXPECT_EQ(Operation::create_delta(at(0, 80), at(81, 80), at(200, 80)).validate(),
            Submit::misaligned);
  EXPECT_EQ(
      Operation::create_delta(at(0, 80), at(80, kDeltaBytesMax + 8), at(80, kDeltaBytesMax + 8))
          .validate(),
      Submit::too_large);
  EXPECT_EQ(Operation::create_delta(at(0, 72), at(80, 80), at(200, 80)).validate(),
            Submit::length_differs);
  EXPECT_EQ(Operation::create_delta(at(0, 88), at(80, 80), at(200, 80)).validate(),
            Submit::overlapping);
  EXPECT_EQ(Operation::apply_delta(at(0, 80), at(80, 11)).validate(), Submit::misaligned);
  EXPECT_EQ(Operation::dualcast(at(0, 8), at(4097, 8), at(5000, 8)).validate(), Submit::misaligned);
  EXPECT_EQ(Operation::dualcast(at(0, 8), at(4096, 8), at(4100, 8)).validate(),
            Submit::overlapping);
  EXPECT_EQ(Operation::copy_crc(at(0, 8), at(4, 8)).validate(), Submit::overlapping);
  EXPECT_EQ(Operation::dif_check(at(0, 519), {}, {}).validate(), Submit::misaligned);
  EXPECT_EQ(Operation::dif_insert(at(0, 512), at(4096, 512), {}, {}).validate(),
            Submit::length_differs);
  EXPECT_EQ(Operation::no_op().validate(), Submit::accepted);
  for (const int block : {4, 7, 255}) {
    const DifFormat none{.block = static_cast<DifBlock>(block)};
    EXPECT_EQ(Operation::dif_check(at(0, 4112), none, {}).validate(), Submit::bad_option);
    EXPECT_EQ(Operation::dif_insert(at(0, 4112), at(8192, 4104), none, {}).validate(),
              Submit::bad_option);
    EXPECT_EQ(Operation::dif_strip(at(0, 4104), at(8192, 4112), none, {}).fenced().validate(),
              Submit::bad_option);
    EXPECT_EQ(Operation::dif_update(at(0, 4112), at(8192, 4112), none, {}, {}).validate(),
              Submit::bad_option);
  }
}

TEST(Operation, PartsOfMoreThanFourGibibytesAreCutAtTheirUnits) {
  // Never accessed: only the cuts are checked.
  auto* const base = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 44U);
  const std::size_t length = (std::size_t{5} << 30U) + 24;
  const Operation fill = Operation::fill({base, length}, 1, 2);
  ASSERT_EQ(fill.validate(), Submit::accepted);
  const Operation tail = fill.part(std::size_t{5} << 30U, 24);
  EXPECT_EQ(tail.target().data(), base + (std::size_t{5} << 30U));
  EXPECT_EQ(tail.target().size(), 24U);
  EXPECT_EQ(fill.cut_bytes(), 16U);
}

TEST(Batch, AFenceHoldsBackWhatIsBehindAFailure) {
  const auto engine = make_engine({.threads_per_node = 1});
  alignas(8) std::array<std::byte, 64> target{};
  alignas(8) std::array<std::byte, 10> record{};
  record[0] = std::byte{200};
  const std::array<Operation, 4> operations{
      Operation::apply_delta(std::span(target).first(8), record),  // Out of range.
      Operation::fill(std::span(target).subspan(8, 8), 1),         // Runs nevertheless.
      Operation::fill(std::span(target).subspan(16, 8), 1).fenced(),
      Operation::fill(std::span(target).subspan(24, 8), 1)};
  std::array<Completion, 4> completions;
  Job job;
  ASSERT_EQ(engine->submit_batch(job, {operations, completions}), Submit::accepted);
  EXPECT_EQ(job.wait().cause, Cause::batch_failed);
  EXPECT_EQ(job.completion().bytes_done, 8U);
  EXPECT_EQ(completions[0].cause, Cause::bad_record);
  EXPECT_EQ(completions[1].state, JobState::done);
  EXPECT_EQ(completions[2].cause, Cause::fence_broken);
  EXPECT_EQ(completions[3].cause, Cause::fence_broken);
  EXPECT_EQ(target[16], std::byte{0});
}

TEST(Batch, OneBadOperationRefusesAllOfIt) {
  const auto engine = make_engine({.threads_per_node = 1});
  std::array<std::byte, 8> target{};
  const std::array<Operation, 2> operations{Operation::fill(target, 1), Operation::fill({}, 1)};
  Job job;
  EXPECT_EQ(engine->submit_batch(job, {operations, {}}), Submit::empty);
  EXPECT_EQ(engine->submit_batch(job, {}), Submit::empty);
  std::array<Completion, 1> few;
  EXPECT_EQ(engine->submit_batch(job, {std::span(operations).first(1), {}}), Submit::accepted);
  job.wait();
  EXPECT_EQ(engine->submit_batch(job, {operations, few}), Submit::length_differs);
  EXPECT_EQ(target[0], std::byte{1});
}

TEST(Job, WaitingForATimeGivesUp) {
  auto engine = test::make_polled_engine(test::PolledMover::Options{});
  test::PolledMover::Options slow;
  slow.info.polled = false;  // Never polled: its jobs end at stop().
  auto asleep = test::make_polled_engine(std::move(slow));
  test::Buffers buffers(100);
  Job job;
  ASSERT_EQ(asleep->submit_copy(job, buffers.plan()), Submit::accepted);
  EXPECT_FALSE(job.wait_for(std::chrono::milliseconds(5)));
  asleep->stop();
  EXPECT_TRUE(job.wait_for(std::chrono::milliseconds(0)));
  ASSERT_EQ(engine->submit_copy(job, buffers.plan()), Submit::accepted);
  EXPECT_TRUE(job.wait_for(std::chrono::seconds(10)));
}

TEST(Job, WhatFollowsMaySubmitTheJobAgain) {
  const auto engine = make_engine({.threads_per_node = 1});
  test::Buffers buffers(100);
  struct Chain {
    Engine* engine;
    test::Buffers* buffers;
    Job job;
    Atomic<int> left{5};
    static void next(void* context) noexcept {
      auto* const self = static_cast<Chain*>(context);
      if (self->left.fetch_sub_relaxed(1) == 1) return;  // One thread.
      EXPECT_EQ(self->engine->submit_copy(self->job, self->buffers->plan(),
                                          {.then = next, .then_context = context}),
                Submit::accepted);
    }
  } chain{engine.get(), &buffers, {}, {}};
  chain.left.store_relaxed(5);  // Before the first submission.
  ASSERT_EQ(
      engine->submit_copy(chain.job, buffers.plan(), {.then = Chain::next, .then_context = &chain}),
      Submit::accepted);
  while (chain.left.load_relaxed() > 0) std::this_thread::yield();  // Only a count.
  engine->stop();
  EXPECT_EQ(engine->statistics().jobs_done, 5U);
}

TEST(Operations, ADifferenceIsFoundWhereverItLies) {
  const std::unique_ptr<Engine> engine = make_engine();
  // Around the sizes compared at once: a word, a line, a small block, a large one.
  for (const std::size_t length : {1U, 7U, 8U, 63U, 64U, 65U, 511U, 520U, 70'008U, 300'000U}) {
    std::vector<std::byte> one(length, std::byte{0x5a});
    std::vector<std::byte> other = one;
    const std::array<std::size_t, 11> places{0,   6,   length / 2, length - 1, 62,     64,
                                             511, 512, 65'541,     262'143,    262'144};
    for (const std::size_t at : places) {
      if (at >= length) continue;
      other[at] ^= std::byte{1};
      const Completion compared = run(*engine, Operation::compare(one, other));
      EXPECT_TRUE(compared.result.different) << at << " of " << length;
      EXPECT_EQ(compared.result.difference_offset, at) << length;
      EXPECT_EQ(compared.bytes_done, at) << length;
      const Completion matched =
          run(*engine, Operation::compare_pattern(other, 0x5a5a5a5a5a5a5a5a));
      EXPECT_TRUE(matched.result.different) << at << " of " << length;
      EXPECT_EQ(matched.result.difference_offset, at) << length;
      other[at] = one[at];
    }
    EXPECT_FALSE(run(*engine, Operation::compare(one, other)).result.different) << length;
  }
}

TEST(Operations, WhatRunsOnThisThreadIsCountedWhole) {
  constexpr std::uint64_t kCount = 100;
  const std::unique_ptr<Engine> engine = make_engine();
  test::Buffers small(100);
  test::Buffers large(300'000);
  const SubmitOptions options{.path = Path::cpu};
  Completion end;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    for (test::Buffers* const buffers : {&small, &large}) {
      const Operation copy = Operation::copy(buffers->target, buffers->source);
      ASSERT_EQ(engine->run(copy, end, options), Submit::accepted);
    }
    const Operation fill = Operation::fill(small.target, 1);
    ASSERT_EQ(engine->run(fill, end, options), Submit::accepted);
  }
  const EngineStatistics totals = engine->statistics();
  EXPECT_EQ(totals.jobs_submitted, 3 * kCount);
  EXPECT_EQ(totals.jobs_done, 3 * kCount);
  EXPECT_EQ(totals.bytes_moved, kCount * 300'200);
  const auto timed_count = [&](OperationKind kind) {
    const auto& counts = totals.operations[static_cast<std::size_t>(kind)].latency_counts;
    return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  };
  EXPECT_GE(timed_count(OperationKind::copy), kCount) << "every long one";
  EXPECT_LT(timed_count(OperationKind::copy), kCount + kCount / 2) << "and some short ones";
  EXPECT_GE(timed_count(OperationKind::fill), 1U);
  EXPECT_LT(timed_count(OperationKind::fill), kCount / 2);
}

TEST(Operations, ARunOnThisThreadCallsWhomItShould) {
  struct Seen {
    Completion completion;
    int call_count = 0;
    int then_count = 0;
  } seen;
  const std::unique_ptr<Engine> engine = test::make_engine();
  test::Buffers buffers(1000);
  const SubmitOptions options{.callback =
                                  [](void* context, const Completion& completion) noexcept {
                                    auto& into = *static_cast<Seen*>(context);
                                    into.completion = completion;
                                    ++into.call_count;
                                  },
                              .callback_context = &seen,
                              .then =
                                  [](void* context) noexcept {
                                    auto& into = *static_cast<Seen*>(context);
                                    into.then_count += into.call_count;
                                  },
                              .then_context = &seen,
                              .path = Path::cpu};
  Completion end;
  ASSERT_EQ(engine->run(Operation::copy(buffers.target, buffers.source), end, options),
            Submit::accepted);
  EXPECT_EQ(seen.call_count, 1);
  EXPECT_EQ(seen.then_count, 1) << "after the callback, once";
  EXPECT_EQ(seen.completion.bytes_done, end.bytes_done);
  engine->stop();
  EXPECT_EQ(engine->run(Operation::copy(buffers.target, buffers.source), end, options),
            Submit::closed);
  EXPECT_EQ(seen.call_count, 1) << "nothing was started";
}

}  // namespace
}  // namespace headrace::engine
