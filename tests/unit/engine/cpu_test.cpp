// SPDX-License-Identifier: Apache-2.0
// The engine with worker threads.
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <sys/mman.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "fixtures.hpp"
#include "headrace/base/atomic.hpp"
#include "headrace/base/clock.hpp"
#include "headrace/platform/memory.hpp"
#include "support/seed.hpp"
#include "support/watchdog.hpp"

namespace headrace::engine {
namespace {

using test::Buffers;
using test::make_engine;
using test::Roadblock;
using test::this_machine;

TEST(CpuEngine, LargeMemoryThatIsNotThereIsNamedAndNothingIsWritten) {
  const auto engine = make_engine({.threads_per_node = 2, .piece = kib(64)});
  constexpr std::size_t kLong = std::size_t{4} << 20U;
  constexpr std::size_t kPage = 4096;
  for (const std::size_t hole : {std::size_t{0}, 700 * kPage, kLong - kPage}) {
    Buffers buffers(kLong);  // Allocated before there is a hole in which it could be placed.
    const auto pages = platform::allocate_pages(kLong, std::nullopt);
    ASSERT_TRUE(pages.has_value());
    ASSERT_EQ(::munmap(pages->data() + hole, kPage), 0);
    const auto address = reinterpret_cast<std::uintptr_t>(pages->data() + hole);
    for (const bool is_source : {true, false}) {
      const Operation operation = is_source ? Operation::copy(buffers.target, *pages)
                                            : Operation::copy(*pages, buffers.source);
      Completion run;
      ASSERT_EQ(engine->run(operation, run), Submit::accepted);
      Job job;
      ASSERT_EQ(engine->submit(job, operation), Submit::accepted);
      for (const Completion& end : {run, job.wait()}) {
        EXPECT_EQ(end.state, JobState::failed);
        EXPECT_EQ(end.cause, Cause::page_fault);
        EXPECT_EQ(end.fault_address, address) << hole;
        EXPECT_EQ(end.bytes_done, 0U);
      }
    }
    EXPECT_EQ(buffers.moved_bytes(), 0U);
    // An address inside a page.
    Completion end;
    ASSERT_EQ(engine->run(Operation::crc(pages->subspan(100)), end), Submit::accepted);
    EXPECT_EQ(end.fault_address, hole == 0 ? address + 100 : address);
    ::munmap(pages->data(), kLong);
  }
}

TEST(CpuEngine, CopiesOfEverySizeAreCorrect) {
  const auto engine = make_engine({.threads_per_node = 2, .piece = kib(64)});
  Random random(headrace::test::seed());
  std::vector<std::size_t> sizes{0,       1,       2,       63,           64,    65,
                                 4095,    4096,    4097,    65535,        65536, 65537,
                                 1 << 20, 1 << 21, 8 << 20, (8 << 20) - 1};
  for (unsigned i = 0; i < 30; ++i) sizes.push_back(random.below(std::uint64_t{1} << (1 + i % 22)));
  Job job;
  for (const std::size_t size : sizes) {
    Buffers buffers(size, random());
    ASSERT_EQ(engine->submit_copy(job, buffers.plan()), Submit::accepted);
    const Completion& completion = job.wait();
    ASSERT_EQ(completion.state, JobState::done);
    ASSERT_EQ(completion.cause, Cause::none);
    ASSERT_EQ(completion.bytes_done, size);
    ASSERT_FALSE(completion.fell_back);
    ASSERT_TRUE(buffers.equal()) << size;
  }
}

TEST(CpuEngine, AJobSplitAmongNodesIsCorrect) {
  auto engine = Engine::make(this_machine(8), {.threads_per_node = 1, .policy = movers::all});
  ASSERT_TRUE(engine.has_value());
  Random random(headrace::test::seed());
  for (int i = 0; i < 50; ++i) {
    Buffers buffers(random.below(2 << 20), random());
    const std::size_t shift = std::min<std::size_t>(random.below(64), buffers.target.size());
    Job job;
    ASSERT_EQ((*engine)->submit_copy(job, {.target = std::span(buffers.target).subspan(shift),
                                           .source = std::span(buffers.source).subspan(shift)}),
              Submit::accepted);
    ASSERT_EQ(job.wait().state, JobState::done);
    ASSERT_EQ(job.completion().bytes_done, buffers.target.size() - shift);
    ASSERT_EQ(buffers.moved_bytes(), buffers.target.size() - shift);
  }
}

TEST(CpuEngine, ASmallJobWaitsForOnePieceOfALargeOneAndNotForItsEnd) {
  const auto engine = make_engine({.threads_per_node = 1, .piece = kib(64)});
  struct Large {
    Buffers buffers{16U << 20U};
    Job job;
    JobState state_when_the_small_one_ended = JobState::idle;
    std::size_t bytes_when_the_small_one_ended = 0;
  } large;
  Buffers small(1000);
  Job small_job;
  {
    Roadblock roadblock(*engine);
    ASSERT_EQ(engine->submit_copy(large.job, large.buffers.plan()), Submit::accepted);
    ASSERT_EQ(engine->submit_copy(small_job, small.plan(),
                                  {.callback =
                                       [](void* context, const Completion&) noexcept {
                                         auto* const seen = static_cast<Large*>(context);
                                         seen->state_when_the_small_one_ended = seen->job.state();
                                         seen->bytes_when_the_small_one_ended =
                                             seen->buffers.moved_bytes();
                                       },
                                   .callback_context = &large}),
              Submit::accepted);
  }
  EXPECT_EQ(small_job.wait().state, JobState::done);
  EXPECT_EQ(large.job.wait().state, JobState::done);
  EXPECT_EQ(large.state_when_the_small_one_ended, JobState::running);
  EXPECT_EQ(large.bytes_when_the_small_one_ended, kib(64).count());
  EXPECT_TRUE(small.equal());
  EXPECT_TRUE(large.buffers.equal());
}

TEST(CpuEngine, AFullQueueRefusesAndLeavesTheJobAsItWas) {
  const auto engine = make_engine({.threads_per_node = 1, .queue_depth_max = 2});
  Buffers buffers(100);
  Job ended;
  ASSERT_EQ(engine->submit_copy(ended, buffers.plan()), Submit::accepted);
  ASSERT_EQ(ended.wait().state, JobState::done);
  Buffers first_buffers(100);
  Buffers second_buffers(100);
  Buffers refused_buffers(100);
  Job first;
  Job second;
  Job fresh;
  {
    Roadblock roadblock(*engine);
    ASSERT_EQ(engine->submit_copy(first, first_buffers.plan()), Submit::accepted);
    ASSERT_EQ(engine->submit_copy(second, second_buffers.plan()), Submit::accepted);
    EXPECT_EQ(engine->submit_copy(fresh, refused_buffers.plan()), Submit::full);
    EXPECT_EQ(engine->submit_copy(ended, refused_buffers.plan()), Submit::full);
    EXPECT_EQ(fresh.state(), JobState::idle);
    EXPECT_EQ(ended.state(), JobState::done);
    EXPECT_EQ(ended.completion().bytes_done, 100U);
  }
  EXPECT_EQ(first.wait().state, JobState::done);
  EXPECT_EQ(second.wait().state, JobState::done);
  EXPECT_EQ(refused_buffers.moved_bytes(), 0U);
  EXPECT_EQ(engine->statistics().submissions_refused, 2U);
  EXPECT_EQ(engine->submit_copy(fresh, refused_buffers.plan()), Submit::accepted);
  EXPECT_EQ(fresh.wait().state, JobState::done);
}

TEST(CpuEngine, WhoeverSawAJobEndFindsRoomForTheNext) {
  const auto engine = make_engine({.threads_per_node = 2, .piece = kib(4), .queue_depth_max = 1});
  Buffers buffers(64U << 10U);
  Job job;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(engine->submit_copy(job, buffers.plan()), Submit::accepted);
    ASSERT_EQ(job.wait().state, JobState::done);
  }
}

TEST(CpuEngine, AJobStoppedInTheMiddleKeepsWhatWasBegunAndStartsNothingMore) {
  const auto engine = make_engine({.threads_per_node = 1, .piece = kib(4)});
  Buffers large(1U << 20U);
  Buffers small(10);
  Job large_job;
  Job small_job;
  {
    Roadblock roadblock(*engine);
    ASSERT_EQ(engine->submit_copy(large_job, large.plan()), Submit::accepted);
    ASSERT_EQ(engine->submit_copy(small_job, small.plan(),
                                  {.callback =
                                       [](void* context, const Completion&) noexcept {
                                         static_cast<Job*>(context)->stop();
                                       },
                                   .callback_context = &large_job}),
              Submit::accepted);
  }
  EXPECT_EQ(large_job.wait().state, JobState::stopped);
  EXPECT_EQ(large_job.completion().bytes_done, kib(4).count());
  EXPECT_EQ(large.moved_bytes(), kib(4).count());
  EXPECT_EQ(small_job.wait().state, JobState::done);
}

TEST(CpuEngine, AJobStoppedBeforeItsFirstPieceMovesNothing) {
  const auto engine = make_engine({.threads_per_node = 1});
  Buffers buffers(4096);
  Job job;
  {
    Roadblock roadblock(*engine);
    ASSERT_EQ(engine->submit_copy(job, buffers.plan()), Submit::accepted);
    job.stop();
    EXPECT_TRUE(job.stop_requested());
  }
  EXPECT_EQ(job.wait().state, JobState::stopped);
  EXPECT_EQ(job.completion().bytes_done, 0U);
  EXPECT_EQ(buffers.moved_bytes(), 0U);
  EXPECT_EQ(engine->statistics().jobs_stopped, 1U);
  // The stop applies to that submission only.
  ASSERT_EQ(engine->submit_copy(job, buffers.plan()), Submit::accepted);
  EXPECT_EQ(job.wait().state, JobState::done);
}

TEST(CpuEngine, BytesDoneOfAStoppedJobAreTheBytesMoved) {
  const auto engine = make_engine({.threads_per_node = 3, .piece = kib(4)});
  for (std::uint64_t i = 0; i < 50; ++i) {
    Buffers buffers(256U << 10U, i);
    Job job;
    ASSERT_EQ(engine->submit_copy(job, buffers.plan()), Submit::accepted);
    for (std::uint64_t spin = 0; spin < i && !job.poll(); ++spin) std::this_thread::yield();
    job.stop();
    const Completion& completion = job.wait();
    ASSERT_EQ(completion.bytes_done, buffers.moved_bytes());
    ASSERT_EQ(completion.state, buffers.equal() ? JobState::done : JobState::stopped);
  }
}

TEST(CpuEngine, StoppingAJobThatDoesNotRunHasNoEffect) {
  const auto engine = make_engine({.threads_per_node = 1});
  Buffers buffers(4096);
  Job job;
  job.stop();
  EXPECT_FALSE(job.stop_requested());
  ASSERT_EQ(engine->submit_copy(job, buffers.plan()), Submit::accepted);
  EXPECT_EQ(job.wait().state, JobState::done);
  job.stop();
  EXPECT_EQ(job.state(), JobState::done);
}

TEST(CpuEngine, DestroyingARunningJobStopsItAndWaits) {
  const auto engine = make_engine({.threads_per_node = 2, .piece = kib(4)});
  for (std::uint64_t i = 0; i < 50; ++i) {
    Buffers buffers(256U << 10U, i);
    Job job;
    ASSERT_EQ(engine->submit_copy(job, buffers.plan()), Submit::accepted);
    // Both are destroyed here, the job first: a sanitizer detects a worker that still writes.
  }
  const EngineStatistics totals = engine->statistics();
  EXPECT_EQ(totals.jobs_done + totals.jobs_stopped, 50U);
}

TEST(CpuEngine, TheCallbackRunsOnceBeforeTheJobLeavesRunning) {
  const auto engine = make_engine({.threads_per_node = 2, .piece = kib(4)});
  struct Seen {
    Job job;
    int call_count = 0;
    JobState state = JobState::idle;
    Completion completion;
  } seen;
  Buffers buffers(300'000);
  for (int i = 1; i <= 100; ++i) {
    ASSERT_EQ(engine->submit_copy(seen.job, buffers.plan(),
                                  {.callback =
                                       [](void* context, const Completion& completion) noexcept {
                                         auto* const self = static_cast<Seen*>(context);
                                         ++self->call_count;
                                         self->state = self->job.state();
                                         self->completion = completion;
                                       },
                                   .callback_context = &seen}),
              Submit::accepted);
    seen.job.wait();
    ASSERT_EQ(seen.call_count, i);
    ASSERT_EQ(seen.state, JobState::running);
    ASSERT_EQ(seen.completion.state, JobState::done);
    ASSERT_EQ(seen.completion.bytes_done, 300'000U);
  }
}

TEST(CpuEngine, ACallbackMaySubmitTheNextJob) {
  const auto engine = make_engine({.threads_per_node = 2});
  struct Chain {
    Engine* engine;
    Buffers buffers{5000};
    std::vector<Job> jobs = std::vector<Job>(100);
    std::size_t next = 0;
    std::latch ended{1};

    void submit() {
      Job& job = jobs[next++];
      EXPECT_EQ(engine->submit_copy(job, buffers.plan(),
                                    {.callback =
                                         [](void* context, const Completion&) noexcept {
                                           auto* const self = static_cast<Chain*>(context);
                                           if (self->next < self->jobs.size()) {
                                             self->submit();
                                           } else {
                                             self->ended.count_down();
                                           }
                                         },
                                     .callback_context = this}),
                Submit::accepted);
    }
  } chain{.engine = engine.get()};
  chain.submit();
  chain.ended.wait();
  for (Job& job : chain.jobs) EXPECT_EQ(job.wait().state, JobState::done);
}

TEST(CpuEngine, SeveralThreadsMayWaitForOneJob) {
  const auto engine = make_engine({.threads_per_node = 1});
  Buffers buffers(4096);
  Job job;
  std::vector<std::thread> waiters;
  {
    Roadblock roadblock(*engine);
    ASSERT_EQ(engine->submit_copy(job, buffers.plan()), Submit::accepted);
    for (int i = 0; i < 4; ++i) {
      waiters.emplace_back([&] { EXPECT_EQ(job.wait().bytes_done, 4096U); });
    }
  }
  for (std::thread& waiter : waiters) waiter.join();
}

TEST(CpuEngine, WorkersRunOnTheProcessorsOfTheirNode) {
  topo::Machine machine = this_machine(2);
  const std::vector<CpuId> all = platform::allowed_cpus();
  machine.nodes[0].cpus = {all.front()};
  machine.nodes[1].cpus = {all.back()};
  const auto engine = Engine::make(machine, {.threads_per_node = 2});
  ASSERT_TRUE(engine.has_value());
  for (const topo::Node& node : machine.nodes) {
    Buffers buffers(100);
    std::vector<CpuId> seen;
    Job job;
    ASSERT_EQ((*engine)->submit_copy(job, buffers.plan(),
                                     {.target_node = node.id,
                                      .callback =
                                          [](void* context, const Completion&) noexcept {
                                            *static_cast<std::vector<CpuId>*>(context) =
                                                platform::allowed_cpus();
                                          },
                                      .callback_context = &seen}),
              Submit::accepted);
    job.wait();
    EXPECT_EQ(seen, node.cpus);
  }
}

/// Number of this process's worker threads, and of sleeping ones.
std::pair<int, int> count_workers() {
  int all = 0;
  int asleep = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "stat");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (text.find("(hr-") == std::string::npos) continue;
    ++all;
    if (text.find(") S") != std::string::npos) ++asleep;
  }
  return {all, asleep};
}

TEST(CpuEngine, IdleWorkersSleep) {
  const auto engine = make_engine({.threads_per_node = 3});
  Buffers buffers(1U << 20U);
  Job job;
  ASSERT_EQ(engine->submit_copy(job, buffers.plan()), Submit::accepted);
  job.wait();
  const std::chrono::nanoseconds deadline = steady_clock().now() + std::chrono::seconds(20);
  std::pair<int, int> workers = count_workers();
  while (workers != std::pair(3, 3) && steady_clock().now() < deadline) {
    std::this_thread::yield();
    workers = count_workers();
  }
  EXPECT_EQ(workers, std::pair(3, 3));
}

TEST(CpuEngine, ABatchThatIsStoppedBeforeItBeginsSaysSoOfEveryOperation) {
  const auto engine = make_engine({.threads_per_node = 1});
  // Without a byte and with some.
  for (const std::size_t byte_count : {std::size_t{0}, std::size_t{64}}) {
    std::vector<std::byte> target(64);
    const Operation operation = byte_count == 0 ? Operation::no_op() : Operation::fill(target, 7);
    const std::vector<Operation> operations(3, operation);
    std::vector<Completion> completions(operations.size());
    Job job;
    {
      Roadblock roadblock(*engine);
      ASSERT_EQ(engine->submit_batch(job, {operations, completions}, {.path = Path::cpu}),
                Submit::accepted);
      job.stop();
    }
    EXPECT_EQ(job.wait().state, JobState::stopped);
    for (const Completion& one : completions) EXPECT_EQ(one.state, JobState::stopped);
    EXPECT_EQ(target[0], std::byte{0});
  }
}

TEST(CpuEngine, AWaitOfCenturiesEndsWithTheJob) {
  const auto engine = make_engine({.threads_per_node = 1});
  Buffers buffers(100);
  Job job;
  Roadblock roadblock(*engine);
  ASSERT_EQ(engine->submit_copy(job, buffers.plan(), {.path = Path::cpu}), Submit::accepted);
  bool ended = false;
  headrace::test::ObservedThread waiter(
      [&] { ended = job.wait_for(std::chrono::nanoseconds::max() - std::chrono::nanoseconds(1)); });
  waiter.await_asleep();
  roadblock.open();
  waiter.join();
  EXPECT_TRUE(ended);
}

TEST(Cpu, WorkersRunNoSignalHandlerOfTheProgram) {
  const auto engine = make_engine({.threads_per_node = 1});
  Buffers buffers(100);
  sigset_t mask;
  ::sigemptyset(&mask);
  Job job;
  ASSERT_EQ(engine->submit_copy(job, buffers.plan(),
                                {.callback =
                                     [](void* context, const Completion&) noexcept {
                                       ::pthread_sigmask(SIG_BLOCK, nullptr,
                                                         static_cast<sigset_t*>(context));
                                     },
                                 .callback_context = &mask}),
            Submit::accepted);
  job.wait();
  EXPECT_EQ(::sigismember(&mask, SIGUSR1), 1);
  EXPECT_EQ(::sigismember(&mask, SIGBUS), 0);
}

}  // namespace
}  // namespace headrace::engine
