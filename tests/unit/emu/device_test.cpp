// SPDX-License-Identifier: Apache-2.0
// The device by its portals: what a submission comes to, in which order, and what the driver does.
#include "emu/device/device.hpp"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

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
  ASSERT_TRUE(device->control().disable_queue(kDevice, kQueue, std::chrono::seconds(1)));
  Completions completions(1);
  EXPECT_FALSE(device->portal(kDevice, kQueue).submit(completions.noop(0)));
  ASSERT_TRUE(device->control().enable_queue(kDevice, kQueue));
  EXPECT_TRUE(device->portal(kDevice, kQueue).submit(completions.noop(0)));
  EXPECT_EQ(completions.await(0), 1);
}

TEST(Device, a_halted_device_completes_nothing_until_reset_and_then_aborts) {
  auto device = make(one_queue());
  device->control().halt(kDevice);
  Completions completions(1);
  EXPECT_FALSE(device->portal(kDevice, kQueue).submit(completions.noop(0)));
  device->control().reset(kDevice);
  EXPECT_TRUE(device->portal(kDevice, kQueue).submit(completions.noop(0)));
  EXPECT_EQ(completions.await(0), 1);
}

}  // namespace
}  // namespace headrace::emu
