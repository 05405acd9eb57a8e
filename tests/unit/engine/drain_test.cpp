// SPDX-License-Identifier: Apache-2.0
// A drain ends after all that was submitted to its engine before it, wherever that runs.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <list>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "fixtures.hpp"
#include "headrace/base/atomic.hpp"
#include "support/seed.hpp"

namespace headrace::engine {
namespace {

using test::Buffers;
using test::make_engine;
using test::PolledMover;

/// A callback that returns when the test lets it.
struct Blocker {
  static void call(void* context, const Completion& /*end*/) noexcept {
    static_cast<Blocker*>(context)->go.wait();
  }
  [[nodiscard]] SubmitOptions options(Path path = Path::cpu) {
    return {.callback = call, .callback_context = this, .path = path};
  }
  std::latch go{1};
};

TEST(Drain, EndsAfterWhatWasSubmittedBeforeItAndNotAfterWhatFollows) {
  const auto engine = make_engine({.threads_per_node = 2});
  Buffers buffers(100'000);
  Blocker blocker;
  Job before;
  ASSERT_EQ(engine->submit_copy(before, buffers.plan(), blocker.options()), Submit::accepted);
  Job drain;
  ASSERT_EQ(engine->submit(drain, Operation::drain()), Submit::accepted);
  Buffers others(100'000, 2);
  Job after;
  ASSERT_EQ(engine->submit_copy(after, others.plan(), {.path = Path::cpu}), Submit::accepted);
  EXPECT_EQ(after.wait().state, JobState::done);
  EXPECT_FALSE(drain.poll());
  EXPECT_FALSE(drain.wait_for(std::chrono::milliseconds(1)));
  blocker.go.count_down();
  const Completion& end = drain.wait();
  EXPECT_EQ(end.state, JobState::done);
  EXPECT_FALSE(end.fell_back);
  EXPECT_EQ(before.state(), JobState::done);
}

TEST(Drain, OfRunWaitsToo) {
  const auto engine = make_engine({.threads_per_node = 2});
  Buffers buffers(100'000);
  Blocker blocker;
  Job before;
  ASSERT_EQ(engine->submit_copy(before, buffers.plan(), blocker.options()), Submit::accepted);
  std::jthread other([&] {
    while (engine->statistics().jobs_submitted < 2) std::this_thread::yield();
    blocker.go.count_down();
  });
  Completion end;
  ASSERT_EQ(engine->run(Operation::drain(), end), Submit::accepted);
  EXPECT_EQ(end.state, JobState::done);
  EXPECT_EQ(before.state(), JobState::done);
}

TEST(Drain, ASecondOneIsFullUntilTheFirstHasEnded) {
  const auto engine = make_engine({.threads_per_node = 1});
  Buffers buffers(100'000);
  Blocker blocker;
  Job before;
  ASSERT_EQ(engine->submit_copy(before, buffers.plan(), blocker.options()), Submit::accepted);
  Job first;
  Job second;
  ASSERT_EQ(engine->submit(first, Operation::drain()), Submit::accepted);
  EXPECT_EQ(engine->submit(second, Operation::drain()), Submit::full);
  // Also one that is stopped: a second one could not tell what it still has to wait for.
  first.stop();
  EXPECT_FALSE(first.poll());
  EXPECT_EQ(engine->submit(second, Operation::drain()), Submit::full);
  blocker.go.count_down();
  EXPECT_EQ(first.wait().state, JobState::stopped);
  EXPECT_EQ(before.state(), JobState::done);
  ASSERT_EQ(engine->submit(second, Operation::drain()), Submit::accepted);
  EXPECT_EQ(second.wait().state, JobState::done);
}

TEST(Drain, MayHavePredecessorsAndDependants) {
  const auto engine = make_engine({.threads_per_node = 2});
  Buffers buffers(100'000);
  Buffers others(100'000, 2);
  Blocker blocker;
  Job before;
  ASSERT_EQ(engine->submit_copy(before, buffers.plan(), blocker.options()), Submit::accepted);
  Job drain;
  std::array<Job*, 1> names{&before};
  ASSERT_EQ(engine->submit(drain, Operation::drain(), {.after = names}), Submit::accepted);
  Job after;
  names = {&drain};
  ASSERT_EQ(engine->submit_copy(after, others.plan(), {.after = names}), Submit::accepted);
  EXPECT_FALSE(after.poll());
  blocker.go.count_down();
  EXPECT_EQ(after.wait().state, JobState::done);
  EXPECT_TRUE(others.equal());

  // The drain does not begin behind a job that failed, and another one may.
  Job failed;
  const MoverPolicy chooses_none = [](const MoveContext& /*context*/, MoverChoice& /*choice*/) {};
  const SubmitOptions refused{.policy = &chooses_none};
  ASSERT_EQ(engine->submit_copy(failed, buffers.plan(), refused), Submit::accepted);
  names = {&failed};
  ASSERT_EQ(engine->submit(drain, Operation::drain(), {.after = names}), Submit::accepted);
  EXPECT_EQ(drain.wait().cause, Cause::predecessor_failed);
  names = {&drain};
  EXPECT_EQ(engine->submit(drain, Operation::drain(), {.after = names}), Submit::bad_predecessor);
  ASSERT_EQ(engine->submit(drain, Operation::drain()), Submit::accepted);
  EXPECT_EQ(drain.wait().state, JobState::done);
}

TEST(Drain, WhosePolicyThrowsLeavesRoomForTheNext) {
  const auto engine = make_engine();
  const MoverPolicy throws = [](const MoveContext& /*context*/, MoverChoice& /*choice*/) {
    throw std::runtime_error("no");
  };
  Job drain;
  EXPECT_THROW(static_cast<void>(engine->submit(drain, Operation::drain(), {.policy = &throws})),
               std::runtime_error);
  ASSERT_EQ(engine->submit(drain, Operation::drain()), Submit::accepted);
  EXPECT_EQ(drain.wait().state, JobState::done);
}

TEST(Drain, InACallbackIsRefusedAndInThenIsNot) {
  struct Seen {
    Engine& engine;
    Job drain = {};
    Submit in_callback = Submit::accepted;
    Submit in_then = Submit::closed;
    std::latch called{1};
  };
  const auto engine = make_engine({.threads_per_node = 2});
  Seen seen{*engine};
  Buffers buffers(100'000);
  Job job;
  SubmitOptions options{.path = Path::cpu};
  options.callback_context = options.then_context = &seen;
  options.callback = [](void* context, const Completion& /*end*/) noexcept {
    auto& mine = *static_cast<Seen*>(context);
    mine.in_callback = mine.engine.submit(mine.drain, Operation::drain());
  };
  options.then = [](void* context) noexcept {
    auto& mine = *static_cast<Seen*>(context);
    mine.in_then = mine.engine.submit(mine.drain, Operation::drain());
    if (mine.in_then == Submit::accepted) mine.drain.wait();
    mine.called.count_down();
  };
  ASSERT_EQ(engine->submit_copy(job, buffers.plan(), options), Submit::accepted);
  seen.called.wait();
  EXPECT_EQ(seen.in_callback, Submit::bad_predecessor);
  EXPECT_EQ(seen.in_then, Submit::accepted);
  EXPECT_EQ(job.wait().state, JobState::done);
}

TEST(Drain, EndsWithItsEngine) {
  Buffers buffers(100'000);
  Blocker blocker;
  Job before;
  Job drain;
  {
    const auto engine = make_engine({.threads_per_node = 1});
    ASSERT_EQ(engine->submit_copy(before, buffers.plan(), blocker.options()), Submit::accepted);
    ASSERT_EQ(engine->submit(drain, Operation::drain()), Submit::accepted);
    std::jthread other([&] {
      Job late;  // `full` until the engine is stopped.
      while (engine->submit(late, Operation::drain()) != Submit::closed) std::this_thread::yield();
      blocker.go.count_down();
    });
    engine->stop();
  }
  EXPECT_NE(drain.state(), JobState::running);
  EXPECT_NE(before.state(), JobState::running);
}

/// Threads submit to movers that are polled, split, full and late, and drain.
TEST(Drain, OfManyThreadsAndMoversMissesNothing) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 200;
  const std::uint64_t seed = headrace::test::seed();
  std::vector<std::unique_ptr<Mover>> movers;
  for (std::size_t i = 0; i < 4; ++i) {
    const auto answer = [i](std::size_t call) {
      return (call + i) % 5 == 4 ? Submit::full : Submit::accepted;
    };
    movers.push_back(std::make_unique<PolledMover>(
        PolledMover::Options{.info = {.name = "device", .hardware = i >= 2, .polled = true},
                             .answer = answer,
                             .last_first = i % 2 == 1}));
  }
  auto made = Engine::make(std::move(movers), movers::all);
  ASSERT_TRUE(made.has_value()) << made.error().message();
  Engine& engine = **made;
  Atomic<std::size_t> late_count{0};
  const auto work = [&](std::uint64_t index) {
    Random random(seed + index);
    std::list<Job> jobs(8);
    std::vector<Buffers> buffers;
    for (std::size_t i = 0; i < jobs.size(); ++i) buffers.emplace_back(1000 + i * 20'000);
    const auto submit = [&](Job& job, const CopyPlan& plan, const SubmitOptions& options) {
      while (engine.submit_copy(job, plan, options) == Submit::full) engine.poll();
    };
    for (int round = 0; round < kRounds; ++round) {
      const std::size_t before_count = random() % jobs.size();
      std::size_t i = 0;
      std::array<Job*, 1> names{};
      std::vector<Job*> before;
      Job drain;
      for (Job& job : jobs) {
        if (i == before_count) {
          while (engine.submit(drain, Operation::drain()) == Submit::full) engine.poll();
        }
        if (i < before_count) before.push_back(&job);
        SubmitOptions options{.path = i % 2 == 0 ? Path::dsa : Path::cpu};
        if (i != 0 && random() % 2 == 0) options.after = names;
        submit(job, buffers[i].plan(), options);
        names[0] = &job;
        ++i;
      }
      drain.wait();
      for (Job* const job : before) {
        if (job->state() == JobState::running)
          late_count.fetch_add_relaxed(1);  // Read after the threads.
      }
      for (Job& job : jobs) job.wait();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  }
  EXPECT_EQ(late_count.load_relaxed(), 0U) << "seed " << seed;  // As said above.
}

}  // namespace
}  // namespace headrace::engine
