// SPDX-License-Identifier: Apache-2.0
// What an engine does when movers refuse a job or a part of it.
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "fixtures.hpp"
#include "support/seed.hpp"
#include "support/test_data.hpp"

namespace headrace::engine::refusal_test {
namespace {

using test::Buffers;
using test::make_polled_engine;
using test::PolledMover;

/// Large enough for two parts, so that two movers are used.
constexpr std::size_t kTwoShares = 128U << 10U;

Submit always_full(std::size_t) {
  return Submit::full;
}

TEST(Refusal, ThatIsFullEveryOtherTimeMakesNoJobHalf) {
  const auto flaky = [](std::size_t call) {
    return call % 2 == 0 ? Submit::accepted : Submit::full;
  };
  const auto engine = make_polled_engine(PolledMover::Options{.answer = flaky},
                                         PolledMover::Options{.answer = flaky},
                                         PolledMover::Options{.answer = flaky, .last_first = true});
  Random random(headrace::test::seed());
  std::uint64_t refused_count = 0;
  std::uint64_t fallback_count = 0;
  for (int i = 0; i < 100; ++i) {
    Buffers buffers(1 + random.below(300'000), random());
    Job job;
    const Submit answer = engine->submit_copy(job, buffers.plan());
    if (answer == Submit::full) {
      ++refused_count;
      ASSERT_EQ(job.state(), JobState::idle);
      engine->poll();
      ASSERT_EQ(buffers.moved_bytes(), 0U);
      continue;
    }
    ASSERT_EQ(answer, Submit::accepted);
    ASSERT_EQ(job.wait().state, JobState::done);
    ASSERT_EQ(job.completion().bytes_done, buffers.source.size());
    ASSERT_TRUE(buffers.equal());
    fallback_count += job.completion().fell_back ? 1U : 0U;
  }
  EXPECT_GT(refused_count, 0U);
  EXPECT_GT(fallback_count, 0U);
  const EngineStatistics totals = engine->statistics();
  EXPECT_EQ(totals.jobs_submitted, 100 - refused_count);
  EXPECT_EQ(totals.jobs_done, 100 - refused_count);
  EXPECT_EQ(totals.submissions_refused, refused_count);
}

TEST(Refusal, ThatRefusesALaterShareHandsItToAnotherChosenOne) {
  std::size_t moved_by_the_willing = 0;
  const auto count = [&](const Request& request) {
    std::memcpy(request.target().data(), request.source().data(), request.byte_count());
    moved_by_the_willing += request.byte_count();
    return Completion{.bytes_done = request.byte_count()};
  };
  for (const Submit answer : {Submit::full, Submit::closed}) {
    moved_by_the_willing = 0;
    const auto engine =
        make_polled_engine(PolledMover::Options{.work = count},
                           PolledMover::Options{.answer = [=](std::size_t) { return answer; }});
    Buffers buffers(kTwoShares);
    Job job;
    ASSERT_EQ(engine->submit_copy(job, buffers.plan()), Submit::accepted);
    EXPECT_EQ(job.wait().state, JobState::done);
    EXPECT_TRUE(job.completion().fell_back);
    EXPECT_TRUE(buffers.equal());
    EXPECT_EQ(moved_by_the_willing, kTwoShares);
  }
}

TEST(Refusal, WhatNoMoverTakesTheCallingThreadMoves) {
  std::size_t moved_by_movers = 0;
  const auto count = [&](const Request& request) {
    std::memcpy(request.target().data(), request.source().data(), request.byte_count());
    moved_by_movers += request.byte_count();
    return Completion{.bytes_done = request.byte_count()};
  };
  const auto once = [](std::size_t call) { return call == 0 ? Submit::accepted : Submit::full; };
  const auto engine = make_polled_engine(PolledMover::Options{.answer = once, .work = count},
                                         PolledMover::Options{.answer = always_full});
  Buffers buffers(kTwoShares);
  Job job;
  ASSERT_EQ(engine->submit_copy(job, buffers.plan()), Submit::accepted);
  EXPECT_GT(buffers.moved_bytes(), 0U);
  EXPECT_EQ(job.state(), JobState::running);
  EXPECT_EQ(job.wait().state, JobState::done);
  EXPECT_TRUE(job.completion().fell_back);
  EXPECT_EQ(job.completion().bytes_done, kTwoShares);
  EXPECT_TRUE(buffers.equal());
  EXPECT_LT(moved_by_movers, kTwoShares);
}

TEST(Refusal, ThatIsFullLeavesTheJobToAnotherThatWasChosen) {
  const auto full = [](std::size_t) { return Submit::full; };
  const auto engine =
      make_polled_engine(PolledMover::Options{.answer = full}, PolledMover::Options{});
  for (const std::size_t byte_count : {std::size_t{1000}, kTwoShares}) {
    // In rotation.
    for (int round = 0; round < 2; ++round) {
      Buffers buffers(byte_count);
      Job job;
      ASSERT_EQ(engine->submit_copy(job, buffers.plan()), Submit::accepted);
      EXPECT_EQ(job.wait().state, JobState::done);
      EXPECT_TRUE(buffers.equal());
      // A small job names no mover.
      if (byte_count == 1000) {
        EXPECT_FALSE(job.completion().fell_back);
      }
    }
  }
}

TEST(Refusal, OfADeviceThatIsFullLeavesTheJobToAnotherDevice) {
  std::size_t first_call_count = 0;
  const auto device = [](std::function<Submit(std::size_t)> answer) {
    return PolledMover::Options{.info = {.name = "test", .hardware = true, .polled = true},
                                .answer = std::move(answer)};
  };
  std::vector<std::unique_ptr<Mover>> list;
  for (int i = 0; i < 3; ++i) {
    list.push_back(std::make_unique<PolledMover>(device([&](std::size_t) {
      ++first_call_count;
      return Submit::full;
    })));
  }
  list.push_back(std::make_unique<PolledMover>(device({})));
  const auto engine = std::move(Engine::make(std::move(list), {}).value());
  for (int round = 0; round < 4; ++round) {
    Buffers buffers(1000);
    Job job;
    ASSERT_EQ(engine->submit_copy(job, buffers.plan(), {.path = Path::dsa}), Submit::accepted);
    EXPECT_EQ(job.wait().state, JobState::done);
    EXPECT_FALSE(job.completion().fell_back);
    EXPECT_TRUE(buffers.equal());
  }
  EXPECT_EQ(first_call_count, 6U) << "three, two, one and none before the one with room";
  EXPECT_EQ(engine->statistics().submissions_refused, 0U);
}

TEST(Refusal, AreAllFullBeforeAJobIsRefused) {
  std::size_t call_count = 0;
  const auto full = [&](std::size_t) {
    ++call_count;
    return Submit::full;
  };
  const auto engine = make_polled_engine(PolledMover::Options{.answer = full},
                                         PolledMover::Options{.answer = full});
  Buffers buffers(kTwoShares);
  Job job;
  EXPECT_EQ(engine->submit_copy(job, buffers.plan()), Submit::full);
  EXPECT_EQ(job.state(), JobState::idle);
  EXPECT_EQ(call_count, 2U);
  EXPECT_EQ(buffers.moved_bytes(), 0U);
  EXPECT_EQ(engine->statistics().submissions_refused, 1U);
}

TEST(Refusal, ThatRefusesAJobLeavesItAsItWas) {
  // Accepts only the first job.
  const auto first_only = [](std::size_t call) {
    return call == 0 ? Submit::accepted : Submit::full;
  };
  for (const bool hardware : {false, true}) {
    const auto engine =
        make_polled_engine(PolledMover::Options{.info = {.name = "test",
                                                         .hardware = hardware,
                                                         .polled = true,
                                                         .operations = OperationSet::all(),
                                                         .batches = true},
                                                .answer = first_only});
    Buffers buffers(1000);
    Buffers others(1000);
    Job job;
    ASSERT_EQ(engine->submit_copy(job, buffers.plan()), Submit::accepted);
    job.stop();
    ASSERT_EQ(job.wait().state, JobState::stopped);
    const auto expect_unchanged = [&] {
      EXPECT_EQ(job.state(), JobState::stopped);
      EXPECT_TRUE(job.stop_requested());
      EXPECT_EQ(job.operation().kind(), OperationKind::copy);
      EXPECT_EQ(job.operation().target().data(), buffers.target.data());
      EXPECT_TRUE(job.batch().operations.empty());
      EXPECT_EQ(job.completion().state, JobState::stopped);
    };
    const Operation fill = Operation::fill(others.target, 7);
    EXPECT_EQ(engine->submit_copy(job, others.plan()), Submit::full);
    expect_unchanged();
    EXPECT_EQ(engine->submit(job, fill), Submit::full);
    expect_unchanged();
    EXPECT_EQ(engine->submit_batch(job, {{&fill, 1}, {}}), Submit::full);
    expect_unchanged();
    engine->stop();
    EXPECT_EQ(engine->submit(job, fill), Submit::closed);
    expect_unchanged();
  }
}

TEST(Refusal, ThatIsClosedByItselfIsReplacedByTheCallingThread) {
  const auto engine = make_polled_engine(
      PolledMover::Options{.answer = [](std::size_t) { return Submit::closed; }});
  Buffers buffers(1000);
  Job job;
  ASSERT_EQ(engine->submit_copy(job, buffers.plan()), Submit::accepted);
  EXPECT_EQ(job.state(), JobState::done);
  EXPECT_TRUE(job.completion().fell_back);
  EXPECT_TRUE(buffers.equal());
}

/// Devices that answer `closed`, and a processor that counts the bytes it gets.
struct ClosedDevices {
  std::size_t by_processor = 0;
  std::unique_ptr<Engine> engine;

  explicit ClosedDevices(MoverPolicy policy = {}) {
    const auto info = [](const char* name, bool hardware) {
      return MoverInfo{.name = name,
                       .hardware = hardware,
                       .polled = true,
                       .operations = OperationSet::all(),
                       .batches = true};
    };
    std::vector<std::unique_ptr<Mover>> list;
    for (int i = 0; i < 2; ++i) {
      list.push_back(std::make_unique<PolledMover>(PolledMover::Options{
          .info = info("device", true), .answer = [](std::size_t) { return Submit::closed; }}));
    }
    list.push_back(std::make_unique<PolledMover>(PolledMover::Options{
        .info = info("processor", false), .work = [this](const Request& request) {
          by_processor += request.byte_count();
          if (!request.is_batch()) {
            std::memcpy(request.target().data(), request.source().data(), request.byte_count());
          }
          return Completion{.bytes_done = request.byte_count()};
        }}));
    engine = Engine::make(std::move(list), std::move(policy)).value();
  }
};

TEST(Refusal, OfADeviceThatIsClosedLeavesTheJobToProcessorsAndNotToTheSubmittingThread) {
  // One mover chosen, and a job that is split between both devices.
  for (const MoverPolicy& policy : {MoverPolicy(), MoverPolicy(movers::all)}) {
    for (const Path path : {Path::automatic, Path::dsa}) {
      ClosedDevices made(policy);
      Buffers buffers(kTwoShares);
      Job job;
      ASSERT_EQ(made.engine->submit_copy(job, buffers.plan(), {.path = path}), Submit::accepted);
      EXPECT_EQ(job.state(), JobState::running);
      EXPECT_EQ(buffers.moved_bytes(), 0U);
      EXPECT_EQ(job.wait().state, JobState::done);
      EXPECT_TRUE(job.completion().fell_back);
      EXPECT_TRUE(buffers.equal());
      EXPECT_EQ(made.by_processor, kTwoShares);
      const std::array list{Operation::copy(buffers.target, buffers.source)};
      ASSERT_EQ(made.engine->submit_batch(job, {list, {}}, {.path = path}), Submit::accepted);
      EXPECT_EQ(job.state(), JobState::running);
      EXPECT_TRUE(job.wait().fell_back);
      EXPECT_EQ(made.by_processor, 2 * kTwoShares);
    }
  }
}

TEST(Refusal, OfProcessorsGetsALaterShareThatNoChosenOneTakes) {
  std::size_t moved_by_device = 0;
  std::vector<std::unique_ptr<Mover>> list;
  for (const bool willing : {true, false}) {
    list.push_back(std::make_unique<PolledMover>(PolledMover::Options{
        .info = {.name = "device", .hardware = true, .polled = true},
        .answer =
            [=](std::size_t call) {
              return willing && call == 0 ? Submit::accepted : Submit::full;
            },
        .work =
            [&](const Request& request) {
              std::memcpy(request.target().data(), request.source().data(), request.byte_count());
              moved_by_device += request.byte_count();
              return Completion{.bytes_done = request.byte_count()};
            }}));
  }
  list.push_back(std::make_unique<PolledMover>(PolledMover::Options{}));
  const auto engine = Engine::make(std::move(list), movers::all).value();
  Buffers buffers(kTwoShares);
  Job job;
  ASSERT_EQ(engine->submit_copy(job, buffers.plan(), {.path = Path::dsa}), Submit::accepted);
  EXPECT_EQ(buffers.moved_bytes(), 0U);
  EXPECT_EQ(job.wait().state, JobState::done);
  EXPECT_TRUE(job.completion().fell_back);
  EXPECT_TRUE(buffers.equal());
  EXPECT_LT(moved_by_device, kTwoShares);
}

}  // namespace
}  // namespace headrace::engine::refusal_test
