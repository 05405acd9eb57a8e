// SPDX-License-Identifier: Apache-2.0
// Devices whose portals may not be mapped, as on kernels since 2024 for processes without
// CAP_SYS_RAWIO: submissions use write(), and are reported as such. Each test re-executes itself
// under the emulator, which refuses the mapping.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "engine/dsa/open.hpp"
#include "engine/dsa/queue.hpp"
#include "engine/software/software.hpp"
#include "fixtures.hpp"

namespace headrace::engine {
namespace {

using test::Buffers;

constexpr const char* kInside = "HEADRACE_TEST_INSIDE_THE_EMULATOR";

bool is_inside() {
  return std::getenv(kInside) != nullptr;
}

/// Exit code, or -1.
int run(const std::vector<std::string>& command) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv(kInside, "1", 1);
    std::vector<char*> words;
    for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    ::execv(words[0], words.data());
    ::_exit(127);
  }
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Runs the current test on emulated devices. `faults`: a fault script.
void run_inside(const std::string& faults = {}) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a sanitizer and the emulator both want the handlers of signals";
#endif
  if (run({HEADRACE_EMULATOR, "--preload", HEADRACE_TRAP, "--", "/bin/true"}) != 0) {
    GTEST_SKIP() << "the emulator cannot start on this machine, and says why above";
  }
  const auto& info = *::testing::UnitTest::GetInstance()->current_test_info();
  std::vector<std::string> command{HEADRACE_EMULATOR, "--preload", HEADRACE_TRAP, "--wq", "both",
                                   "--refuse-mmap"};
  std::string script;
  if (!faults.empty()) {
    script = ::testing::TempDir() + "headrace-write-" + std::to_string(::getpid()) + ".toml";
    std::ofstream(script) << faults;
    command.insert(command.end(), {"--faults", script});
  }
  command.insert(command.end(),
                 {"--", "/proc/self/exe",
                  std::string("--gtest_filter=") + info.test_suite_name() + "." + info.name()});
  // /proc/self/exe would be the emulator.
  std::array<char, 4096> self{};
  ASSERT_GT(::readlink("/proc/self/exe", self.data(), self.size() - 1), 0);
  command[command.size() - 2] = self.data();
  EXPECT_EQ(run(command), 0);
  if (!script.empty()) ::unlink(script.c_str());
}

std::unique_ptr<Engine> make_engine() {
  const auto machine = topo::discover();
  EXPECT_TRUE(machine.has_value());
  auto engine = Engine::make(*machine, {.threads_per_node = 1});
  EXPECT_TRUE(engine.has_value()) << engine.error().message();
  return std::move(*engine);
}

TEST(Write, EverythingIsDoneByDevicesAndReportedAsWritten) {
  if (!is_inside()) return run_inside();
  const auto engine = make_engine();
  std::size_t device_count = 0;
  for (const MoverInfo& mover : engine->movers()) {
    if (!mover.hardware) continue;
    ++device_count;
    EXPECT_TRUE(mover.note.starts_with("write(), because")) << mover.note;
  }
  EXPECT_EQ(device_count, 2U);  // A shared queue and a dedicated one.
  Buffers large(5U << 20U);
  Buffers small(1000);
  for (int turn = 0; turn < 4; ++turn) {
    Buffers buffers(100'000);
    Job job;
    ASSERT_EQ(engine->submit_copy(job, buffers.plan(), {.path = Path::dsa}), Submit::accepted);
    ASSERT_TRUE(job.wait_for(std::chrono::seconds(60)));
    EXPECT_EQ(job.completion().bytes_by_device, 100'000U);
    EXPECT_TRUE(buffers.equal());
  }
  // The kernel accepts no batches by write(): submitted one by one, with the same rules.
  const std::array<Operation, 4> operations{
      Operation::copy(small.target, small.source), Operation::crc(small.target).fenced(),
      Operation::copy(large.target, large.source), Operation::no_op()};
  for (int turn = 0; turn < 4; ++turn) {
    std::array<Completion, 4> ends;
    Job job;
    ASSERT_EQ(engine->submit_batch(job, {operations, ends}, {.path = Path::dsa}), Submit::accepted);
    ASSERT_TRUE(job.wait_for(std::chrono::seconds(60)));
    EXPECT_EQ(job.completion().state, JobState::done);
    EXPECT_EQ(job.completion().bytes_by_device, 2000 + large.source.size());
    EXPECT_EQ(ends[1].result.crc, software::execute(Operation::crc(small.source)).result.crc);
    EXPECT_FALSE(job.completion().fell_back);
  }
  EXPECT_TRUE(large.equal());
  auto channel = engine->open_channel({.depth = 2});
  ASSERT_TRUE(channel.has_value());
  Ticket ticket{};
  Buffers buffers(100);
  ASSERT_EQ((*channel)->submit_copy(buffers.plan(), ticket), Submit::accepted);
  EXPECT_EQ((*channel)->wait(ticket).bytes_by_device, 100U);
  EXPECT_TRUE(buffers.equal());
}

TEST(Write, AFullQueueIsWaitedFor) {
  // The driver retries write() itself: the engine sees no refusal.
  if (!is_inside()) return run_inside("[[fault]]\nkind = \"queue_full\"\nqueue = 0\nevery = 3\n");
  const auto engine = make_engine();
  for (int turn = 0; turn < 20; ++turn) {
    Buffers buffers(10'000);
    const std::array<Operation, 3> operations{
        Operation::copy(buffers.target, buffers.source), Operation::no_op(),
        Operation::compare(buffers.target, buffers.source).fenced()};
    Job job;
    Submit answer = Submit::full;
    while (answer == Submit::full) {
      answer = turn % 2 == 0 ? engine->submit(job, operations[0], {.path = Path::dsa})
                             : engine->submit_batch(job, {operations, {}}, {.path = Path::dsa});
    }
    ASSERT_EQ(answer, Submit::accepted);
    ASSERT_TRUE(job.wait_for(std::chrono::seconds(60)));
    EXPECT_EQ(job.completion().state, JobState::done);
    EXPECT_FALSE(job.completion().fell_back);
    EXPECT_TRUE(buffers.equal());
  }
}

TEST(Write, WhatTheDriverGivesBackIsNotLostAndEndsOnce) {
  // The driver tries 33 times, as idxd does, and about every third write() ends with EAGAIN.
  if (!is_inside()) {
    return run_inside("[[fault]]\nkind = \"queue_full\"\nqueue = 0\nprobability = 0.97\n");
  }
  const auto machine = topo::discover();
  ASSERT_TRUE(machine.has_value());
  auto made =
      Engine::make(*machine, {.threads_per_node = 1, .devices = {.queues = {"dsa0/wq0.0"}}});
  ASSERT_TRUE(made.has_value()) << made.error().message();
  const auto engine = std::move(*made);
  constexpr std::size_t kJobCount = 60;
  std::array<int, kJobCount> ends{};
  std::uint64_t refused = 0;
  for (std::size_t turn = 0; turn < kJobCount; ++turn) {
    // Two pieces each, so that a started operation finds a full queue, too.
    Buffers buffers(turn % 2 == 0 ? std::size_t{3} << 20U : 10'000);
    const std::array<Operation, 3> operations{
        Operation::copy(buffers.target, buffers.source), Operation::no_op(),
        Operation::compare(buffers.target, buffers.source).fenced()};
    const SubmitOptions options{
        .callback = [](void* count, const Completion&) noexcept { ++*static_cast<int*>(count); },
        .callback_context = &ends[turn],
        .path = Path::dsa};
    Job job;
    Submit answer = Submit::full;
    while (answer == Submit::full) {
      answer = turn % 3 == 0 ? engine->submit_batch(job, {operations, {}}, options)
                             : engine->submit(job, operations[0], options);
      if (answer == Submit::full) ++refused;
    }
    ASSERT_EQ(answer, Submit::accepted);
    ASSERT_TRUE(job.wait_for(std::chrono::seconds(60)));
    EXPECT_EQ(job.completion().state, JobState::done);
    EXPECT_FALSE(job.completion().fell_back);
    EXPECT_TRUE(buffers.equal());
  }
  for (const int count : ends) EXPECT_EQ(count, 1);
  const EngineStatistics statistics = engine->statistics();
  EXPECT_EQ(statistics.jobs_submitted, kJobCount);
  EXPECT_EQ(statistics.jobs_done, kJobCount);
  EXPECT_EQ(statistics.submissions_refused, refused);
  EXPECT_GT(refused, 0U);
  std::uint64_t kept_waiting = 0;
  for (const OperationStatistics& kind : statistics.operations) kept_waiting += kind.retries;
  EXPECT_GT(kept_waiting, 0U);
  // The mover counts refusals of both kinds.
  EXPECT_EQ(engine->device_statistics().back().retries, refused + kept_waiting);
  // A thread with a channel gets `full`, and continues.
  auto channel = engine->open_channel({.depth = 2});
  ASSERT_TRUE(channel.has_value());
  Buffers buffers(1000);
  bool was_full = false;
  for (int turn = 0; turn < 200 && !was_full; ++turn) {
    Ticket ticket{};
    Submit answer = (*channel)->submit_copy(buffers.plan(), ticket);
    for (; answer == Submit::full; answer = (*channel)->submit_copy(buffers.plan(), ticket)) {
      was_full = true;
    }
    ASSERT_EQ(answer, Submit::accepted);
    EXPECT_EQ((*channel)->wait(ticket).bytes_by_device, 1000U);
  }
  EXPECT_TRUE(was_full);
  EXPECT_TRUE(buffers.equal());
}

TEST(Write, WhatAWriteDoesNotTakeIsAFullQueue) {
  // A character device that cannot be mapped and accepts nothing: ENOSPC for EAGAIN.
  auto portal = open_portal("/dev/full", {.name = "full/wq0.0",
                                          .mode = dsa::QueueMode::shared,
                                          .entry_count = 4,
                                          .batch_max = 32,
                                          .transfer_bytes_max = 1U << 21U});
  ASSERT_TRUE(portal.has_value()) << portal.error().message();
  EXPECT_FALSE(portal->mapped);
  EXPECT_TRUE(portal->note.starts_with("write(), because")) << portal->note;
  auto mover = DsaQueue::make(std::move(portal->portal),
                              {.note = portal->note,
                               .device = {.timeout = std::chrono::milliseconds(50)},
                               .batches = false});
  ASSERT_TRUE(mover.has_value());
  std::vector<std::unique_ptr<Mover>> movers;
  movers.push_back(std::move(*mover));
  const auto engine = std::move(Engine::make(std::move(movers), {}).value());
  Buffers buffers(5000);
  const std::array<Operation, 2> both{Operation::copy(buffers.target, buffers.source),
                                      Operation::crc(buffers.source)};
  Job job;
  EXPECT_EQ(engine->submit_copy(job, buffers.plan(), {.path = Path::dsa}), Submit::full);
  EXPECT_EQ(engine->submit_batch(job, {both, {}}, {.path = Path::dsa}), Submit::full);
  EXPECT_EQ(buffers.moved_bytes(), 0U);
  // Retired in the end, like any queue that accepts nothing.
  Submit answer = Submit::full;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (answer == Submit::full && std::chrono::steady_clock::now() < end) {
    answer = engine->submit_batch(job, {both, {}}, {.path = Path::dsa});
  }
  ASSERT_EQ(answer, Submit::accepted);
  EXPECT_TRUE(job.wait().fell_back);
  EXPECT_TRUE(buffers.equal());
}

}  // namespace
}  // namespace headrace::engine
