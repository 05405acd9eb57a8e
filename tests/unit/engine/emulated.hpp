// SPDX-License-Identifier: Apache-2.0
// An engine on emulated devices inside this process.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "emu/device/device.hpp"
#include "engine/dsa/queue.hpp"
#include "fixtures.hpp"

namespace headrace::engine::test {

/// ThreadSanitizer sees the emulated device as threads. A device that has written without
/// completing (lost_completion) races with the processor that repeats the work. Giving up a
/// completion implies this race, so tests that need it are excluded there.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kReportsEveryRace = true;
#else
inline constexpr bool kReportsEveryRace = false;
#endif
inline constexpr const char* kWhyNoLostCompletion =
    "a lost completion is a race by its nature, and ThreadSanitizer says so";

struct EmulatedOptions {
  std::uint32_t device_count = 1;
  std::uint32_t shared_count = 1;
  std::uint32_t dedicated_count = 0;
  std::uint32_t engine_count = 2;
  std::uint64_t transfer_bytes_max = 2U << 20U;
  std::uint32_t entry_count = 0;  ///< 0: all entries of a device, divided among its queues.
  bool block_on_fault = false;
  DeviceOptions device = {};
  emu::FaultScript faults = {};
  emu::Pace pace = {};
  MoverPolicy policy = {};
  bool workers = false;  ///< Worker threads besides the devices.
  /// As in emu::DeviceOptions.
  emu::Schedule schedule = emu::Schedule::free_running;
  std::uint64_t seed = 0;
  emu::TraceSink trace = {};
};

/// The devices outlive the engine, as hardware does.
struct Emulated {
  std::unique_ptr<emu::Device> devices;
  std::unique_ptr<Engine> engine;
};

inline Emulated make_emulated(EmulatedOptions options) {
  Emulated made;
  std::vector<emu::DeviceConfig> configs;
  const std::uint32_t queue_count = options.shared_count + options.dedicated_count;
  for (std::uint32_t d = 0; d < options.device_count; ++d) {
    emu::DeviceConfig config = emu::default_device(options.shared_count, options.dedicated_count,
                                                   options.engine_count, "test");
    for (std::uint32_t q = 0; q < queue_count; ++q) {
      emu::QueueConfig& queue = config.queues[q];
      queue.transfer_bytes_max = options.transfer_bytes_max;
      queue.block_on_fault = options.block_on_fault;
      if (options.entry_count != 0) {
        queue.size = options.entry_count;
        if (queue.threshold != 0) queue.threshold = options.entry_count;
      }
    }
    configs.push_back(config);
  }
  emu::DeviceOptions emulator;
  emulator.faults = options.faults;
  emulator.pace = options.pace;
  emulator.schedule = options.schedule;
  emulator.seed = options.seed;
  emulator.trace = std::move(options.trace);
  auto devices = emu::Device::create(configs, std::move(emulator));
  EXPECT_TRUE(devices.has_value()) << devices.error().message();
  made.devices = std::move(*devices);
  std::vector<std::unique_ptr<Mover>> movers;
  for (std::uint32_t d = 0; d < options.device_count; ++d) {
    for (std::uint32_t q = 0; q < queue_count; ++q) {
      auto mover = DsaQueue::make(made.devices->portal(DeviceId(d), QueueId(q)),
                                  {.node = NodeId(d % 2), .device = options.device});
      EXPECT_TRUE(mover.has_value()) << mover.error().message();
      movers.push_back(std::move(*mover));
    }
  }
  auto engine = Engine::make(std::move(movers), std::move(options.policy));
  EXPECT_TRUE(engine.has_value()) << engine.error().message();
  made.engine = std::move(*engine);
  return made;
}

inline emu::FaultScript script(std::initializer_list<emu::FaultRule> rules) {
  emu::FaultScript made;
  for (const emu::FaultRule& rule : rules) made.rules[made.rule_count++] = rule;
  return made;
}

}  // namespace headrace::engine::test
