// SPDX-License-Identifier: Apache-2.0
// What `then` may do with its own job, also inside wait() and poll(): submit it again and destroy
// it.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <memory>
#include <thread>
#include <vector>

#include "fixtures.hpp"
#include "headrace/base/atomic.hpp"
#include "support/watchdog.hpp"

namespace headrace::engine {
namespace {

using test::Buffers;
using test::make_engine;
using test::make_polled_engine;
using test::PolledMover;

/// How a thread learns that a job has ended.
enum class By : std::uint8_t { wait, wait_for, poll, engine };
constexpr std::array kWays{By::wait, By::wait_for, By::poll, By::engine};

/// A job that its `then` submits again, to the engines in turn.
struct Pump {
  std::vector<Engine*> engines;
  Atomic<std::uint32_t> left{0};
  Buffers buffers{256};
  Job job = {};

  void submit() {
    Submit answer = Submit::full;
    while (answer == Submit::full) {
      answer = engines[left.load_relaxed() % engines.size()]->submit_copy(
          job, buffers.plan(), {.then = next, .then_context = this, .path = Path::cpu});
    }
    EXPECT_EQ(answer, Submit::accepted);
  }
  static void next(void* context) noexcept {
    auto& pump = *static_cast<Pump*>(context);
    if (pump.left.fetch_sub_acq_rel(1) > 1) pump.submit();
  }
  void learn(By by) {
    switch (by) {
      case By::wait:
        job.wait();
        return;
      case By::wait_for:
        static_cast<void>(job.wait_for(std::chrono::milliseconds(1)));
        return;
      case By::poll:
        static_cast<void>(job.poll());
        return;
      case By::engine:
        for (Engine* const engine : engines) engine->poll();
        return;
    }
  }
  void run(By by, std::uint32_t count) {
    left.store_relaxed(count);
    submit();
    while (left.load_acquire() > 0) learn(by);
    job.wait();
  }
};

void submit_again_in_every_way() {
  const auto polled = make_polled_engine(PolledMover::Options{});
  const auto others = make_polled_engine(PolledMover::Options{});
  const auto workers = make_engine({.threads_per_node = 2});
  const std::vector<std::vector<Engine*>> sets{
      {polled.get()}, {workers.get()}, {polled.get(), others.get()}, {polled.get(), workers.get()}};
  for (const std::vector<Engine*>& engines : sets) {
    for (const By by : kWays) {
      Pump pump{.engines = engines};
      pump.run(by, 500);
      // Two pumps and two threads that wait for both.
      std::array<Pump, 2> two{Pump{.engines = engines}, Pump{.engines = engines}};
      for (Pump& each : two) {
        each.left.store_relaxed(500);
        each.submit();
      }
      const auto learn = [&](std::size_t first) {
        while (two[0].left.load_acquire() + two[1].left.load_acquire() > 0) {
          for (std::size_t i = 0; i < 2; ++i) {
            Pump& each = two[(first + i) % 2];
            if (each.left.load_acquire() > 0) each.learn(by == By::wait ? By::wait_for : by);
          }
        }
      };
      std::thread other(learn, 1);
      learn(0);
      other.join();
      for (Pump& each : two) each.job.wait();
    }
  }
  // It hung if a count of the gate had been lost, and aborted if there was one too many.
  workers->stop();
  polled->stop();
  others->stop();
}

TEST(Then, MaySubmitItsJobAgainWhileThreadsWaitForItOrPollIt) {
  headrace::test::expect_ends(submit_again_in_every_way);
}

/// A job in memory that its `then` unmaps.
struct Fleeting {
  static constexpr std::size_t kBytes = 4096;
  Job* job =
      new (::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) Job;
  bool gone = false;

  static void end(void* context) noexcept {
    auto& self = *static_cast<Fleeting*>(context);
    self.job->~Job();
    EXPECT_EQ(::munmap(self.job, kBytes), 0);
    self.gone = true;
  }
};

TEST(Then, MayDestroyItsJobInsideWaitAndPoll) {
  const auto engine = make_polled_engine(PolledMover::Options{});
  Buffers buffers(256);
  for (const By by : kWays) {
    for (const bool blocked : {false, true}) {
      Fleeting one;
      Job before;
      Job* const named = &before;
      SubmitOptions options{.then = Fleeting::end, .then_context = &one};
      if (blocked) {
        ASSERT_EQ(engine->submit_copy(before, buffers.plan()), Submit::accepted);
        options.after = {&named, 1};
      }
      ASSERT_EQ(engine->submit_copy(*one.job, buffers.plan(), options), Submit::accepted);
      Completion end;
      if (by == By::wait) one.job->wait();
      if (by == By::wait_for) {
        EXPECT_TRUE(one.job->wait_for(std::chrono::seconds(60), &end));
        EXPECT_EQ(end.state, JobState::done);
        EXPECT_EQ(end.bytes_done, 256U);
      }
      while (!one.gone && by == By::poll) EXPECT_EQ(one.job->poll(), one.gone);
      while (!one.gone) engine->poll();
      if (blocked) before.wait();
    }
  }
  engine->stop();
}

}  // namespace
}  // namespace headrace::engine
