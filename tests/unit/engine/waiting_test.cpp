// SPDX-License-Identifier: Apache-2.0
// How threads wait for jobs (EngineOptions::waiting): what happens between two polls, how the
// interval adapts, and each mode with workers and with a polled mover. UMWAIT is replaced by the
// test.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "engine/dsa/queue.hpp"
#include "engine/waiter.hpp"
#include "fixtures.hpp"
#include "headrace/base/atomic.hpp"
#include "headrace/platform/wait.hpp"

namespace headrace::engine::waiting_test {
namespace {

using platform::to_ticks;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using Step = Waiter::Step;

constexpr std::chrono::seconds kLong{60};
constexpr std::array kAll{Waiting::adaptive, Waiting::spin, Waiting::umwait, Waiting::sleep};

Step step(Waiting how, bool polled, WaitHistory& history, std::chrono::nanoseconds waited) {
  constexpr std::uint64_t kBegun = 1'000'000;
  Waiter waiter(how, polled, history, kBegun);
  return waiter.next(kBegun + to_ticks(waited));
}

TEST(Waiter, DoesWhatItIsToldForAsLongAsItTakes) {
  WaitHistory history;
  for (const bool polled : {false, true}) {
    for (const auto waited : {microseconds(0), microseconds(3'000'000)}) {
      EXPECT_EQ(step(Waiting::spin, polled, history, waited), Step::look);
      EXPECT_EQ(step(Waiting::umwait, polled, history, waited), Step::rest);
      EXPECT_EQ(step(Waiting::sleep, polled, history, waited), Step::sleep);
    }
  }
}

TEST(Waiter, LooksFirstThenRestsThenSleeps) {
  WaitHistory history;
  EXPECT_EQ(step(Waiting::adaptive, true, history, microseconds(0)), Step::pause);
  EXPECT_EQ(step(Waiting::adaptive, true, history, microseconds(49)), Step::pause);
  EXPECT_EQ(step(Waiting::adaptive, true, history, microseconds(51)), Step::rest);
  EXPECT_EQ(step(Waiting::adaptive, true, history, microseconds(999)), Step::rest);
  EXPECT_EQ(step(Waiting::adaptive, true, history, microseconds(1001)), Step::sleep);
  // A thread that a mover wakes sleeps without UMWAIT first.
  EXPECT_EQ(step(Waiting::adaptive, false, history, microseconds(51)), Step::sleep);
  const Waiter waiter(Waiting::sleep, true, history, 0);
  EXPECT_EQ(waiter.sleep_time(0), Waiter::kSleepMin);
  EXPECT_NEAR(static_cast<double>(waiter.sleep_time(to_ticks(milliseconds(4))).count()), 5e5, 1e3);
  EXPECT_EQ(waiter.sleep_time(to_ticks(kLong)), Waiter::kSleepMax);
}

TEST(Waiter, LooksForLessTimeWhenLookingDoesNotPayAndForMoreWhenItDoes) {
  WaitHistory history;
  const std::uint64_t max = to_ticks(WaitHistory::kSpinMax);
  const std::uint64_t min = to_ticks(WaitHistory::kLookMin);
  EXPECT_EQ(history.begin(), max);
  std::uint64_t last = max;
  for (int i = 1; i < 200; ++i) {
    history.end(to_ticks(milliseconds(5)), false);
    const std::uint64_t now = history.begin();
    if (i % 16 == 0) {
      EXPECT_EQ(now, max);  // Checks whether shorter waits have returned.
    } else {
      EXPECT_LE(now, last);
      last = now;
    }
  }
  EXPECT_EQ(last, min);
  // One completion during polling is enough to poll for twice as long as it took.
  history.end(to_ticks(microseconds(4)), true);
  EXPECT_EQ(history.begin(), 2 * to_ticks(microseconds(4)));
  history.end(to_ticks(microseconds(1)), true);  // Never shortened by this.
  EXPECT_EQ(history.begin(), 2 * to_ticks(microseconds(4)));
  history.end(to_ticks(microseconds(30)), true);
  EXPECT_EQ(history.begin(), max);
}

TEST(Waiter, TellsHowItsWaitEnded) {
  WaitHistory history;
  const std::uint64_t max = history.begin();
  for (int i = 0; i < 3; ++i) {
    Waiter vain(Waiting::adaptive, false, history, 0);
    EXPECT_EQ(vain.next(2 * max), Step::sleep);
    vain.end(3 * max);
  }
  EXPECT_LT(history.begin(), max);
  Waiter other(Waiting::spin, false, history, 0);
  other.end(max);
  EXPECT_LT(history.begin(), max);  // Only adaptive modes.
}

TEST(Waiting, EveryWayEndsWithTheJobAndInTime) {
  for (const Waiting how : kAll) {
    SCOPED_TRACE(name(how));
    const auto workers = test::make_engine({.threads_per_node = 1, .waiting = how});
    std::vector<std::unique_ptr<Mover>> movers;
    movers.push_back(std::make_unique<test::PolledMover>(test::PolledMover::Options{}));
    const auto polled = Engine::make(std::move(movers), {}, {.waiting = how});
    for (Engine* const engine : {workers.get(), polled->get()}) {
      for (const std::size_t byte_count : {64U, 300'000U}) {
        test::Buffers buffers(byte_count);
        Job job;
        ASSERT_EQ(engine->submit_copy(job, buffers.plan()), Submit::accepted);
        EXPECT_EQ(job.wait().state, JobState::done);
        EXPECT_TRUE(buffers.equal());
      }
    }
    test::Roadblock roadblock(*workers);
    Job held;
    ASSERT_EQ(workers->submit(held, Operation::no_op()), Submit::accepted);
    EXPECT_FALSE(held.wait_for(microseconds(0)));
    EXPECT_FALSE(held.wait_for(microseconds(300)));
    roadblock.open();
    EXPECT_TRUE(held.wait_for(kLong));
  }
}

/// Calls of the replaced instructions.
struct Told {
  Atomic<std::uint32_t> watch_count;
  Atomic<std::uint32_t> wait_count;
  const void* watched = nullptr;
  std::uint64_t longest_ticks = 0;
  test::Roadblock* opens = nullptr;  ///< Opens at the third wait; the others end spuriously.
};
Told told;

void watch(const void* address) noexcept {
  told.watched = address;
  told.watch_count.fetch_add_relaxed(1);  // Relaxed: an independent counter.
}
void wait(std::uint64_t until_ticks) noexcept {
  const std::uint64_t now = platform::ticks();
  told.longest_ticks = std::max(told.longest_ticks, until_ticks - std::min(now, until_ticks));
  if (told.wait_count.fetch_add_relaxed(1) == 2) told.opens->open();  // As above.
}

TEST(Waiting, ByUmwaitRestsOnTheWordOfTheJobAndLooksAgain) {
  constexpr platform::LineWait kTold{watch, wait};
  // The test may be repeated.
  for (auto* const count : {&told.watch_count, &told.wait_count}) count->store_relaxed(0);
  told.longest_ticks = 0;
  platform::replace_line_wait(&kTold);
  {
    const auto engine = test::make_engine({.threads_per_node = 1, .waiting = Waiting::umwait});
    EXPECT_EQ(engine->waiting(), Waiting::umwait);
    test::Roadblock roadblock(*engine);
    told.opens = &roadblock;
    Job job;
    ASSERT_EQ(engine->submit(job, Operation::no_op()), Submit::accepted);
    EXPECT_TRUE(job.wait_for(kLong));
    EXPECT_GE(told.wait_count.load_relaxed(), 3U);
    EXPECT_GE(told.watch_count.load_relaxed(), told.wait_count.load_relaxed());
    const auto* const first = reinterpret_cast<const char*>(&job);
    EXPECT_GE(told.watched, first);
    EXPECT_LT(told.watched, first + sizeof job);
    // Short enough not to overrun a deadline by much.
    EXPECT_GT(told.longest_ticks, 0U);
    EXPECT_LE(told.longest_ticks, to_ticks(microseconds(21)));
  }
  platform::replace_line_wait(nullptr);
}

/// A queue whose descriptors complete on request.
class HeldPortal final : public dsa::Portal {
 public:
  [[nodiscard]] const dsa::QueueInfo& info() const override { return info_; }
  [[nodiscard]] bool submit(const dsa::Descriptor& descriptor) noexcept override {
    record_.store_release(descriptor.completion_addr);
    return true;
  }
  /// Completes the last descriptor, once there is one.
  void end() {
    std::uint64_t record = 0;
    while (record == 0) record = record_.load_acquire();
    auto* const status = reinterpret_cast<std::uint8_t*>(record);
    headrace::store_release(*status, std::uint8_t{DSA_COMP_SUCCESS});
  }

 private:
  Atomic<std::uint64_t> record_{0};
  dsa::QueueInfo info_{.name = "held/wq0.0",
                       .entry_count = 8,
                       .batch_max = 32,
                       .transfer_bytes_max = std::uint64_t{1} << 21U};
};

std::uint64_t sleep_count(int thread_id) {
  std::ifstream status("/proc/self/task/" + std::to_string(thread_id) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("voluntary_ctxt_switches:")) return std::stoull(line.substr(24));
  }
  return 0;
}

Atomic<std::uint32_t> line_wait_count;

TEST(Waiting, OfAChannelIsThatOfItsEngine) {
  constexpr platform::LineWait kCounting{
      [](const void*) noexcept {},
      [](std::uint64_t) noexcept { line_wait_count.fetch_add_relaxed(1); }};  // Relaxed: an
                                                                              // independent
                                                                              // counter.
  for (const Waiting how : kAll) {
    SCOPED_TRACE(name(how));
    platform::replace_line_wait(&kCounting);
    line_wait_count.store_relaxed(0);  // Relaxed: earlier threads have ended.
    HeldPortal portal;
    {
      std::vector<std::unique_ptr<Mover>> movers;
      const DsaQueueOptions patient{.device = {.timeout = 2 * kLong}};
      movers.push_back(std::move(DsaQueue::make(portal, patient).value()));
      const auto engine = std::move(Engine::make(std::move(movers), {}, {.waiting = how}).value());
      auto channel = std::move(engine->open_channel({.depth = 2}).value());
      test::Buffers buffers(64);
      Ticket ticket{};
      ASSERT_EQ(channel->submit_copy(buffers.plan(), ticket), Submit::accepted);
      const auto waiting_thread = static_cast<int>(::gettid());
      const std::uint64_t before = sleep_count(waiting_thread);
      const auto slept = [&] { return sleep_count(waiting_thread) > before; };
      const auto rested = [] { return line_wait_count.load_relaxed() >= 3; };
      const auto passed = [&] {
        if (how == Waiting::spin) return true;
        if (how == Waiting::umwait) return rested();
        // On a busy machine the thread arrives too late to wait.
        return how == Waiting::sleep ? slept() : rested() || slept();
      };
      std::thread other([&] {
        const auto limit = std::chrono::steady_clock::now() + kLong;
        while (!passed() && std::chrono::steady_clock::now() < limit) {
        }
        portal.end();
      });
      EXPECT_EQ(channel->wait(ticket).state, JobState::done);
      other.join();
      EXPECT_TRUE(passed());
      if (how != Waiting::umwait && how != Waiting::adaptive) {
        EXPECT_EQ(line_wait_count.load_relaxed(), 0U);
      }
    }
    platform::replace_line_wait(nullptr);
  }
}

/// The thread of this process with this name; 0 if there is none.
int thread_named(const std::string& wanted) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream comm(task.path() / "comm");
    std::string name;
    if (std::getline(comm, name) && name == wanted) return std::stoi(task.path().filename());
  }
  return 0;
}

/// How often the worker of an engine slept meanwhile, of a thousand jobs that come 20 us after the
/// end of the one before.
std::uint64_t sleeps_between_jobs() {
  const auto engine = test::make_engine({.threads_per_node = 1});
  test::Buffers buffers(64);
  int worker = 0;
  std::uint64_t before = 0;
  for (int i = 0; i <= 1000; ++i) {
    if (i == 1) {  // It names itself before its first job.
      worker = thread_named("hr-0-0");
      EXPECT_NE(worker, 0);
      before = sleep_count(worker);
    }
    Job job;
    EXPECT_EQ(engine->submit_copy(job, buffers.plan()), Submit::accepted);
    job.wait();
    const auto until = std::chrono::steady_clock::now() + microseconds(20);
    while (std::chrono::steady_clock::now() < until) {
    }
  }
  return sleep_count(worker) - before;
}

TEST(Waiting, AWorkerLooksForTheNextJobBeforeItSleeps) {
  std::uint64_t adaptive = 1000;
  // On a busy machine other threads come between.
  for (int tries = 0; tries < 20 && adaptive >= 300; ++tries) {
    adaptive = sleeps_between_jobs();
  }
  EXPECT_LT(adaptive, 300U);
}

bool tells_of_umwait(const Engine& engine) {
  const std::vector<std::string> notes = engine.notes();
  return std::any_of(notes.begin(), notes.end(), [](const std::string& note) {
    return note.find("WAITPKG") != std::string::npos;
  });
}

TEST(Waiting, ByUmwaitIsBySpinningWhereTheProcessorHasNone) {
  const auto engine = test::make_engine({.threads_per_node = 1, .waiting = Waiting::umwait});
  EXPECT_EQ(tells_of_umwait(*engine), !platform::has_line_wait());
  EXPECT_EQ(engine->waiting(), platform::has_line_wait() ? Waiting::umwait : Waiting::spin);
  const auto usual = test::make_engine({.threads_per_node = 1});
  EXPECT_FALSE(tells_of_umwait(*usual));
  EXPECT_EQ(usual->waiting(), Waiting::adaptive);
}

}  // namespace
}  // namespace headrace::engine::waiting_test
