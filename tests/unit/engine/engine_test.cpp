// SPDX-License-Identifier: Apache-2.0
// The life cycle of an engine: creation, refusal, stop, statistics.
#include <gtest/gtest.h>

#include <set>
#include <string_view>
#include <thread>

#include "fixtures.hpp"
#include "headrace/base/atomic.hpp"

namespace headrace::engine {
namespace {

using test::Buffers;
using test::make_engine;
using test::make_polled_engine;
using test::PolledMover;
using test::Roadblock;
using test::this_machine;

Code code_of(const topo::Machine& machine, EngineOptions options) {
  const auto engine = Engine::make(machine, std::move(options));
  EXPECT_FALSE(engine.has_value());
  return engine.has_value() ? Code::not_found : engine.error().code;
}

TEST(Engine, ImpossibleOptionsAreRefusedWithTheirCause) {
  topo::Machine machine = this_machine(2);
  machine.nodes[1].cpus.clear();
  EXPECT_EQ(code_of(machine, {.nodes = {NodeId(7)}}), Code::invalid_argument);
  EXPECT_EQ(code_of(machine, {.nodes = {NodeId(1)}}), Code::invalid_argument);
  EXPECT_EQ(code_of(machine, {.nodes = {NodeId(0), NodeId(0)}}), Code::invalid_argument);
  EXPECT_EQ(code_of(topo::Machine(), {}), Code::invalid_argument);
  EXPECT_NE(Engine::make(machine, {.nodes = {NodeId(7)}}).error().message().find("no node 7"),
            std::string::npos);
}

TEST(Engine, OptionsBeyondTheirLimitsAreRefusedWithTheLimit) {
  using std::chrono::nanoseconds;
  constexpr auto kNever = nanoseconds::max();
  constexpr std::size_t kHuge = SIZE_MAX;  // -1 converted.
  struct Bad {
    EngineOptions options;
    const char* words;
  };
  const std::vector<Bad> bad{
      {{.threads_per_node = EngineOptions::kThreadsMax + 1}, "1025 threads per node are more"},
      {{.threads_per_node = kHuge}, "more than 1024"},
      {{.piece = Bytes(0)}, "a piece has 0 bytes"},
      {{.piece = EngineOptions::kPieceMax + Bytes(1)}, "4294967297 bytes is larger than 4 GiB"},
      {{.piece = Bytes(kHuge)}, "larger than 4 GiB"},
      {{.queue_depth_max = 0}, "queue depth is 0"},
      {{.queue_depth_max = EngineOptions::kQueueDepthMax + 1}, "1048577 is more than 1048576"},
      {{.queue_depth_max = kHuge}, "is more than 1048576"},
      {{.path = static_cast<Path>(3)}, "invalid path"},
      {{.devices = {.use = false, .queues = {"dsa0/wq0.0"}}}, "'dsa0/wq0.0' is named, but devices"},
      {{.devices = {.page_faults = static_cast<FaultPolicy>(3)}}, "invalid fault policy"},
      {{.devices = {.timeout = nanoseconds(0)}}, "after 0 ns without an answer"},
      {{.devices = {.timeout = nanoseconds::min()}}, "at most a year"},
      {{.devices = {.timeout = kNever}}, "at most a year"},
      {{.waiting = static_cast<Waiting>(5)}, "invalid `waiting`"},
  };
  for (const Bad& one : bad) {
    const auto engine = Engine::make(this_machine(), one.options);
    ASSERT_FALSE(engine.has_value()) << one.words;
    EXPECT_EQ(engine.error().code, Code::invalid_argument) << one.words;
    const std::string message = engine.error().message();
    EXPECT_NE(message.find(one.words), std::string::npos) << message;
  }
}

TEST(Engine, OptionsAtTheirLimitsAreTaken) {
  std::vector<std::byte> source(100'000, std::byte{1});
  const std::vector<EngineOptions> good{
      {.threads_per_node = 1, .piece = Bytes(1), .queue_depth_max = 1},
      {.threads_per_node = 1,
       .piece = EngineOptions::kPieceMax,
       .queue_depth_max = EngineOptions::kQueueDepthMax},
      // Every size by a device, or none.
      {.thresholds = PathThresholds{Bytes(0), Bytes(0), Bytes(0)}},
      {.thresholds = PathThresholds{Bytes(UINT64_MAX), Bytes(UINT64_MAX), Bytes(UINT64_MAX)}},
      {.devices = {.timeout = std::chrono::nanoseconds(1)}},
      {.devices = {.timeout = DeviceOptions::kTimeoutMax}},
  };
  for (std::size_t i = 0; i < good.size(); ++i) {
    const auto engine = Engine::make(this_machine(), good[i]);
    ASSERT_TRUE(engine.has_value()) << i << ": " << engine.error().message();
    std::vector<std::byte> target(source.size());
    Job job;
    // The policy knows no mover of a missing node.
    const SubmitOptions options{.source_node = NodeId(9), .target_node = NodeId(UINT32_MAX - 1)};
    ASSERT_EQ((*engine)->submit_copy(job, {target, source}, options), Submit::accepted) << i;
    EXPECT_EQ(job.wait().state, JobState::done) << i;
    EXPECT_EQ(target, source) << i;
  }
}

TEST(Engine, ProcessorsThatDoNotExistAreRefused) {
  topo::Machine machine = this_machine();
  machine.nodes[0].cpus = {CpuId(60'000)};
  EXPECT_EQ(code_of(machine, {.threads_per_node = 2}), Code::unsupported);
}

TEST(Engine, AWayToWaitThatThereIsNotIsRefusedWithMoversOfOnesOwn) {
  std::vector<std::unique_ptr<Mover>> movers;
  movers.push_back(std::make_unique<PolledMover>(PolledMover::Options{}));
  const auto engine = Engine::make(std::move(movers), {}, {.waiting = static_cast<Waiting>(99)});
  ASSERT_FALSE(engine.has_value());
  EXPECT_EQ(engine.error().code, Code::invalid_argument);
  EXPECT_NE(engine.error().message().find("invalid `waiting`"), std::string::npos);
}

TEST(Engine, NoMoverOrANullOneIsRefused) {
  EXPECT_EQ(Engine::make(std::vector<std::unique_ptr<Mover>>()).error().code,
            Code::invalid_argument);
  std::vector<std::unique_ptr<Mover>> movers(1);
  EXPECT_EQ(Engine::make(std::move(movers)).error().code, Code::invalid_argument);
}

TEST(Engine, OnlyNodesWithProcessorsGetWorkers) {
  topo::Machine machine = this_machine(3);
  machine.nodes[1].cpus.clear();
  const auto engine = Engine::make(machine);
  ASSERT_TRUE(engine.has_value());
  const std::vector<MoverInfo> movers = (*engine)->movers();
  ASSERT_EQ(movers.size(), 2U);
  EXPECT_EQ(movers[0].name, "cpu/node0");
  EXPECT_EQ(movers[1].name, "cpu/node2");
  EXPECT_EQ(movers[1].node, NodeId(2));
  EXPECT_FALSE(movers[1].hardware);
  EXPECT_FALSE(movers[1].polled);
}

TEST(Engine, AnEmptyPlanIsDoneAtOnceAndCallsBack) {
  const auto engine = make_polled_engine(PolledMover::Options{});
  Job job;
  int call_count = 0;
  ASSERT_EQ(engine->submit_copy(job, {},
                                {.callback =
                                     [](void* context, const Completion& completion) noexcept {
                                       EXPECT_EQ(completion.state, JobState::done);
                                       ++*static_cast<int*>(context);
                                     },
                                 .callback_context = &call_count}),
            Submit::accepted);
  EXPECT_EQ(job.state(), JobState::done);
  EXPECT_EQ(call_count, 1);
}

TEST(Engine, AfterStopSubmissionsAreClosedAndJobsAreAsBefore) {
  const auto engine = make_engine({.threads_per_node = 1});
  Buffers buffers(1000);
  Job job;
  engine->stop();
  engine->stop();
  EXPECT_EQ(engine->submit_copy(job, buffers.plan()), Submit::closed);
  EXPECT_EQ(engine->submit_copy(job, {}), Submit::closed);
  EXPECT_EQ(job.state(), JobState::idle);
  EXPECT_EQ(buffers.moved_bytes(), 0U);
  EXPECT_EQ(engine->statistics().submissions_refused, 2U);
}

TEST(Engine, StopEndsEveryJobThatRuns) {
  for (std::uint64_t round = 0; round < 20; ++round) {
    auto engine = make_engine({.threads_per_node = 2, .piece = kib(4)});
    std::vector<Job> jobs(20);
    std::vector<Buffers> buffers;
    for (std::size_t i = 0; i < jobs.size(); ++i) buffers.emplace_back(64U << 10U, i);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      ASSERT_EQ(engine->submit_copy(jobs[i], buffers[i].plan()), Submit::accepted);
    }
    if (round % 2 == 0) {
      engine->stop();
    } else {
      engine.reset();
    }
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      ASSERT_NE(jobs[i].state(), JobState::running);
      ASSERT_EQ(jobs[i].completion().bytes_done, buffers[i].moved_bytes());
      ASSERT_EQ(jobs[i].wait().state, buffers[i].equal() ? JobState::done : JobState::stopped);
    }
  }
}

TEST(Engine, AnEngineMayBeDestroyedWhileOthersWaitForItsJobs) {
  for (int round = 0; round < 50; ++round) {
    for (const bool polled : {false, true}) {
      std::unique_ptr<Engine> engine = polled ? make_polled_engine(PolledMover::Options{})
                                              : make_engine({.threads_per_node = 1});
      Buffers buffers(100'000);
      Job job;
      ASSERT_EQ(engine->submit_copy(job, buffers.plan()), Submit::accepted);
      std::latch waiting(2);
      std::thread waiter([&] {
        waiting.count_down();
        EXPECT_NE(job.wait().state, JobState::running);
      });
      std::thread poller([&] {
        waiting.count_down();
        while (!job.poll()) std::this_thread::yield();
      });
      waiting.wait();
      engine.reset();
      waiter.join();
      poller.join();
    }
  }
}

TEST(Engine, StopWaitsForAJobWhoseSharesNoMoverHoldsAnyMore) {
  const auto engine = make_polled_engine(PolledMover::Options{});
  struct Seen {
    std::latch reached{1};
    Atomic<bool> over{false};
  } seen;
  Buffers buffers(100);
  Job job;
  ASSERT_EQ(engine->submit_copy(job, buffers.plan(),
                                {.callback =
                                     [](void* context, const Completion&) noexcept {
                                       auto* const self = static_cast<Seen*>(context);
                                       self->reached.count_down();
                                       for (int i = 0; i < 1000; ++i) std::this_thread::yield();
                                       self->over.store_relaxed(true);  // Relaxed: read after
                                                                        // stop().
                                     },
                                 .callback_context = &seen}),
            Submit::accepted);
  std::thread poller([&] { engine->poll(); });
  seen.reached.wait();
  engine->stop();
  EXPECT_TRUE(seen.over.load_relaxed());  // Relaxed: ordered by stop().
  EXPECT_EQ(job.state(), JobState::done);
  poller.join();
}

TEST(Engine, TotalsAreExact) {
  const auto engine = make_engine({.threads_per_node = 2, .queue_depth_max = 1});
  Buffers buffers(3000);
  Job job;
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(engine->submit_copy(job, buffers.plan()), Submit::accepted);
    job.wait();
  }
  ASSERT_EQ(engine->submit_copy(job, {}), Submit::accepted);
  const MoverPolicy nobody = [](const MoveContext&, MoverChoice&) {};
  ASSERT_EQ(engine->submit_copy(job, buffers.plan(), {.policy = &nobody}), Submit::accepted);
  engine->stop();
  ASSERT_EQ(engine->submit_copy(job, buffers.plan()), Submit::closed);
  const EngineStatistics totals = engine->statistics();
  EXPECT_EQ(totals.jobs_submitted, 12U);
  EXPECT_EQ(totals.jobs_done, 11U);
  EXPECT_EQ(totals.jobs_failed, 1U);
  EXPECT_EQ(totals.jobs_stopped, 0U);
  EXPECT_EQ(totals.submissions_refused, 1U);
  EXPECT_EQ(totals.bytes_moved, 30'000U);
}

TEST(Engine, APlanThatCannotBeIsRefusedByName) {
  const auto engine = make_polled_engine(PolledMover::Options{});
  Buffers buffers(1000);
  Job job;
  const std::span<std::byte> bytes(buffers.target);
  EXPECT_EQ(engine->submit_copy(job, {.target = bytes, .source = bytes.first(1)}),
            Submit::length_differs);
  EXPECT_EQ(engine->submit_copy(
                job, {.target = bytes, .source = {static_cast<std::byte*>(nullptr), 1000}}),
            Submit::null_address);
  EXPECT_EQ(engine->submit_copy(job, {.target = bytes.subspan(1), .source = bytes.first(999)}),
            Submit::overlapping);
  EXPECT_EQ(job.state(), JobState::idle);
  EXPECT_EQ(engine->statistics().jobs_submitted, 0U);
}

TEST(Job, EveryCauseSaysWhatToDo) {
  std::set<std::string_view> said;
  unsigned cause = 0;
  for (; name(static_cast<Cause>(cause)) != "unknown"; ++cause) {
    said.insert(explain(static_cast<Cause>(cause)));
  }
  EXPECT_EQ(said.size(), cause);
  EXPECT_EQ(cause, static_cast<unsigned>(Cause::predecessor_failed) + 1);
  EXPECT_EQ(said.count(explain(static_cast<Cause>(cause))), 0U);
}

TEST(EngineDeathTest, BrokenContractsAreNamed) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto engine = make_polled_engine(PolledMover::Options{});
  Buffers buffers(1000);
  Job job;
  const auto submit = [&](const CopyPlan& plan) {
    static_cast<void>(engine->submit_copy(job, plan));
  };
  EXPECT_DEATH(job.wait(), "submitted");
  EXPECT_DEATH(static_cast<void>(job.completion()), "ended");
  submit(buffers.plan());
  EXPECT_DEATH(submit(buffers.plan()), "running job");
  EXPECT_DEATH(static_cast<void>(job.completion()), "ended");
}

TEST(EngineDeathTest, ACallbackThatEndsTheEngineIsTold) {
  constexpr const char* kMessage = "must not stop or destroy the engine.*another thread";
  static std::unique_ptr<Engine>* engine = nullptr;
  static Engine* stopped = nullptr;
  const SubmitOptions stopping{
      .callback = [](void*, const Completion&) noexcept { stopped->stop(); }};
  const SubmitOptions ending{.then = [](void*) noexcept { engine->reset(); }};
  const auto die = [](std::unique_ptr<Engine> made, const SubmitOptions& options) {
    engine = &made;
    stopped = made.get();
    Buffers buffers(10);
    Job job;
    static_cast<void>(made->submit_copy(job, buffers.plan(), options));
    if (made->movers()[0].polled) made->poll();
    job.wait();
    // A job ends before its `then` is called.
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  };
  const PolledMover::Options device{.info = {.name = "device", .hardware = true, .polled = true}};
  for (const SubmitOptions& options : {stopping, ending}) {
    // By the polling thread, by a worker, and by the submitting thread.
    EXPECT_DEATH(die(make_polled_engine(PolledMover::Options{}), options), kMessage);
    EXPECT_DEATH(die(make_engine({.threads_per_node = 1}), options), kMessage);
    EXPECT_DEATH(die(make_polled_engine(device, PolledMover::Options{}), options), kMessage);
  }
}

TEST(Engine, WithinItsCallbacksAnotherEngineMayBeEnded) {
  const auto engine = make_polled_engine(PolledMover::Options{});
  auto other = make_polled_engine(PolledMover::Options{});
  Buffers buffers(10);
  Job job;
  const SubmitOptions options{
      .then = [](void* ended) noexcept { static_cast<std::unique_ptr<Engine>*>(ended)->reset(); },
      .then_context = &other};
  ASSERT_EQ(engine->submit_copy(job, buffers.plan(), options), Submit::accepted);
  engine->poll();
  EXPECT_EQ(other, nullptr);
  engine->stop();
}

TEST(Engine, WithoutAProfileItsThresholdsArePublishedFigures) {
  const auto engine = make_engine({.threads_per_node = 1});
  EXPECT_EQ(engine->threshold_source(), ThresholdSource::published);
  EXPECT_EQ(name(engine->threshold_source()), "published");
  EXPECT_EQ(engine->thresholds().synchronous, kib(24));
}

TEST(Engine, SourceAndTargetMayBeTheSame) {
  const auto engine = make_engine({.threads_per_node = 1});
  Buffers buffers(1000);
  Job job;
  ASSERT_EQ(engine->submit_copy(job, {.target = buffers.source, .source = buffers.source}),
            Submit::accepted);
  EXPECT_EQ(job.wait().state, JobState::done);
}

}  // namespace
}  // namespace headrace::engine
