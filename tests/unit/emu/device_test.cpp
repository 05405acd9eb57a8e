// SPDX-License-Identifier: Apache-2.0
// The device through its portals: results and order of submissions, and the driver's commands.
#include "emu/device/device.hpp"
#include "emu/device/client.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <thread>
#include <vector>

#include "headrace/base/atomic.hpp"
#include "support/emulator.hpp"

namespace headrace::emu {
namespace {

using test::Completions;
using test::one_queue;

constexpr DeviceId kDevice{0};
constexpr QueueId kQueue{0};

std::unique_ptr<Device> make(const DeviceConfig& config, DeviceOptions options = {}) {
  auto device = Device::create(std::span(&config, 1), std::move(options));
  EXPECT_TRUE(device) << device.error().message();
  return device ? std::move(*device) : nullptr;
}

TEST(Device, completes_a_noop) {
  auto device = make(one_queue());
  Completions completions(1);
  ASSERT_TRUE(device->portal(kDevice, kQueue).submit(completions.noop(0)));
  EXPECT_EQ(completions.await(0), 1);
}

TEST(Device, moves_bytes) {
  auto device = make(one_queue());
  Completions completions(1);
  std::vector<std::byte> source(100'000, std::byte{7});
  std::vector<std::byte> target(source.size());
  ASSERT_TRUE(device->portal(kDevice, kQueue).submit(completions.move(0, target, source)));
  EXPECT_EQ(completions.await(0), 1);
  EXPECT_EQ(target, source);
}

TEST(Device, runs_a_batch_and_counts_what_it_processed) {
  auto device = make(one_queue());
  Completions completions(33);
  std::vector<dsa::Descriptor> list;
  for (std::size_t i = 0; i < 32; ++i) list.push_back(completions.noop(i));
  ASSERT_TRUE(device->portal(kDevice, kQueue).submit(completions.batch(32, list)));
  EXPECT_EQ(completions.await(32), 1);
  EXPECT_EQ(completions.record(32).bytes_completed, 32U);
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(completions.status(i), 1);
}

TEST(Device, gives_the_entry_back_before_it_writes_the_record) {
  auto device = make(one_queue({.size = 1}));
  Completions completions(1);
  for (int i = 0; i < 1000; ++i) {
    completions.clear(0);
    ASSERT_TRUE(device->portal(kDevice, kQueue).submit(completions.noop(0))) << i;
    ASSERT_EQ(completions.await(0), 1);
  }
}

TEST(Device, a_disabled_queue_answers_with_retry) {
  auto device = make(one_queue());
  ASSERT_TRUE(device->control().disable_queue(kDevice, kQueue, std::chrono::seconds(60)));
  Completions completions(1);
  EXPECT_FALSE(device->portal(kDevice, kQueue).submit(completions.noop(0)));
  ASSERT_TRUE(device->control().enable_queue(kDevice, kQueue));
  EXPECT_TRUE(device->portal(kDevice, kQueue).submit(completions.noop(0)));
  EXPECT_EQ(completions.await(0), 1);
}

TEST(Device, a_halted_device_completes_nothing_until_reset_and_then_aborts) {
  // Stepped schedule, so that nothing completes before the halt, and that idleness can be awaited.
  DeviceOptions options;
  options.schedule = Schedule::deterministic;
  Completions completions(3);
  std::vector<std::byte> source(1 << 20, std::byte{7});
  std::vector<std::byte> target(source.size());
  auto device = make(one_queue({.engines = 2}), std::move(options));
  // One descriptor waits behind a half-done one.
  ASSERT_TRUE(device->portal(kDevice, kQueue).submit(completions.move(0, target, source)));
  while (target.front() == std::byte{0}) ASSERT_TRUE(device->client().step());
  ASSERT_TRUE(device->portal(kDevice, kQueue).submit(completions.noop(1)));
  device->control().halt(kDevice);
  EXPECT_FALSE(device->portal(kDevice, kQueue).submit(completions.noop(2)));
  device->client().run_until_idle();
  EXPECT_EQ(completions.status(0), 0);
  EXPECT_EQ(completions.status(1), 0);
  EXPECT_EQ(device->control().occupancy(kDevice, kQueue), 2U);
  EXPECT_EQ(target.back(), std::byte{0});
  device->control().reset(kDevice);
  EXPECT_EQ(completions.status(0), 0xff);
  EXPECT_EQ(completions.status(1), 0xff);
  EXPECT_EQ(device->control().occupancy(kDevice, kQueue), 0U);
  EXPECT_EQ(target.back(), std::byte{0});
  ASSERT_TRUE(device->portal(kDevice, kQueue).submit(completions.noop(2)));
  device->client().run_until_idle();
  EXPECT_EQ(completions.status(2), 1);
}

TEST(Device, a_halt_stops_the_engine_threads_and_a_reset_sets_them_free) {
  Atomic<std::uint32_t> halted;
  DeviceOptions options;
  options.faults.rules[0] = {.kind = FaultKind::halt, .nth = 1};
  options.faults.rule_count = 1;
  options.trace = [&](const TraceEvent& event) {
    if (event.kind == TraceKind::control) halted.fetch_add_relaxed(1);  // a flag alone
  };
  Completions completions(2);
  auto device = make(one_queue(), std::move(options));
  ASSERT_TRUE(device->portal(kDevice, kQueue).submit(completions.noop(0)));
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (halted.load_relaxed() == 0) {  // as above
    ASSERT_LT(std::chrono::steady_clock::now(), limit);
    std::this_thread::yield();
  }
  EXPECT_FALSE(device->portal(kDevice, kQueue).submit(completions.noop(1)));
  device->control().reset(kDevice);
  // If it had completed meanwhile, its record would show it.
  EXPECT_EQ(completions.await(0), 0xff);
  ASSERT_TRUE(device->portal(kDevice, kQueue).submit(completions.noop(1)));
  EXPECT_EQ(completions.await(1), 1);
}

}  // namespace
}  // namespace headrace::emu
