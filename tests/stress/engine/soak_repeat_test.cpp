// SPDX-License-Identifier: Apache-2.0
// The small soak: one thread, and devices scheduled by the seed, so HEADRACE_SEED reproduces
// everything, from the order in which engines take descriptors to the last byte of memory. Excludes
// what depends on the clock: abandoned descriptors and waits that time out.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "emu/device/client.hpp"
#include "emu/device/trace.hpp"
#include "emulated.hpp"
#include "soak_work.hpp"
#include "support/seed.hpp"

namespace headrace::engine::soak::soak_repeat_test {
namespace {

using emu::FaultKind;
using emu::FaultRule;

constexpr std::uint64_t kRoundCount = 400;
constexpr std::size_t kWindow = 6;

/// FNV-1a of all results.
class Digest {
 public:
  void add(std::string_view text) {
    for (const char one : text)
      value_ = (value_ ^ static_cast<unsigned char>(one)) * 0x100000001b3U;
  }
  /// Everything except addresses, which differ between processes.
  void add(const Completion& end) {
    add(fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {};", name(end.state), name(end.cause),
                    end.fell_back, end.device_status, end.late_write_possible, end.bytes_done,
                    end.bytes_by_device, end.page_faults, end.retries, end.result.different,
                    end.result.difference_offset, end.result.crc, end.result.delta_bytes,
                    end.result.dif_errors));
  }
  [[nodiscard]] std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325U;
};

/// Result of one run.
struct Outcome {
  std::uint64_t digest = 0;
  std::uint64_t steps = 0;  ///< Events of the devices.
  Tally tally;
  DeviceStatistics devices;
};

/// A job or an operation of a channel, and its buffers.
struct Place {
  Place(Random& random, Retired& retired) : work(random, retired) {}
  Work work;
  std::optional<Ticket> ticket;
  Job job;
  bool stop_asked = false;
};

emu::FaultScript troubles() {
  return test::script({
      FaultRule{.kind = FaultKind::queue_full, .queue = 0, .probability = 0.1},
      FaultRule{.kind = FaultKind::page_fault, .probability = 0.05, .at_byte = 100},
      FaultRule{.kind = FaultKind::page_fault, .probability = 0.03, .write = true},
      FaultRule{.kind = FaultKind::status, .probability = 0.02, .raw_status = DSA_COMP_HW_ERR1},
      FaultRule{.kind = FaultKind::slow, .probability = 0.02, .delay_ns = 20},
      FaultRule{.kind = FaultKind::reset, .device = 1, .every = 301},
  });
}

Outcome run(std::uint64_t seed) {
  Outcome outcome;
  Digest digest;
  Random random(seed);
  Retired retired;
  const auto trace = [&](const emu::TraceEvent& event) {
    ++outcome.steps;
    digest.add(emu::to_json(event));
  };
  const test::Emulated machine = test::make_emulated({.device_count = 2,
                                                      .dedicated_count = 1,
                                                      .transfer_bytes_max = 16U << 10U,
                                                      .entry_count = 12,
                                                      // No completion is lost here; a machine that
                                                      // pauses must not count as a silent device.
                                                      .device = {.timeout = std::chrono::hours(1)},
                                                      .faults = troubles(),
                                                      .policy = movers::round_robin,
                                                      .schedule = emu::Schedule::deterministic,
                                                      .seed = seed,
                                                      .trace = trace});
  Engine& engine = *machine.engine;
  const std::array<MoverPolicy, 3> policies{movers::round_robin, movers::least_loaded, movers::all};
  std::vector<std::unique_ptr<Place>> places;
  for (std::size_t i = 0; i < kWindow; ++i) {
    places.push_back(std::make_unique<Place>(random, retired));
  }
  const auto advance = [&] {
    machine.devices->client().run_until_idle();
    engine.poll();
  };
  std::unique_ptr<Channel> channel;
  for (std::uint64_t round = 0; round < kRoundCount && !::testing::Test::HasFailure(); ++round) {
    if (random.chance(1, 16) || !channel) {
      channel.reset();
      channel = std::move(engine.open_channel({.depth = 1 + random.below(3)}).value());
    }
    for (const auto& place : places) {
      place->work.draw(random.chance(1, 4) ? 40 : 1);
      place->stop_asked = false;
      place->ticket.reset();
      Ticket ticket{};
      const std::span<const Operation> operations = place->work.operations();
      const bool batch = place->work.is_batch();
      if (random.chance(1, 4) &&
          (batch ? channel->submit_batch(place->work.batch(), ticket)
                 : channel->submit(operations[0], ticket)) == Submit::accepted) {
        place->ticket = ticket;
        continue;
      }
      const SubmitOptions options{.policy = &policies.at(random.below(policies.size())),
                                  .path = Path::dsa};
      const auto submit = [&] {
        return batch ? engine.submit_batch(place->job, place->work.batch(), options)
                     : engine.submit(place->job, operations[0], options);
      };
      while (submit() == Submit::full) advance();
      place->stop_asked = random.chance(1, 30);
      if (place->stop_asked) place->job.stop();
    }
    for (const auto& place : places) {
      Completion end;
      if (place->ticket) {
        while (!channel->poll(*place->ticket, end)) advance();
      } else {
        while (place->job.state() == JobState::running) advance();
        end = place->job.completion();
      }
      place->work.check(end, place->stop_asked, outcome.tally);
      digest.add(end);
    }
  }
  for (const auto& place : places) digest.add(place->work.memory());
  channel.reset();
  engine.stop();
  for (const DeviceStatistics& one : engine.device_statistics()) {
    outcome.devices.retries += one.retries;
    outcome.devices.page_faults += one.page_faults;
    outcome.devices.errors += one.errors;
    outcome.devices.lost += one.lost;
  }
  outcome.digest = digest.value();
  return outcome;
}

TEST(SoakRepeat, TheSeedRepeatsEveryStepOfTheDevicesAndEveryByte) {
  const std::uint64_t seed = headrace::test::seed();
  const Outcome first = run(seed);
  const Outcome again = run(seed);
  EXPECT_EQ(first.digest, again.digest) << "seed " << seed;
  EXPECT_EQ(first.steps, again.steps);
  EXPECT_NE(first.digest, run(seed + 1).digest);
  EXPECT_GT(first.devices.retries, 0U);
  EXPECT_GT(first.devices.page_faults, 0U);
  EXPECT_GT(first.devices.errors, 0U);
  EXPECT_EQ(first.devices.lost, 0U);
  EXPECT_GT(first.tally.stopped, 0U);
  EXPECT_GT(first.tally.fences_broken, 0U);
  std::printf("soak: seed %llu: %llu operations, %llu events of the devices, digest %016llx\n",
              static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(first.tally.operations),
              static_cast<unsigned long long>(first.steps),
              static_cast<unsigned long long>(first.digest));
}

}  // namespace
}  // namespace headrace::engine::soak::soak_repeat_test
