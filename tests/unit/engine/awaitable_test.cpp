// SPDX-License-Identifier: Apache-2.0
// Coroutines that await operations: by workers, by a polled mover, refused, stopped, and completed
// before the coroutine suspends.
#include "headrace/engine/awaitable.hpp"

#include <gtest/gtest.h>

#include <array>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

#include "fixtures.hpp"
#include "support/detached.hpp"

namespace headrace::engine {
namespace {

using headrace::test::Detached;

constexpr std::size_t kCoroutineCount = 100;
constexpr int kRoundCount = 10;

/// Only a few are long enough to be split: under a sanitizer the checks take longer than the
/// operations.
std::size_t any_length(std::uint64_t seed) {
  return 1 + seed * 977 % (seed % 20 == 0 ? 200'000 : 5'000);
}

/// Fills, copies, sums and compares in sequence, and checks the results.
Detached work(Engine& engine, std::uint64_t seed, std::latch& finished) {
  test::Buffers buffers(any_length(seed), seed);
  for (int round = 0; round < kRoundCount; ++round) {
    const std::uint64_t pattern = seed << 32U | static_cast<std::uint64_t>(round);
    EXPECT_TRUE((co_await start(engine, Operation::fill(buffers.source, pattern))).is_done());
    const Ended copied = co_await start(engine, Operation::copy(buffers.target, buffers.source));
    EXPECT_TRUE(copied.is_done());
    EXPECT_EQ(copied.completion.bytes_done, buffers.source.size());
    EXPECT_TRUE(buffers.equal());
    const std::array<Operation, 2> both{Operation::crc(buffers.source),
                                        Operation::compare_pattern(buffers.target, pattern)};
    std::array<Completion, 2> ends;
    EXPECT_TRUE((co_await start(engine, Batch{both, ends})).is_done());
    EXPECT_FALSE(ends[1].result.different);
    const Ended summed = co_await start(engine, Operation::crc(buffers.target));
    EXPECT_EQ(summed.completion.result.crc, ends[0].result.crc);
  }
  finished.count_down();
}

TEST(Awaitable, ManyCoroutinesGoOnWithWhatWorkersDid) {
  const auto engine = test::make_engine({.threads_per_node = 3, .piece = kib(64)});
  std::latch finished(kCoroutineCount);
  for (std::size_t i = 0; i < kCoroutineCount; ++i) work(*engine, i, finished);
  finished.wait();
  EXPECT_EQ(engine->statistics().jobs_done, kCoroutineCount * kRoundCount * 4);
  engine->stop();
}

TEST(Awaitable, ManyCoroutinesGoOnWhereAMoverIsPolled) {
  test::PolledMover::Options options;
  options.info.operations = OperationSet::all();
  options.last_first = true;
  options.work = [](const Request& request) {
    const Operation operation = request.operation();
    std::ranges::copy(operation.source(), operation.target().begin());
    return Completion{.bytes_done = request.byte_count()};
  };
  const auto engine = test::make_polled_engine(options, options);
  std::latch finished(kCoroutineCount);
  const auto copies = [](Engine& of, std::uint64_t seed, std::latch& left) -> Detached {
    test::Buffers buffers(any_length(seed), seed);
    for (int round = 0; round < kRoundCount; ++round) {
      buffers.source[0] = std::byte(round);
      const Ended end = co_await start(of, Operation::copy(buffers.target, buffers.source));
      EXPECT_TRUE(end.is_done());
      EXPECT_TRUE(buffers.equal());
    }
    left.count_down();
  };
  for (std::size_t i = 0; i < kCoroutineCount; ++i) copies(*engine, i, finished);
  EXPECT_FALSE(finished.try_wait());
  // Two threads, so that a coroutine moves between them.
  const std::jthread other([&] {
    while (!finished.try_wait()) engine->poll();
  });
  while (!finished.try_wait()) engine->poll();
  EXPECT_EQ(engine->statistics().jobs_done, kCoroutineCount * kRoundCount);
}

TEST(Awaitable, ARefusalGoesOnAtOnce) {
  const auto engine = test::make_engine({.threads_per_node = 1});
  test::Buffers buffers(100);
  std::vector<Submit> answers;
  const auto refused = [&]() -> Detached {
    const std::span<std::byte> all(buffers.target);
    answers.push_back(
        (co_await start(*engine, Operation::copy(all.first(50), all.subspan(1, 50)))).submit);
    answers.push_back((co_await start(*engine, Batch{})).submit);
    engine->stop();
    const Ended closed = co_await start(*engine, Operation::fill(all, 1));
    answers.push_back(closed.submit);
    EXPECT_FALSE(closed.is_done());
    EXPECT_EQ(closed.completion.state, JobState::idle);
  };
  refused();
  EXPECT_EQ(answers, (std::vector{Submit::overlapping, Submit::empty, Submit::closed}));
}

TEST(Awaitable, JobsThatEndInsideTheirSubmissionDoNotFillTheStack) {
  test::PolledMover::Options options;
  options.info.operations = OperationSet::all();
  options.answer = [](std::size_t) { return Submit::closed; };  // So the submitter carries it out.
  const auto engine = test::make_polled_engine(options);
  int count = 0;
  const auto many = [&]() -> Detached {
    std::array<std::byte, 8> target{};
    for (; count < 20'000; ++count) {
      const Ended end = co_await start(*engine, Operation::fill(target, 3));
      if (!end.is_done() || !end.completion.fell_back) break;
    }
  };
  many();
  EXPECT_EQ(count, 20'000);
}

TEST(Awaitable, AJobOfSomebodyElseCanBeStopped) {
  const auto engine = test::make_engine({.threads_per_node = 1});
  test::Roadblock roadblock(*engine);
  test::Buffers buffers(20'000);
  Job job;
  JobState state = JobState::idle;
  std::latch finished(1);
  const auto waits = [&]() -> Detached {
    const Ended end = co_await start(*engine, job, Operation::copy(buffers.target, buffers.source));
    state = end.completion.state;
    finished.count_down();
  };
  waits();
  EXPECT_FALSE(finished.try_wait());
  job.stop();
  roadblock.open();
  finished.wait();
  EXPECT_EQ(state, JobState::stopped);
  EXPECT_EQ(buffers.moved_bytes(), 0U);
}

TEST(AwaitableDeathTest, WhatFollowsIsTheCoroutineAndNothingElse) {
  const auto engine = test::make_polled_engine(test::PolledMover::Options{});
  const SubmitOptions options{.then = [](void*) noexcept {}};
  EXPECT_DEATH(static_cast<void>(start(*engine, Operation::no_op(), options)), "its coroutine");
}

}  // namespace
}  // namespace headrace::engine
