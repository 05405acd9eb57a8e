// SPDX-License-Identifier: Apache-2.0
// Small jobs that share a descriptor of an emulated device: each ends once, with an end of its own.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <thread>

#include "emulated.hpp"

namespace headrace::engine {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""us;
using test::Buffers;
using test::Emulated;
using test::make_emulated;
using test::script;

/// So long that nothing is sent by it.
constexpr CoalescingOptions kPatient{.operations_max = 8, .wait_max = 1s};
constexpr CoalescingOptions kHasty{.operations_max = 8, .wait_max = 2us};

std::uint64_t descriptor_count(const Engine& engine) {
  std::uint64_t count = 0;
  for (const DeviceStatistics& totals : engine.device_statistics()) count += totals.descriptors;
  return count;
}

struct Small {
  Buffers buffers{512};
  Job job;
};

TEST(Coalescing, EnoughJobsShareOneDescriptor) {
  const Emulated machine = make_emulated({.coalescing = kPatient});
  std::array<Small, 32> all;
  for (Small& one : all) {
    ASSERT_EQ(machine.engine->submit_copy(one.job, one.buffers.plan()), Submit::accepted);
  }
  for (Small& one : all) {
    ASSERT_TRUE(one.job.wait_for(60s));
    EXPECT_EQ(one.job.completion().state, JobState::done);
    EXPECT_EQ(one.job.completion().bytes_done, 512U);
    EXPECT_TRUE(one.buffers.equal());
  }
  EXPECT_EQ(descriptor_count(*machine.engine), 4U);
  const EngineStatistics totals = machine.engine->statistics();
  EXPECT_EQ(totals.jobs_submitted, 32U);
  EXPECT_EQ(totals.jobs_done, 32U);
  EXPECT_EQ(totals.bytes_moved, 32U * 512) << "each once, and no batch besides";
}

TEST(Coalescing, AJobWaitsNoLongerThanItIsTold) {
  const Emulated machine = make_emulated({.coalescing = kHasty});
  std::array<Small, 3> all;
  for (std::size_t count = 1; count <= all.size(); ++count) {
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(machine.engine->submit_copy(all[i].job, all[i].buffers.plan()), Submit::accepted);
    }
    // Nobody submits more; polling for the first alone sends them all.
    ASSERT_TRUE(all[0].job.wait_for(60s));
    for (std::size_t i = 1; i < count; ++i) ASSERT_TRUE(all[i].job.wait_for(60s));
    for (std::size_t i = 0; i < count; ++i) EXPECT_TRUE(all[i].buffers.equal());
  }
  // By the engine, for those who only want to be called back.
  ASSERT_EQ(machine.engine->submit_copy(all[0].job, all[0].buffers.plan()), Submit::accepted);
  while (all[0].job.state() == JobState::running) machine.engine->poll();
  EXPECT_EQ(all[0].job.completion().state, JobState::done);
}

TEST(Coalescing, EachOperationHasItsOwnEnd) {
  const Emulated machine = make_emulated({.coalescing = kPatient});
  Buffers buffers(1024);
  std::vector<std::byte> other = buffers.source;
  other[700] ^= std::byte{1};
  std::vector<std::byte> fields(2 * 520);
  std::vector<std::byte> filled(1000);
  const std::span<const std::byte> source(buffers.source);
  const std::array<Operation, 8> operations{
      Operation::compare(source, other),
      Operation::copy(buffers.target, source),
      Operation::dif_check(fields, {}, {.tags = {.reference = 9}}),
      Operation::crc(source),
      Operation::compare(source, source),
      Operation::no_op(),
      Operation::compare_pattern(source, 3),
      Operation::fill(filled, 0x1111111111111111)};
  std::array<Job, 8> jobs;
  std::array<Completion, 8> expected;
  const auto processors = test::make_engine();
  for (std::size_t i = 0; i < operations.size(); ++i) {
    ASSERT_EQ(processors->run(operations[i], expected[i]), Submit::accepted);
  }
  for (std::size_t i = 0; i < operations.size(); ++i) {
    ASSERT_EQ(machine.engine->submit(jobs[i], operations[i]), Submit::accepted);
  }
  for (std::size_t i = 0; i < operations.size(); ++i) {
    ASSERT_TRUE(jobs[i].wait_for(60s));
    const Completion& end = jobs[i].completion();
    EXPECT_EQ(end.state, expected[i].state) << name(operations[i].kind());
    EXPECT_EQ(end.cause, expected[i].cause) << name(operations[i].kind());
    EXPECT_EQ(end.result, expected[i].result) << name(operations[i].kind());
    EXPECT_EQ(end.bytes_done, expected[i].bytes_done) << name(operations[i].kind());
  }
  EXPECT_EQ(descriptor_count(*machine.engine), 1U);
}

TEST(Coalescing, TroubleOfTheDeviceIsMended) {
  const Emulated machine = make_emulated(
      {.entry_count = 4,
       .faults = script({{.kind = emu::FaultKind::page_fault, .every = 5, .at_byte = 100},
                         {.kind = emu::FaultKind::queue_full, .every = 3}}),
       .coalescing = kHasty});
  std::vector<Small> all(300);
  for (Small& one : all) {
    while (true) {
      const Submit answer = machine.engine->submit_copy(one.job, one.buffers.plan());
      if (answer == Submit::accepted) break;
      ASSERT_EQ(answer, Submit::full);
      machine.engine->poll();
    }
  }
  for (Small& one : all) {
    ASSERT_TRUE(one.job.wait_for(60s));
    EXPECT_EQ(one.job.completion().state, JobState::done) << name(one.job.completion().cause);
    EXPECT_TRUE(one.buffers.equal());
  }
  EXPECT_EQ(machine.engine->statistics().jobs_done, 300U);
}

TEST(Coalescing, WhatIsStoppedBeforeItWasSentIsNotSent) {
  const Emulated machine = make_emulated({.coalescing = kPatient});
  std::array<Small, 8> all;
  for (std::size_t i = 0; i < 7; ++i) {
    ASSERT_EQ(machine.engine->submit_copy(all[i].job, all[i].buffers.plan()), Submit::accepted);
  }
  all[2].job.stop();
  all[5].job.stop();
  ASSERT_EQ(machine.engine->submit_copy(all[7].job, all[7].buffers.plan()), Submit::accepted);
  for (std::size_t i = 0; i < all.size(); ++i) {
    ASSERT_TRUE(all[i].job.wait_for(60s));
    const bool stopped = i == 2 || i == 5;
    EXPECT_EQ(all[i].job.completion().state, stopped ? JobState::stopped : JobState::done) << i;
    EXPECT_EQ(all[i].buffers.equal(), !stopped) << i;
  }
}

TEST(Coalescing, StoppingTheEngineEndsWhatWaits) {
  const Emulated machine = make_emulated({.coalescing = kPatient});
  std::array<Small, 11> all;
  int ended_count = 0;
  const SubmitOptions options{
      .callback = [](void* context, const Completion&) noexcept { ++*static_cast<int*>(context); },
      .callback_context = &ended_count};
  for (Small& one : all) {
    ASSERT_EQ(machine.engine->submit_copy(one.job, one.buffers.plan(), options), Submit::accepted);
  }
  machine.engine->stop();
  EXPECT_EQ(ended_count, 11);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const JobState state = all[i].job.state();
    EXPECT_EQ(state, i < 8 ? JobState::done : JobState::stopped) << i;
    EXPECT_EQ(all[i].buffers.equal(), i < 8) << i;
  }
  EXPECT_EQ(machine.engine->submit_copy(all[0].job, all[0].buffers.plan()), Submit::closed);
}

TEST(Coalescing, JobsOfManyThreadsEndOnceEach) {
  constexpr std::size_t kThreadCount = 4;
  constexpr std::size_t kRoundCount = 200;
  const Emulated machine = make_emulated({.device_count = 2, .coalescing = kHasty});
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreadCount; ++t) {
    threads.emplace_back([&machine] {
      std::array<Small, 5> all;
      std::array<int, 5> counts{};
      for (std::size_t round = 0; round < kRoundCount; ++round) {
        for (std::size_t i = 0; i < all.size(); ++i) {
          all[i].buffers.source[round] ^= std::byte{1};
          const SubmitOptions options{
              .callback = [](void* context,
                             const Completion&) noexcept { ++*static_cast<int*>(context); },
              .callback_context = &counts[i]};
          while (machine.engine->submit_copy(all[i].job, all[i].buffers.plan(), options) !=
                 Submit::accepted) {
            machine.engine->poll();
          }
        }
        for (std::size_t i = 0; i < all.size(); ++i) {
          ASSERT_TRUE(all[i].job.wait_for(60s));
          ASSERT_EQ(counts[i], static_cast<int>(round) + 1);
          ASSERT_TRUE(all[i].buffers.equal());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(machine.engine->statistics().jobs_done, kThreadCount * kRoundCount * 5);
}

TEST(Coalescing, WhatFollowsMaySubmitTheJobAgain) {
  const Emulated machine = make_emulated({.coalescing = kHasty});
  struct Again {
    Engine& engine;
    Small small;
    int count = 0;
    static void submit(void* context) noexcept {
      auto& self = *static_cast<Again*>(context);
      if (++self.count > 20) return;
      const SubmitOptions options{.then = &submit, .then_context = context};
      EXPECT_EQ(self.engine.submit_copy(self.small.job, self.small.buffers.plan(), options),
                Submit::accepted);
    }
  } again{.engine = *machine.engine, .small = {}};
  Again::submit(&again);
  while (again.count <= 20) machine.engine->poll();
  EXPECT_TRUE(again.small.buffers.equal());
}

}  // namespace
}  // namespace headrace::engine
