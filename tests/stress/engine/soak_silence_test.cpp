// SPDX-License-Identifier: Apache-2.0
// The soak of silent devices: devices scheduled by the seed stop anywhere in a batch until it
// is abandoned, and then finish it. Fences hold even where a processor cannot tell what the device
// will do; where it can, every byte is correct.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <optional>

#include "emu/device/client.hpp"
#include "emulated.hpp"
#include "soak_work.hpp"
#include "support/seed.hpp"

namespace headrace::engine::soak::soak_silence_test {
namespace {

using emu::FaultKind;
using emu::FaultRule;

constexpr int kRoundCount = 1500;

TEST(SoakSilence, FencesHoldWhereverADeviceFallsSilent) {
  const std::uint64_t seed = headrace::test::seed();
  const test::Emulated machine = test::make_emulated(
      {.dedicated_count = 1,
       .transfer_bytes_max = 16U << 10U,
       .device = {.timeout = std::chrono::microseconds(200)},
       .faults = test::script(
           {FaultRule{.kind = FaultKind::page_fault, .probability = 0.01, .at_byte = 100},
            FaultRule{
                .kind = FaultKind::status, .probability = 0.01, .raw_status = DSA_COMP_HW_ERR1}}),
       .policy = movers::round_robin,
       .schedule = emu::Schedule::deterministic,
       .seed = seed});
  Engine& engine = *machine.engine;
  emu::Client& device = machine.devices->client();
  Random random(seed);
  Retired retired;
  Tally tally;
  Work work(random, retired);
  for (int round = 0; round < kRoundCount && !HasFailure(); ++round) {
    work.draw(40);
    const Operation& only = work.operations()[0];
    Completion end;
    const auto stand_still = [&](const auto& is_ended) {
      for (std::uint64_t left = random.below(80); left > 0; --left) {
        static_cast<void>(device.step());
        if (random.chance(1, 8)) engine.poll();
      }
      while (!is_ended()) engine.poll();
    };
    Job job;
    Ticket ticket{};
    std::unique_ptr<Channel> channel;
    if (random.chance(1, 3)) channel = std::move(engine.open_channel({.depth = 1}).value());
    if (channel && (work.is_batch() ? channel->submit_batch(work.batch(), ticket)
                                    : channel->submit(only, ticket)) == Submit::accepted) {
      stand_still([&] { return channel->poll(ticket, end); });
    } else {
      const SubmitOptions options{.path = Path::dsa};
      ASSERT_EQ(work.is_batch() ? engine.submit_batch(job, work.batch(), options)
                                : engine.submit(job, only, options),
                Submit::accepted);
      stand_still([&] { return job.state() != JobState::running; });
      end = job.completion();
    }
    work.check(end, false, tally);
    channel.reset();
    // Finishes the abandoned batches; nothing writes any more afterwards.
    device.run_until_idle();
    engine.poll();
    retired.clear();
  }
  EXPECT_GT(tally.abandoned, 0U);
  EXPECT_GT(tally.undecided, 0U);
  EXPECT_GT(tally.jobs, tally.abandoned) << "some are answered";
  std::printf("soak: seed %llu: %llu jobs, %llu abandoned, %llu of them undecided\n",
              static_cast<unsigned long long>(seed), static_cast<unsigned long long>(tally.jobs),
              static_cast<unsigned long long>(tally.abandoned),
              static_cast<unsigned long long>(tally.undecided));
}

}  // namespace
}  // namespace headrace::engine::soak::soak_silence_test
