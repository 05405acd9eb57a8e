// SPDX-License-Identifier: Apache-2.0
// Small operations, which path `auto` carries out inside the submission.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <string>
#include <thread>

#include "fixtures.hpp"
#include "headrace/base/atomic.hpp"

namespace headrace::engine::at_once_test {
namespace {

using test::Buffers;
using test::PolledMover;

/// An engine with a device and a processor, and the number of requests to each.
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
  EXPECT_FALSE(job.completion().fell_back) << "no device was asked for";
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
  ASSERT_EQ(made.engine->submit_copy(job, small.plan(), {.path = Path::dsa}), Submit::accepted);
  job.wait();
  EXPECT_EQ(made.device_calls, 2U);
  ASSERT_EQ(made.engine->submit_copy(job, small.plan(), {.path = Path::cpu}), Submit::accepted);
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

  // A drain waits for devices, and 64 KiB would delay the submitter.
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

/// A job that its own `then` resubmits, `left` times.
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

/// A mover that has done a request when its post returns.
class ImmediateMover final : public Mover {
 public:
  [[nodiscard]] const MoverInfo& info() const override { return info_; }
  [[nodiscard]] Submit post(Request& request) noexcept override {
    request.complete({.bytes_done = request.byte_count()});
    return Submit::accepted;
  }
  void stop() noexcept override {}

 private:
  const MoverInfo info_{.name = "immediate"};
};

std::unique_ptr<Engine> engine_of(std::unique_ptr<Mover> mover) {
  std::vector<std::unique_ptr<Mover>> movers;
  movers.push_back(std::move(mover));
  return Engine::make(std::move(movers)).value();
}

/// Jobs that submit each other, `left` times, to two engines in turn.
struct Chain {
  std::array<Engine*, 2> engines;
  CopyPlan plan;
  const MoverPolicy* policy = nullptr;
  bool by_callback = false;
  std::size_t left = 100'000;
  /// The first one's callback does not return before the chain has ended.
  Job first = {};
  std::array<Job, 3> jobs = {};

  static void next(void* context) noexcept {
    auto& chain = *static_cast<Chain*>(context);
    if (chain.left == 0) return;
    Job& job = chain.first.state() == JobState::idle ? chain.first : chain.jobs[chain.left % 3];
    --chain.left;
    SubmitOptions options{.policy = chain.policy};
    if (chain.by_callback) {
      options.callback = [](void* self, const Completion&) noexcept { next(self); };
      options.callback_context = context;
    } else {
      options.then = next;
      options.then_context = context;
    }
    EXPECT_EQ(chain.engines[chain.left % 2]->submit_copy(job, chain.plan, options),
              Submit::accepted);
  }
  void run() {
    next(this);
    EXPECT_EQ(left, 0U);
    for (Job& job : jobs) job.wait();
  }
};

TEST(AtOnce, ChainsOfJobsThatEndInsideTheirSubmissionNeedNoStack) {
  Buffers buffers(100);
  const std::unique_ptr<Engine> workers = test::make_engine();
  const std::unique_ptr<Engine> others = test::make_engine();
  const std::unique_ptr<Engine> immediate = engine_of(std::make_unique<ImmediateMover>());
  const std::unique_ptr<Engine> closed = engine_of(std::make_unique<PolledMover>(
      PolledMover::Options{.info = {.name = "device", .hardware = true, .polled = true},
                           .answer = [](std::size_t) { return Submit::closed; }}));
  const MoverPolicy none = [](const MoveContext&, MoverChoice&) {};
  Chain{.engines = {workers.get(), workers.get()}, .plan = {}}.run();
  Chain{.engines = {workers.get(), others.get()}, .plan = {}}.run();
  Chain{.engines = {workers.get(), others.get()}, .plan = {}, .by_callback = true}.run();
  Chain{.engines = {workers.get(), workers.get()}, .plan = buffers.plan(), .policy = &none}.run();
  Chain{.engines = {immediate.get(), immediate.get()}, .plan = buffers.plan()}.run();
  Chain{.engines = {closed.get(), immediate.get()}, .plan = buffers.plan()}.run();
  Chain{.engines = {closed.get(), closed.get()}, .plan = buffers.plan()}.run();
}

/// A small job that another job's `then` submits, as its dependant.
struct Follower {
  Engine& engine;
  Job& before;
  CopyPlan plan;
  Job job = {};
  bool was_at_once = false;
  Follower* next = nullptr;

  static void submit(void* context) noexcept {
    auto& self = *static_cast<Follower*>(context);
    Job* const named = &self.before;
    SubmitOptions options{.after = {&named, 1}};
    if (self.next != nullptr) {
      options.then = submit;
      options.then_context = self.next;
    }
    EXPECT_EQ(self.engine.submit_copy(self.job, self.plan, options), Submit::accepted);
    self.was_at_once = self.job.state() == JobState::done;
  }
};

TEST(AtOnce, WhatComesAfterOthersWhenTheyHaveEnded) {
  DeviceAndProcessor made;
  Buffers large(4096);
  std::array<Buffers, 3> small{Buffers(100), Buffers(100), Buffers(100)};
  Job first;
  Job held;
  Follower third{*made.engine, held, small[1].plan()};
  Follower fourth{*made.engine, third.job, small[2].plan()};
  third.next = &fourth;
  ASSERT_EQ(made.engine->submit_copy(first, large.plan()), Submit::accepted);
  Job* const named = &first;
  ASSERT_EQ(made.engine->submit_copy(
                held, small[0].plan(),
                {.then = Follower::submit, .then_context = &third, .after = {&named, 1}}),
            Submit::accepted);
  EXPECT_EQ(held.state(), JobState::running);
  EXPECT_EQ(small[0].moved_bytes(), 0U);
  while (fourth.job.state() != JobState::done) made.engine->poll();
  EXPECT_EQ(made.device_calls, 1U) << "the large one";
  EXPECT_EQ(made.processor_calls, 2U) << "what was held back, and what follows what was not";
  EXPECT_TRUE(third.was_at_once);
  EXPECT_FALSE(fourth.was_at_once);
  for (const Buffers& buffers : small) EXPECT_TRUE(buffers.equal());
  EXPECT_EQ(made.engine->statistics().jobs_held_back, 1U);
  EXPECT_EQ(made.engine->statistics().jobs_done, 4U);
}

TEST(AtOnce, BatchesThatComeAfterOthersAsIfTheseHadNotBeenNamed) {
  DeviceAndProcessor made;
  Buffers one(255);
  Buffers other(255);
  const std::array list{Operation::copy(one.target, one.source),
                        Operation::copy(other.target, other.source)};
  Job first;
  Job* const named = &first;
  ASSERT_EQ(made.engine->submit(first, list[0]), Submit::accepted);
  Job job;
  ASSERT_EQ(made.engine->submit_batch(job, {.operations = list, .completions = {}},
                                      {.after = {&named, 1}}),
            Submit::accepted);
  EXPECT_EQ(job.state(), JobState::done);
  EXPECT_TRUE(other.equal());
  EXPECT_EQ(made.device_calls + made.processor_calls, 0U);
}

TEST(AtOnce, DiamondsOfSmallAndLargeJobsWhoeverPolls) {
  // Two threads submit rows; each job depends on two of the previous row and copies what one of
  // them wrote; two other threads poll. Every other column is large enough for the device. Each
  // job's end submits a dependant.
  constexpr std::size_t kRows = 150;
  constexpr std::size_t kWidth = 4;
  constexpr std::size_t kLarge = 1500;
  constexpr std::size_t kSmall = 40;
  using Line = std::array<std::byte, kLarge>;
  struct Place {
    Job job;
    Line bytes{};
    Job echo;
    std::array<std::byte, kSmall> echo_bytes{};
    Engine* engine = nullptr;
    Atomic<std::uint32_t> ended{0};

    static void end(void* context) noexcept {
      static_cast<Atomic<std::uint32_t>*>(context)->store_release(1);
    }
    static void echoes(void* context) noexcept {
      auto& self = *static_cast<Place*>(context);
      Job* const named = &self.job;
      const Operation copy = Operation::copy(self.echo_bytes, std::span(self.bytes).first(kSmall));
      EXPECT_EQ(
          self.engine->submit(self.echo, copy,
                              {.then = end, .then_context = &self.ended, .after = {&named, 1}}),
          Submit::accepted);
    }
  };
  DeviceAndProcessor made;
  Engine& engine = *made.engine;
  Line ones;
  ones.fill(std::byte{0xff});
  const auto submit_rows = [&](std::deque<Place>& places) {
    for (std::size_t i = 0; i < kRows * kWidth; ++i) {
      const std::size_t row = i / kWidth;
      const std::size_t column = i % kWidth;
      Place& place = places[i];
      place.engine = &engine;
      const std::size_t length = column % 2 == 0 ? kLarge : kSmall;
      SubmitOptions options{.then = Place::echoes, .then_context = &place};
      if (row == 0) {
        const Operation copy =
            Operation::copy(std::span(place.bytes).first(length), std::span(ones).first(length));
        ASSERT_EQ(engine.submit(place.job, copy, options), Submit::accepted);
        continue;
      }
      Place& above = places[i - kWidth];
      Place& beside = places[(row - 1) * kWidth + (column + 1) % kWidth];
      const std::array<Job*, 2> named{&beside.job, &above.job};
      options.after = named;
      ASSERT_EQ(engine.submit(place.job,
                              Operation::copy(std::span(place.bytes).first(length),
                                              std::span(above.bytes).first(length)),
                              options),
                Submit::accepted);
    }
    for (Place& place : places) {
      ASSERT_TRUE(place.job.wait_for(std::chrono::minutes(2)));
      while (place.ended.load_acquire() == 0) std::this_thread::yield();
      EXPECT_EQ(place.job.completion().state, JobState::done);
      EXPECT_EQ(place.echo.completion().state, JobState::done);
      EXPECT_EQ(place.echo_bytes.back(), std::byte{0xff});
    }
  };
  std::array<std::deque<Place>, 2> rows;
  for (std::deque<Place>& each : rows) each.resize(kRows * kWidth);
  {
    std::vector<std::jthread> pollers;
    for (int i = 0; i < 2; ++i) {
      pollers.emplace_back([&](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
          engine.poll();
          std::this_thread::yield();
        }
      });
    }
    std::thread other([&] { submit_rows(rows[1]); });
    submit_rows(rows[0]);
    other.join();
  }
  EXPECT_EQ(engine.statistics().jobs_done, 2 * 2 * kRows * kWidth);
  EXPECT_GT(made.device_calls, 0U);
}

}  // namespace
}  // namespace headrace::engine::at_once_test
