// SPDX-License-Identifier: Apache-2.0
// Many threads use one engine. Detects use of a job, buffer or engine after its end, completions
// that occur twice or never, and misplaced bytes: run it under the sanitizers.
#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <thread>

#include "fixtures.hpp"
#include "headrace/base/atomic.hpp"
#include "support/seed.hpp"

namespace headrace::engine {
namespace {

using test::Buffers;
using test::PolledMover;
using test::this_machine;

/// Workers on two nodes, which are often full.
std::unique_ptr<Engine> make_busy_engine() {
  return std::move(
      Engine::make(
          this_machine(2),
          {.threads_per_node = 2, .piece = kib(16), .queue_depth_max = 3, .policy = movers::all})
          .value());
}

void count_call(void* context, const Completion&) noexcept {
  static_cast<Atomic<int>*>(context)->fetch_add_relaxed(1);  // Read after the job has ended.
}

/// Submits up to `job_count` jobs of random sizes to random movers, waits for each or polls it,
/// stops some, and checks how they ended. Returns early once the engine is closed.
void copy_at_random(Engine& engine, std::uint64_t seed, int job_count) {
  Random random(seed);
  const std::array<MoverPolicy, 3> policies{movers::near_target, movers::round_robin, movers::all};
  const std::size_t byte_count_max = 256U << 10U;
  Buffers source(byte_count_max, seed);
  for (int i = 0; i < job_count; ++i) {
    const std::size_t byte_count = random.below(random.chance(1, 8) ? byte_count_max : 20'000);
    // On the heap and freed at once, so that a late access to either is a use after free.
    auto job = std::make_unique<Job>();
    std::vector<std::byte> target(byte_count);
    Atomic<int> call_count{0};
    const SubmitOptions options{.target_node = NodeId(static_cast<std::uint32_t>(random.below(2))),
                                .policy = &policies[random.below(policies.size())],
                                .callback = count_call,
                                .callback_context = &call_count};
    const CopyPlan plan{.target = target, .source = std::span(source.source).first(byte_count)};
    Submit answer = engine.submit_copy(*job, plan, options);
    while (answer == Submit::full) {
      ASSERT_EQ(job->state(), JobState::idle);
      engine.poll();
      std::this_thread::yield();
      answer = engine.submit_copy(*job, plan, options);
    }
    if (answer == Submit::closed) return;
    if (random.chance(1, 4)) job->stop();
    Completion completion;
    if (random.chance(1, 2)) {
      completion = job->wait();
    } else {
      while (!job->poll()) std::this_thread::yield();
      completion = job->completion();
    }
    ASSERT_EQ(call_count.load_relaxed(), 1);  // Ordered by the end of the job.
    job.reset();
    if (completion.state == JobState::done) {
      ASSERT_EQ(completion.bytes_done, byte_count);
      ASSERT_TRUE(std::equal(target.begin(), target.end(), source.source.begin()));
    } else {
      ASSERT_EQ(completion.state, JobState::stopped);
      ASSERT_LT(completion.bytes_done, byte_count);
    }
  }
}

TEST(EngineStress, JobsFromManyThreadsEndOnceAndAreGoneAtOnce) {
  constexpr unsigned kThreadCount = 8;
  constexpr int kJobCount = 400;
  const auto engine = make_busy_engine();
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreadCount; ++i) {
    threads.emplace_back(
        [&, i] { copy_at_random(*engine, headrace::test::seed() + i, kJobCount); });
  }
  for (std::thread& thread : threads) thread.join();
  const EngineStatistics totals = engine->statistics();
  EXPECT_EQ(totals.jobs_submitted, std::uint64_t{kThreadCount * kJobCount});
  EXPECT_EQ(totals.jobs_done + totals.jobs_stopped, totals.jobs_submitted);
  EXPECT_EQ(totals.jobs_failed, 0U);
}

TEST(EngineStress, MoversWithoutThreadsAreDrivenByManyThreads) {
  const auto flaky = [](std::size_t call) {
    return call % 3 == 2 ? Submit::full : Submit::accepted;
  };
  std::vector<std::unique_ptr<Mover>> movers;
  for (const std::uint32_t node : {0U, 1U, 0U}) {
    movers.push_back(std::make_unique<PolledMover>(
        PolledMover::Options{.info = {.name = "m", .node = NodeId(node), .polled = true},
                             .answer = flaky,
                             .last_first = node == 1}));
  }
  auto engine = std::move(Engine::make(std::move(movers)).value());
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] { copy_at_random(*engine, headrace::test::seed() + i, 150); });
  }
  for (std::thread& thread : threads) thread.join();
  const EngineStatistics totals = engine->statistics();
  EXPECT_EQ(totals.jobs_done + totals.jobs_stopped, 6U * 150U);
}

TEST(EngineStress, StoppingAnEngineWhileOthersSubmitLeavesNoJobBehind) {
  for (std::uint64_t round = 0; round < 30; ++round) {
    auto engine = make_busy_engine();
    std::vector<std::thread> threads;
    std::latch begun(4);
    for (unsigned i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        begun.count_down();
        copy_at_random(*engine, headrace::test::seed() + round * 4 + i, 1'000'000);
      });
    }
    begun.wait();
    for (std::uint64_t spin = 0; spin < round * 4; ++spin) std::this_thread::yield();
    std::thread second_stopper([&] { engine->stop(); });
    engine->stop();
    const EngineStatistics totals = engine->statistics();
    second_stopper.join();
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(totals.jobs_submitted, totals.jobs_done + totals.jobs_stopped);
    EXPECT_EQ(engine->statistics().jobs_submitted, totals.jobs_submitted);
  }
}

TEST(EngineStress, WaitersStoppersAndOneSubmitterShareAJob) {
  constexpr int kWaiterCount = 3;
  constexpr int kRoundCount = 400;
  for (const bool polled : {false, true}) {
    auto engine = polled ? test::make_polled_engine(PolledMover::Options{}, PolledMover::Options{})
                         : make_busy_engine();
    Buffers buffers(200'000);
    Job job;
    std::barrier round_begins(kWaiterCount + 1);
    std::barrier round_ends(kWaiterCount + 1);
    std::vector<std::thread> waiters;
    for (int i = 0; i < kWaiterCount; ++i) {
      waiters.emplace_back([&, i] {
        for (int round = 0; round < kRoundCount; ++round) {
          round_begins.arrive_and_wait();
          if (i == 0 && round % 3 == 0) job.stop();
          const Completion& completion = job.wait();
          EXPECT_EQ(completion.state == JobState::done, completion.bytes_done == 200'000U);
          round_ends.arrive_and_wait();
        }
      });
    }
    for (int round = 0; round < kRoundCount; ++round) {
      EXPECT_EQ(engine->submit_copy(job, buffers.plan()), Submit::accepted);
      round_begins.arrive_and_wait();
      round_ends.arrive_and_wait();
    }
    for (std::thread& waiter : waiters) waiter.join();
  }
}

TEST(EngineStress, WorkersThatHavePiecesOfAStoppedJobEndItOnce) {
  // Pieces so small that the workers contend for the queue.
  const auto engine =
      std::move(Engine::make(this_machine(), {.threads_per_node = 4, .piece = Bytes(64)}).value());
  Buffers source(64U << 10U);
  for (int i = 0; i < 1000; ++i) {
    auto job = std::make_unique<Job>();
    std::vector<std::byte> target(source.source.size());
    ASSERT_EQ(engine->submit_copy(*job, {.target = target, .source = source.source}),
              Submit::accepted);
    for (int spin = 0; spin < i % 8 && !job->poll(); ++spin) std::this_thread::yield();
    job->stop();
    while (!job->poll()) std::this_thread::yield();
    ASSERT_EQ(job->completion().state == JobState::done,
              job->completion().bytes_done == target.size());
  }
}

TEST(EngineStress, ADestroyedJobIsNotTouchedByTheWorkerThatEndedIt) {
  const auto engine = std::move(Engine::make(this_machine(), {.threads_per_node = 2}).value());
  std::byte source{1};
  std::byte target{0};
  for (int i = 0; i < 20'000; ++i) {
    auto job = std::make_unique<Job>();
    ASSERT_EQ(engine->submit_copy(*job, {.target = {&target, 1}, .source = {&source, 1}}),
              Submit::accepted);
    if (i % 2 == 0) {
      job->wait();
    } else {
      while (job->state() == JobState::running) std::this_thread::yield();
    }
    // As early as possible: the worker may not have returned from the store that ended the job.
    job.reset();
  }
}

TEST(EngineStress, ADestroyedEngineIsNotTouchedByTheThreadThatEndedItsLastJob) {
  for (int i = 0; i < 300; ++i) {
    auto engine = test::make_polled_engine(PolledMover::Options{});
    Buffers buffers(10);
    Job job;
    ASSERT_EQ(engine->submit_copy(job, buffers.plan()), Submit::accepted);
    std::thread waiter([&] { job.wait(); });
    while (!job.poll()) std::this_thread::yield();
    engine.reset();
    waiter.join();
  }
}

}  // namespace
}  // namespace headrace::engine
