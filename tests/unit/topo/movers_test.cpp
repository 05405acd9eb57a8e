// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <utility>

#include "facts.hpp"

namespace headrace::topo {
namespace {

/// A folder as /sys/bus/dsa/devices.
class Bus {
 public:
  using Attributes = std::initializer_list<std::pair<const char*, const char*>>;
  Bus() { EXPECT_NE(::mkdtemp(path_.data()), nullptr); }
  Bus& operator=(Bus&&) = delete;
  ~Bus() { std::filesystem::remove_all(path_); }
  void add(const std::string& name, Attributes attributes) {
    std::filesystem::create_directory(path_ + "/" + name);
    for (const auto& [file, text] : attributes) {
      std::ofstream(path_ + "/" + name + "/" + file) << text << '\n';
    }
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_ = std::filesystem::temp_directory_path() / "headrace-bus-XXXXXX";
};

TEST(Movers, AMachineWithoutTheDriverHasNoDevices) {
  const Movers movers = find_movers("/no/such/folder");
  EXPECT_EQ(movers.discovery, MoverDiscovery::done);
  EXPECT_TRUE(movers.dsa_devices.empty());
  EXPECT_EQ(movers.note, "");
}

TEST(Movers, DsaDevicesAreListedWithTheirQueuesAndOtherAcceleratorsAreNot) {
  Bus bus;
  bus.add("iax1", {{"state", "enabled"}});
  bus.add("wq1.0", {{"mode", "shared"}});
  bus.add("dsa2", {{"state", "enabled"}, {"numa_node", "1"}});
  bus.add("engine2.0", {});
  bus.add("engine2.1", {});
  bus.add("wq2.10", {{"mode", "dedicated"}, {"state", "disabled"}, {"type", "kernel"}});
  bus.add("wq2.0", {{"mode", "shared"},
                    {"state", "enabled"},
                    {"type", "user"},
                    {"size", "64"},
                    {"max_transfer_size", "2097152"},
                    {"max_batch_size", "32"},
                    {"block_on_fault", "1"}});
  const Movers movers = find_movers(bus.path());
  ASSERT_EQ(movers.dsa_devices.size(), 1U);
  const DsaDevice& device = movers.dsa_devices[0];
  EXPECT_EQ(device.id, DeviceId(2));
  EXPECT_EQ(device.node, NodeId(1));
  EXPECT_EQ(device.state, "enabled");
  EXPECT_EQ(device.engine_count, 2U);
  ASSERT_EQ(device.queues.size(), 2U);
  EXPECT_EQ(device.queues[0].mode, "shared");
  EXPECT_EQ(device.queues[0].state, "enabled");
  EXPECT_EQ(device.queues[0].type, "user");
  EXPECT_EQ(device.queues[0].device_name, "wq2.0");
  EXPECT_EQ(device.queues[0].entry_count, 64U);
  EXPECT_EQ(device.queues[0].transfer_max, mib(2));
  EXPECT_EQ(device.queues[0].batch_max, 32U);
  EXPECT_TRUE(device.queues[0].block_on_fault);
  EXPECT_EQ(device.queues[1].id, QueueId(10));
  EXPECT_EQ(device.queues[1].mode, "dedicated");
  EXPECT_EQ(device.queues[1].state, "disabled");
  EXPECT_EQ(device.queues[1].type, "kernel");
}

TEST(Movers, WhatTheDriverDoesNotSayIsUnknown) {
  Bus bus;
  bus.add("dsa0", {{"numa_node", "-1"}});
  bus.add("wq0.0", {});
  const Movers movers = find_movers(bus.path());
  ASSERT_EQ(movers.dsa_devices.size(), 1U);
  EXPECT_EQ(movers.dsa_devices[0].node, std::nullopt);
  EXPECT_EQ(movers.dsa_devices[0].state, "unknown");
  ASSERT_EQ(movers.dsa_devices[0].queues.size(), 1U);
  EXPECT_EQ(movers.dsa_devices[0].queues[0].mode, "unknown");
  EXPECT_EQ(movers.dsa_devices[0].queues[0].entry_count, 0U);
}

}  // namespace
}  // namespace headrace::topo
