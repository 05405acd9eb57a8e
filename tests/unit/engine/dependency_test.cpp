// SPDX-License-Identifier: Apache-2.0
// Jobs that depend on others (SubmitOptions::after): when they begin, how they end, which thread
// begins them. Races between the end of a job and the submission of a dependant:
// tests/model/engine/dependants_model.cpp.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "fixtures.hpp"
#include "headrace/base/atomic.hpp"
#include "headrace/engine/awaitable.hpp"
#include "support/detached.hpp"

namespace headrace::engine::dependency_test {
namespace {

using headrace::test::Detached;
using test::Buffers;
using test::make_engine;
using test::make_polled_engine;
using test::PolledMover;

constexpr std::chrono::seconds kLong{60};

/// One mover without a thread that records what it began, by the first byte of the source, and
/// fails on request.
struct Told {
  std::vector<int> begun;
  int failing = -1;
  std::size_t full_count = 0;  ///< Number of submissions to refuse, once `may_refuse`.
  bool may_refuse = false;
  bool hardware = false;
  bool polled = true;

  std::unique_ptr<Mover> make() {
    return std::make_unique<PolledMover>(
        PolledMover::Options{.info = {.name = "told",
                                      .hardware = hardware,
                                      .polled = polled,
                                      .operations = OperationSet::all(),
                                      .batches = true},
                             .answer =
                                 [this](std::size_t) {
                                   if (!may_refuse || full_count == 0) return Submit::accepted;
                                   --full_count;
                                   return Submit::full;
                                 },
                             .work = [this](const Request& request) { return work(request); }});
  }
  Completion work(const Request& request) {
    const Operation operation =
        request.batch().operations.empty() ? request.operation() : request.batch().operations[0];
    const int which = operation.source().empty() ? -1 : static_cast<int>(operation.source()[0]);
    begun.push_back(which);
    if (which == failing) return {.cause = Cause::device_error};
    std::memmove(operation.target().data(), operation.source().data(), operation.source().size());
    return {.bytes_done = request.byte_count()};
  }
  std::unique_ptr<Engine> engine() {
    std::vector<std::unique_ptr<Mover>> movers;
    movers.push_back(make());
    return std::move(Engine::make(std::move(movers))).value();
  }
};

/// Jobs that copy four bytes from place i to itself, which identifies them.
struct Jobs {
  explicit Jobs(std::size_t count) : places(count), jobs(count) {
    for (std::size_t i = 0; i < count; ++i) places[i].fill(static_cast<std::byte>(i));
  }
  Submit submit(Engine& engine, std::size_t which, std::initializer_list<std::size_t> after,
                SubmitOptions options = {}) {
    std::vector<Job*> named;
    for (const std::size_t i : after) named.push_back(&jobs[i]);
    options.after = named;
    const Operation copy = Operation::copy(places[which], places[which]);
    return engine.submit(jobs[which], copy, options);
  }
  std::vector<std::array<std::byte, 4>> places;
  std::deque<Job> jobs;
};

TEST(Dependency, AJobBeginsWhenTheLastOfThoseItNamesHasEnded) {
  Told told;
  const auto engine = told.engine();
  Jobs all(4);
  // In the mover's queue the third would be first.
  ASSERT_EQ(all.submit(*engine, 0, {}), Submit::accepted);
  ASSERT_EQ(all.submit(*engine, 2, {0}), Submit::accepted);
  ASSERT_EQ(all.submit(*engine, 3, {2, 0, 0}), Submit::accepted);
  ASSERT_EQ(all.submit(*engine, 1, {}), Submit::accepted);
  EXPECT_EQ(all.jobs[3].state(), JobState::running);
  EXPECT_EQ(engine->statistics().jobs_held_back, 2U);
  ASSERT_TRUE(all.jobs[3].wait_for(kLong));
  EXPECT_EQ(told.begun, (std::vector{0, 1, 2, 3}));
  for (Job& job : all.jobs) EXPECT_EQ(job.completion().state, JobState::done);
  EXPECT_EQ(engine->statistics().jobs_done, 4U);
}

TEST(Dependency, WhatFailedOrWasStoppedLetsNothingBegin) {
  Told told;
  told.failing = 0;
  const auto engine = told.engine();
  Jobs all(6);
  ASSERT_EQ(all.submit(*engine, 0, {}), Submit::accepted);
  ASSERT_EQ(all.submit(*engine, 1, {}), Submit::accepted);
  ASSERT_EQ(all.submit(*engine, 2, {1, 0}), Submit::accepted);
  ASSERT_EQ(all.submit(*engine, 3, {2}), Submit::accepted);  // The failure propagates.
  ASSERT_TRUE(all.jobs[3].wait_for(kLong));
  EXPECT_EQ(told.begun, (std::vector{0, 1}));
  for (const std::size_t i : {2U, 3U}) {
    EXPECT_EQ(all.jobs[i].completion().state, JobState::failed);
    EXPECT_EQ(all.jobs[i].completion().cause, Cause::predecessor_failed);
    EXPECT_EQ(all.jobs[i].completion().bytes_done, 0U);
  }
  EXPECT_EQ(name(Cause::predecessor_failed), "predecessor_failed");
  // The same holds for predecessors that failed before.
  ASSERT_EQ(all.submit(*engine, 4, {1, 0}), Submit::accepted);
  EXPECT_EQ(all.jobs[4].completion().cause, Cause::predecessor_failed);
  ASSERT_EQ(all.submit(*engine, 1, {}), Submit::accepted);
  ASSERT_EQ(all.submit(*engine, 5, {1}), Submit::accepted);
  all.jobs[1].stop();
  ASSERT_TRUE(all.jobs[5].wait_for(kLong));
  EXPECT_EQ(all.jobs[1].completion().state, JobState::stopped);
  EXPECT_EQ(all.jobs[5].completion().cause, Cause::predecessor_failed);
  EXPECT_EQ(engine->statistics().jobs_failed, 5U);
  EXPECT_EQ(engine->statistics().jobs_stopped, 1U);
}

TEST(Dependency, WhatHasEndedIsNotWaitedFor) {
  Told told;
  const auto engine = told.engine();
  Jobs all(3);
  ASSERT_EQ(all.submit(*engine, 0, {}), Submit::accepted);
  ASSERT_TRUE(all.jobs[0].wait_for(kLong));
  // As without predecessor: it is refused if the queue is full.
  told.may_refuse = true;
  told.full_count = 1;
  ASSERT_EQ(all.submit(*engine, 1, {0}), Submit::full);
  EXPECT_EQ(all.jobs[1].state(), JobState::idle);
  ASSERT_EQ(all.submit(*engine, 1, {0}), Submit::accepted);
  EXPECT_EQ(engine->statistics().jobs_held_back, 0U);
  ASSERT_EQ(all.submit(*engine, 2, {0, 1}), Submit::accepted);
  ASSERT_TRUE(all.jobs[2].wait_for(kLong));
  EXPECT_EQ(told.begun, (std::vector{0, 1, 2}));
}

TEST(Dependency, WhatCannotBeWaitedForIsRefusedByName) {
  Told told;
  const auto engine = told.engine();
  const auto other = make_polled_engine(PolledMover::Options{});
  Jobs all(10);
  Jobs others(1);
  ASSERT_EQ(all.submit(*engine, 0, {}), Submit::accepted);
  ASSERT_EQ(others.submit(*other, 0, {}), Submit::accepted);
  EXPECT_EQ(all.submit(*engine, 1, {0, 2}), Submit::bad_predecessor);  // Never submitted.
  EXPECT_EQ(all.submit(*engine, 1, {1}), Submit::bad_predecessor);     // Itself.
  EXPECT_EQ(all.submit(*engine, 1, {0, 0, 0, 0, 0, 0, 0, 0, 0}), Submit::too_many_predecessors);
  const Operation copy = Operation::copy(all.places[1], all.places[1]);
  std::array<Job*, 2> named{&all.jobs[0], nullptr};
  EXPECT_EQ(engine->submit(all.jobs[1], copy, {.after = named}), Submit::null_address);
  named[1] = &others.jobs[0];
  EXPECT_EQ(engine->submit(all.jobs[1], copy, {.after = named}), Submit::bad_predecessor);
  EXPECT_EQ(engine->submit_batch(all.jobs[1], {{&copy, 1}, {}}, {.after = named}),
            Submit::bad_predecessor);
  Completion end;
  EXPECT_EQ(engine->run(copy, end, {.after = named}), Submit::bad_predecessor);
  EXPECT_EQ(all.jobs[1].state(), JobState::idle);
  EXPECT_NE(explain(Submit::bad_predecessor).find("another engine"), std::string_view::npos);
  EXPECT_NE(explain(Submit::too_many_predecessors).find("eight"), std::string_view::npos);
  ASSERT_EQ(all.submit(*engine, 1, {0, 0, 0, 0, 0, 0, 0, 0}), Submit::accepted);
  ASSERT_TRUE(all.jobs[1].wait_for(kLong));
  EXPECT_EQ(told.begun, (std::vector{0, 1}));
  ASSERT_TRUE(others.jobs[0].wait_for(kLong));
  EXPECT_EQ(all.submit(*engine, 1, {1}), Submit::bad_predecessor);  // Also after it has ended.
}

TEST(Dependency, AStopWhileItIsHeldBackKeepsAJobFromBeginning) {
  Told told;
  const auto engine = told.engine();
  Jobs all(3);
  ASSERT_EQ(all.submit(*engine, 0, {}), Submit::accepted);
  ASSERT_EQ(all.submit(*engine, 1, {0}), Submit::accepted);
  all.jobs[1].stop();
  EXPECT_EQ(all.jobs[1].state(), JobState::running);  // A stop is only a request; the job ends when
                                                      // the first has.
  EXPECT_FALSE(all.jobs[1].wait_for(std::chrono::nanoseconds(0)) && told.begun.empty());
  ASSERT_TRUE(all.jobs[1].wait_for(kLong));
  EXPECT_EQ(all.jobs[1].completion().state, JobState::stopped);
  EXPECT_EQ(all.jobs[0].completion().state, JobState::done);
  // So does its destruction.
  ASSERT_EQ(all.submit(*engine, 0, {}), Submit::accepted);
  {
    Job gone;
    Job* const named = &all.jobs[0];
    const Operation copy = Operation::copy(all.places[2], all.places[2]);
    ASSERT_EQ(engine->submit(gone, copy, {.after = {&named, 1}}), Submit::accepted);
  }
  EXPECT_EQ(told.begun, (std::vector{0, 0}));
  EXPECT_EQ(all.jobs[0].completion().state, JobState::done);
}

TEST(Dependency, AWaitForWhatIsHeldBackEndsInTime) {
  const auto engine = make_engine({.threads_per_node = 1});
  Buffers buffers(5000);
  Job held;
  {
    test::Roadblock roadblock(*engine);
    Job first;
    Job* const named = &first;
    ASSERT_EQ(engine->submit(first, Operation::no_op()), Submit::accepted);
    ASSERT_EQ(engine->submit_copy(held, buffers.plan(), {.after = {&named, 1}}), Submit::accepted);
    EXPECT_FALSE(held.wait_for(std::chrono::milliseconds(1)));
    EXPECT_FALSE(held.poll());
    EXPECT_EQ(buffers.moved_bytes(), 0U);
    roadblock.open();
    ASSERT_TRUE(first.wait_for(kLong));
  }  // The first one is destroyed now.
  ASSERT_TRUE(held.wait_for(kLong));
  EXPECT_TRUE(buffers.equal());
}

TEST(Dependency, AnEngineThatIsStoppedEndsWhatItHoldsBack) {
  Told told;
  auto engine = told.engine();
  Jobs all(4);
  ASSERT_EQ(all.submit(*engine, 0, {}), Submit::accepted);
  ASSERT_EQ(all.submit(*engine, 1, {0}), Submit::accepted);
  ASSERT_EQ(all.submit(*engine, 2, {1, 0}), Submit::accepted);
  engine.reset();
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(all.jobs[i].completion().state, JobState::stopped);
  EXPECT_TRUE(told.begun.empty());

  // Released jobs that find no room are no exception.
  engine = told.engine();
  told.may_refuse = true;
  ASSERT_EQ(all.submit(*engine, 0, {}), Submit::accepted);
  ASSERT_EQ(all.submit(*engine, 1, {0}), Submit::accepted);
  ASSERT_EQ(all.submit(*engine, 2, {1}), Submit::accepted);
  told.full_count = ~std::size_t{0};
  EXPECT_FALSE(all.jobs[2].wait_for(std::chrono::milliseconds(1)));
  engine->stop();
  EXPECT_EQ(all.jobs[0].completion().state, JobState::done);
  EXPECT_EQ(all.jobs[1].completion().state, JobState::stopped);
  EXPECT_EQ(all.jobs[2].completion().state, JobState::stopped);
  EXPECT_EQ(all.submit(*engine, 3, {0}), Submit::closed);
  EXPECT_EQ(all.submit(*engine, 3, {1}), Submit::closed);
}

TEST(Dependency, AJobThatFindsQueuesFullWaitsForRoom) {
  Told told;
  told.hardware = true;
  const auto engine = told.engine();
  Jobs all(4);
  ASSERT_EQ(all.submit(*engine, 0, {}), Submit::accepted);
  for (const std::size_t i : {1U, 2U, 3U}) {
    ASSERT_EQ(all.submit(*engine, i, {0}, {.path = Path::dsa}), Submit::accepted);
  }
  told.may_refuse = true;
  told.full_count = 20;
  for (Job& job : all.jobs) {
    ASSERT_TRUE(job.wait_for(kLong));
    EXPECT_EQ(job.completion().state, JobState::done);
    EXPECT_FALSE(job.completion().fell_back);
  }
  EXPECT_EQ(told.full_count, 0U);
  EXPECT_EQ(told.begun.size(), 4U);
  EXPECT_EQ(engine->statistics().submissions_refused, 0U);
}

TEST(Dependency, WithPathAutomaticProcessorsTakeWhatFindsDevicesFull) {
  Told device;
  device.hardware = true;
  Told processors;
  std::vector<std::unique_ptr<Mover>> movers;
  movers.push_back(device.make());
  movers.push_back(processors.make());
  const auto made =
      Engine::make(std::move(movers), {}, {.thresholds = {Bytes(0), Bytes(0), Bytes(0)}});
  Engine& engine = **made;
  Jobs all(2);
  ASSERT_EQ(all.submit(engine, 0, {}), Submit::accepted);
  ASSERT_EQ(all.submit(engine, 1, {0}), Submit::accepted);
  device.may_refuse = true;
  device.full_count = ~std::size_t{0};
  ASSERT_TRUE(all.jobs[1].wait_for(kLong));
  EXPECT_EQ(device.begun, std::vector{0});
  EXPECT_EQ(processors.begun, std::vector{1});
  EXPECT_FALSE(all.jobs[1].completion().fell_back);
}

TEST(Dependency, WorkersTakeMoreThanTheirQueueHoldsRatherThanLoseIt) {
  const auto engine = make_engine({.threads_per_node = 1, .queue_depth_max = 2});
  std::deque<Job> jobs(50);
  std::vector<std::byte> target(jobs.size());
  test::Roadblock roadblock(*engine);
  Job first;
  Job* const named = &first;
  ASSERT_EQ(engine->submit(first, Operation::no_op()), Submit::accepted);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const Operation fill = Operation::fill(std::span(target).subspan(i, 1), 7);
    ASSERT_EQ(engine->submit(jobs[i], fill, {.after = {&named, 1}}), Submit::accepted);
  }
  roadblock.open();
  for (Job& job : jobs) {
    EXPECT_EQ(job.wait().state, JobState::done);
    EXPECT_FALSE(job.completion().fell_back);
  }
  EXPECT_EQ(target, std::vector(target.size(), std::byte{7}));
}

TEST(Dependency, AMoverWithAThreadThatRefusesForGoodIsDoneWithout) {
  // The engine assumes that it has a thread: no thread would poll it again.
  Told told;
  told.polled = false;
  const auto engine = told.engine();
  Jobs all(2);
  ASSERT_EQ(all.submit(*engine, 0, {}), Submit::accepted);
  ASSERT_EQ(all.submit(*engine, 1, {0}), Submit::accepted);
  told.may_refuse = true;
  told.full_count = ~std::size_t{0};
  engine->poll();
  ASSERT_TRUE(all.jobs[1].wait_for(kLong));
  EXPECT_EQ(all.jobs[1].completion().state, JobState::done);
  EXPECT_TRUE(all.jobs[1].completion().fell_back);
}

TEST(Dependency, ThenOfAPredecessorMaySubmitItAgainOrDestroyIt) {
  Told told;
  const auto engine = told.engine();
  Jobs all(4);
  struct Again {
    Engine& engine;
    Jobs& all;
    int count = 0;
  } again{*engine, all};
  const SubmitOptions submit_again{.then =
                                       [](void* context) noexcept {
                                         auto& self = *static_cast<Again*>(context);
                                         ++self.count;
                                         EXPECT_EQ(self.all.submit(self.engine, 0, {}),
                                                   Submit::accepted);
                                       },
                                   .then_context = &again};
  ASSERT_EQ(all.submit(*engine, 0, {}, submit_again), Submit::accepted);
  ASSERT_EQ(all.submit(*engine, 1, {0}), Submit::accepted);
  auto gone = std::make_unique<Job>();
  Job* const named = gone.get();
  const SubmitOptions destroy{
      .then = [](void* context) noexcept { static_cast<std::unique_ptr<Job>*>(context)->reset(); },
      .then_context = &gone};
  const Operation copy = Operation::copy(all.places[2], all.places[2]);
  ASSERT_EQ(engine->submit(*gone, copy, destroy), Submit::accepted);
  const Operation last = Operation::copy(all.places[3], all.places[3]);
  ASSERT_EQ(engine->submit(all.jobs[3], last, {.after = {&named, 1}}), Submit::accepted);
  engine->poll();
  EXPECT_EQ(gone, nullptr);
  EXPECT_EQ(again.count, 1);
  for (const std::size_t i : {0U, 1U, 3U}) ASSERT_TRUE(all.jobs[i].wait_for(kLong));
  // The second submission of the first came before or after the job that it had released.
  EXPECT_EQ(told.begun.size(), 5U);
  EXPECT_EQ(all.jobs[1].completion().state, JobState::done);
  EXPECT_EQ(all.jobs[3].completion().state, JobState::done);
}

TEST(Dependency, ARunWaitsForThoseItNames) {
  Told told;
  const auto engine = told.engine();
  Jobs all(2);
  ASSERT_EQ(all.submit(*engine, 0, {}), Submit::accepted);
  Job* const named = &all.jobs[0];
  int called = 0;
  const SubmitOptions options{
      .callback = [](void* context, const Completion&) noexcept { ++*static_cast<int*>(context); },
      .callback_context = &called,
      .then = [](void* context) noexcept { ++*static_cast<int*>(context); },
      .then_context = &called,
      .after = {&named, 1}};
  Buffers buffers(1000);
  Completion end;
  ASSERT_EQ(engine->run(Operation::copy(buffers.target, buffers.source), end, options),
            Submit::accepted);
  EXPECT_EQ(all.jobs[0].state(), JobState::done);
  EXPECT_EQ(end.state, JobState::done);
  EXPECT_TRUE(buffers.equal());
  EXPECT_EQ(called, 2);
  told.failing = 0;
  ASSERT_EQ(all.submit(*engine, 0, {}), Submit::accepted);
  Buffers untouched(1000);
  ASSERT_EQ(engine->run(Operation::copy(untouched.target, untouched.source), end, options),
            Submit::accepted);
  EXPECT_EQ(end.cause, Cause::predecessor_failed);
  EXPECT_EQ(untouched.moved_bytes(), 0U);
  EXPECT_EQ(called, 4);
}

TEST(Dependency, EmptyPlansAndBatchesWaitAsWell) {
  Told told;
  const auto engine = told.engine();
  Jobs all(3);
  ASSERT_EQ(all.submit(*engine, 0, {}), Submit::accepted);
  Job* named = &all.jobs[0];
  Job empty;
  ASSERT_EQ(engine->submit_copy(empty, {}, {.after = {&named, 1}}), Submit::accepted);
  EXPECT_EQ(empty.state(), JobState::running);
  named = &empty;
  const Operation copy = Operation::copy(all.places[1], all.places[1]);
  std::array<Completion, 1> completions;
  ASSERT_EQ(engine->submit_batch(all.jobs[1], {{&copy, 1}, completions}, {.after = {&named, 1}}),
            Submit::accepted);
  told.failing = 2;
  const Operation failing = Operation::copy(all.places[2], all.places[2]);
  named = &all.jobs[1];
  ASSERT_EQ(engine->submit_batch(all.jobs[2], {{&failing, 1}, {}}, {.after = {&named, 1}}),
            Submit::accepted);
  Job last;
  named = &all.jobs[2];
  ASSERT_EQ(engine->submit(last, Operation::no_op(), {.after = {&named, 1}}), Submit::accepted);
  ASSERT_TRUE(last.wait_for(kLong));
  EXPECT_EQ(empty.completion().state, JobState::done);
  EXPECT_EQ(all.jobs[1].completion().state, JobState::done);
  EXPECT_EQ(last.completion().cause, Cause::predecessor_failed);
  EXPECT_EQ(told.begun, (std::vector{0, 1, 2}));
}

/// Each job copies what the previous one wrote, so the last bytes reveal any that began too early.
void copy_along_a_chain(Engine& engine, std::size_t count) {
  std::vector<std::uint64_t> words(count + 1);
  std::deque<Job> jobs(count);
  const auto word = [&](std::size_t i) {
    return std::as_writable_bytes(std::span(words)).subspan(8 * i, 8);
  };
  Job first;
  words[0] = 0x0123456789abcdef;
  for (std::size_t i = 0; i < count; ++i) {
    Job* const named = i == 0 ? &first : &jobs[i - 1];
    if (i == 0) {
      ASSERT_EQ(engine.submit(first, Operation::no_op()), Submit::accepted);
    }
    ASSERT_EQ(engine.submit(jobs[i], Operation::copy(word(i + 1), word(i)), {.after = {&named, 1}}),
              Submit::accepted);
  }
  ASSERT_TRUE(jobs.back().wait_for(kLong * 2));
  EXPECT_EQ(words.back(), words.front());
  for (const Job& job : jobs) EXPECT_EQ(job.completion().state, JobState::done);
}

TEST(Dependency, EachOperationOfABatchThatNeverBeganSaysWhy) {
  Told told;
  const auto engine = told.engine();
  Jobs all(2);
  const std::array operations{Operation::copy(all.places[1], all.places[1]), Operation::no_op()};
  // From another submission of the same arrays.
  std::array<Completion, 2> ends{Completion{.state = JobState::done, .bytes_done = 1},
                                 Completion{.state = JobState::done}};
  const Batch batch{operations, ends};
  const auto expect_all = [&](JobState state, Cause cause) {
    for (Completion& end : ends) {
      EXPECT_EQ(end.state, state);
      EXPECT_EQ(end.cause, cause);
      EXPECT_EQ(end.bytes_done, 0U);
      end = {.state = JobState::done, .bytes_done = 1};
    }
  };
  Job job;
  const MoverPolicy none = [](const MoveContext&, MoverChoice&) {};
  ASSERT_EQ(engine->submit_batch(job, batch, {.policy = &none}), Submit::accepted);
  job.wait();
  expect_all(JobState::failed, Cause::mover_refused);

  const std::array<Job*, 1> after{&all.jobs[0]};
  ASSERT_EQ(all.submit(*engine, 0, {}), Submit::accepted);
  ASSERT_EQ(engine->submit_batch(job, batch, {.policy = &none, .after = after}), Submit::accepted);
  job.wait();
  expect_all(JobState::failed, Cause::mover_refused);

  ASSERT_EQ(all.submit(*engine, 0, {}), Submit::accepted);
  ASSERT_EQ(engine->submit_batch(job, batch, {.after = after}), Submit::accepted);
  job.stop();
  job.wait();
  expect_all(JobState::stopped, Cause::none);

  told.failing = 0;
  ASSERT_EQ(all.submit(*engine, 0, {}), Submit::accepted);
  ASSERT_EQ(engine->submit_batch(job, batch, {.after = after}), Submit::accepted);
  job.wait();
  expect_all(JobState::failed, Cause::predecessor_failed);

  ASSERT_EQ(all.submit(*engine, 0, {}), Submit::accepted);
  ASSERT_EQ(engine->submit_batch(job, batch, {.after = after}), Submit::accepted);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    job.wait();
    expect_all(JobState::failed, Cause::forked);
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  engine->stop();
  expect_all(JobState::stopped, Cause::none);
}

TEST(Dependency, AChainOfManyThousandsNeedsNoStack) {
  const auto engine = make_engine({.threads_per_node = 2});
  {
    test::Roadblock one(*engine);
    test::Roadblock other(*engine);
    std::thread opens([&] {
      one.open();
      other.open();
    });
    copy_along_a_chain(*engine, 100'000);
    opens.join();
  }
  // By a mover that completes each during its submission: all on one stack.
  const auto inside = make_polled_engine(PolledMover::Options{
      .info = {.name = "gone", .polled = true, .operations = OperationSet::all()},
      .answer = [](std::size_t call) { return call == 0 ? Submit::accepted : Submit::closed; },
      .work = [](const Request&) { return Completion{}; }});
  copy_along_a_chain(*inside, 100'000);
}

TEST(Dependency, DiamondsComeOutWhoeverPolls) {
  // Four threads poll one mover without a thread; every job of a row depends on two of the previous
  // row, and copies what one of them wrote.
  constexpr std::size_t kRows = 500;
  constexpr std::size_t kWidth = 4;
  std::vector<std::unique_ptr<Mover>> movers;
  movers.push_back(std::make_unique<PolledMover>(PolledMover::Options{
      .info = {
          .name = "test", .hardware = true, .polled = true, .operations = OperationSet::all()}}));
  const auto made = Engine::make(std::move(movers));
  Engine& engine = **made;
  std::vector<std::byte> bytes((kRows + 1) * kWidth * 2, std::byte{0});
  const auto at = [&](std::size_t row, std::size_t column) {
    return std::span(bytes).subspan((row * kWidth + column % kWidth) * 2, 2);
  };
  for (std::byte& byte : std::span(bytes).first(kWidth * 2)) byte = std::byte{9};
  std::deque<Job> jobs(kRows * kWidth);
  Atomic<std::uint32_t> ended_count;
  const auto job = [&](std::size_t row, std::size_t column) {
    return &jobs[row * kWidth + column % kWidth];
  };
  {
    std::vector<std::jthread> pollers;
    for (int i = 0; i < 4; ++i) {
      pollers.emplace_back([&](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
          engine.poll();
          std::this_thread::yield();
        }
      });
    }
    for (std::size_t row = 0; row < kRows; ++row) {
      for (std::size_t column = 0; column < kWidth; ++column) {
        std::vector<Job*> named;
        if (row > 0) named = {job(row - 1, column), job(row - 1, column + 1)};
        const SubmitOptions options{
            .callback =
                [](void* context, const Completion&) noexcept {
                  static_cast<Atomic<std::uint32_t>*>(context)->fetch_add_relaxed(1);  // A count.
                },
            .callback_context = &ended_count,
            .path = Path::dsa,
            .after = named};
        const Operation copy = Operation::copy(at(row + 1, column), at(row, column + row % 2));
        ASSERT_EQ(engine.submit(*job(row, column), copy, options), Submit::accepted);
      }
    }
    for (Job& each : jobs) {
      ASSERT_TRUE(each.wait_for(kLong));
      EXPECT_EQ(each.completion().state, JobState::done);
    }
  }
  EXPECT_EQ(ended_count.load_relaxed(), kRows * kWidth);
  EXPECT_EQ(bytes, std::vector(bytes.size(), std::byte{9}));
  EXPECT_EQ(engine.statistics().jobs_done, kRows * kWidth);
}

TEST(Dependency, InAChildOfTheProcessNothingIsHeldBack) {
  Told told;
  const auto engine = told.engine();
  Jobs all(3);
  ASSERT_EQ(all.submit(*engine, 0, {}), Submit::accepted);
  ASSERT_EQ(all.submit(*engine, 1, {0}), Submit::accepted);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Told other;
    const auto mine = other.engine();
    const bool told_so = all.jobs[1].wait_for(kLong) &&
                         all.jobs[1].completion().cause == Cause::forked &&
                         all.submit(*engine, 2, {0}) == Submit::forked &&
                         all.submit(*mine, 2, {0}) == Submit::bad_predecessor;
    ::_exit(told_so ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_TRUE(all.jobs[1].wait_for(kLong));
  EXPECT_EQ(told.begun, (std::vector{0, 1}));
}

TEST(Dependency, ACoroutineMayWaitInsideTheEndOfAnother) {
  // A job's `then` waits for another job that the same thread must begin.
  const auto engine = make_polled_engine(PolledMover::Options{
      .info = {.name = "gone", .polled = true, .operations = OperationSet::all()},
      .answer = [](std::size_t call) { return call == 0 ? Submit::accepted : Submit::closed; },
      .work = [](const Request&) { return Completion{}; }});
  Job first;
  Job* const named = &first;
  Job second;
  std::array<std::byte, 8> target{};
  ASSERT_EQ(engine->submit(first, Operation::no_op()), Submit::accepted);
  bool waited = false;
  const auto waits = [&]() -> Detached {
    const std::array<Job*, 1> after{named};
    const Ended end = co_await start(*engine, Operation::fill(target, 1), {.after = after});
    EXPECT_TRUE(end.is_done());
    waited = second.wait_for(kLong);
  };
  waits();
  ASSERT_EQ(engine->submit(second, Operation::no_op(), {.after = {&named, 1}}), Submit::accepted);
  ASSERT_TRUE(first.wait_for(kLong));
  EXPECT_TRUE(waited);
}

}  // namespace
}  // namespace headrace::engine::dependency_test
