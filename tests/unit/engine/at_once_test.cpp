// SPDX-License-Identifier: Apache-2.0
// What path `automatic` does in the submission itself, because it is small.
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "fixtures.hpp"

namespace headrace::engine {
namespace {

using test::Buffers;
using test::PolledMover;

/// An engine with a device and a processor, and how often each of them was asked.
struct DeviceAndProcessor {
  std::size_t device_calls = 0;
  std::size_t processor_calls = 0;
  std::unique_ptr<Engine> engine;

  DeviceAndProcessor() {
    const auto counting = [](std::size_t& calls) {
      return [&calls](std::size_t) {
        ++calls;
        return Submit::accepted;
      };
    };
    std::vector<std::unique_ptr<Mover>> movers;
    movers.push_back(std::make_unique<PolledMover>(
        PolledMover::Options{.info = {.name = "device",
                                      .hardware = true,
                                      .polled = true,
                                      .operations = OperationSet::all(),
                                      .batches = true},
                             .answer = counting(device_calls)}));
    movers.push_back(std::make_unique<PolledMover>(
        PolledMover::Options{.info = {.name = "processor",
                                      .polled = true,
                                      .operations = OperationSet::all(),
                                      .batches = true},
                             .answer = counting(processor_calls)}));
    engine = Engine::make(std::move(movers)).value();
  }
};

TEST(AtOnce, WhatIsSmall) {
  DeviceAndProcessor made;
  Buffers buffers(1023);
  std::string order;
  const SubmitOptions options{
      .callback =
          [](void* context, const Completion&) noexcept {
            *static_cast<std::string*>(context) += "callback ";
          },
      .callback_context = &order,
      .then = [](void* context) noexcept { *static_cast<std::string*>(context) += "then"; },
      .then_context = &order};
  Job job;
  ASSERT_EQ(made.engine->submit_copy(job, buffers.plan(), options), Submit::accepted);
  EXPECT_EQ(job.state(), JobState::done);
  EXPECT_EQ(order, "callback then");
  EXPECT_TRUE(buffers.equal());
  EXPECT_EQ(job.completion().bytes_done, 1023U);
  EXPECT_FALSE(job.completion().fell_back) << "nobody asked for a device";
  EXPECT_EQ(made.device_calls + made.processor_calls, 0U);
  EXPECT_EQ(made.engine->statistics().jobs_submitted, 1U);
  EXPECT_EQ(made.engine->statistics().jobs_done, 1U);

  EXPECT_EQ(made.engine->submit(job, Operation::compare(buffers.target, buffers.source)),
            Submit::accepted);
  EXPECT_EQ(job.state(), JobState::done);
  EXPECT_FALSE(job.completion().result.different);

  made.engine->stop();
  EXPECT_EQ(made.engine->submit_copy(job, buffers.plan()), Submit::closed);
  EXPECT_EQ(made.engine->statistics().submissions_refused, 1U);
}

TEST(AtOnce, NotWhatIsLargerOrAskedForOtherwise) {
  DeviceAndProcessor made;
  Buffers large(1024);
  Buffers small(100);
  Job job;
  ASSERT_EQ(made.engine->submit_copy(job, large.plan()), Submit::accepted);
  EXPECT_EQ(job.state(), JobState::running);
  job.wait();
  EXPECT_EQ(made.device_calls, 1U);
  ASSERT_EQ(made.engine->submit_copy(job, small.plan(), {.path = Path::hardware}),
            Submit::accepted);
  job.wait();
  EXPECT_EQ(made.device_calls, 2U);
  ASSERT_EQ(made.engine->submit_copy(job, small.plan(), {.path = Path::software}),
            Submit::accepted);
  EXPECT_EQ(job.state(), JobState::running);
  job.wait();
  EXPECT_EQ(made.processor_calls, 1U);
}

TEST(AtOnce, SmallBatches) {
  DeviceAndProcessor made;
  Buffers one(255);
  Buffers other(255);
  const std::array list{Operation::copy(one.target, one.source),
                        Operation::copy(other.target, other.source).fenced(),
                        Operation::compare(one.target, other.source)};
  std::array<Completion, 3> ends{};
  Job job;
  ASSERT_EQ(made.engine->submit_batch(job, {.operations = list, .completions = ends}),
            Submit::accepted);
  EXPECT_EQ(job.state(), JobState::done);
  EXPECT_TRUE(one.equal() && other.equal());
  for (const Completion& end : ends) EXPECT_EQ(end.state, JobState::done);
  EXPECT_EQ(made.device_calls + made.processor_calls, 0U);
  EXPECT_EQ(made.engine->statistics().operations[kOperationKindCount].jobs_done, 1U);

  // A drain waits for what devices do, and 64 KiB would keep the submitter waiting.
  const auto ends_later = [&](const std::vector<Operation>& operations) {
    EXPECT_EQ(made.engine->submit_batch(job, {.operations = operations, .completions = {}}),
              Submit::accepted);
    const bool later = job.state() == JobState::running;
    job.stop();
    job.wait();
    return later;
  };
  EXPECT_TRUE(ends_later({list[0], Operation::drain()}));
  EXPECT_TRUE(ends_later(std::vector<Operation>(260, list[0])));
}

/// A job that is submitted again by its own `then`, as often as is left.
struct Again {
  Engine& engine;
  CopyPlan plan;
  std::size_t left;
  Job job = {};

  void submit() {
    ASSERT_EQ(engine.submit_copy(job, plan,
                                 {.then =
                                      [](void* context) noexcept {
                                        auto& again = *static_cast<Again*>(context);
                                        if (--again.left > 0) again.submit();
                                      },
                                  .then_context = this}),
              Submit::accepted);
  }
};

TEST(AtOnce, JobsThatSubmitThemselvesAgainNeedNoStack) {
  DeviceAndProcessor made;
  Buffers buffers(64);
  Again again{*made.engine, buffers.plan(), 100'000};
  again.submit();
  while (again.left > 0) made.engine->poll();
  again.job.wait();
  EXPECT_GT(made.processor_calls, 0U) << "what a `then` submits goes to a processor";
  EXPECT_EQ(made.device_calls, 0U);
  EXPECT_EQ(made.engine->statistics().jobs_done, 100'000U);
}

}  // namespace
}  // namespace headrace::engine
