// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>

#include "facts.hpp"

namespace headrace::topo {
namespace {

TEST(Movers, AnAbsentLibraryIsAValueWithANoteAndNotAnError) {
  const Movers movers = find_movers("libheadrace-no-such-library.so.1");
  EXPECT_EQ(movers.discovery, MoverDiscovery::library_absent);
  EXPECT_TRUE(movers.dsa_devices.empty());
  EXPECT_THAT(movers.note, ::testing::HasSubstr("libheadrace-no-such-library.so.1"));
  EXPECT_THAT(movers.note, ::testing::HasSubstr("install"));
}

TEST(Movers, ALibraryThatLacksAFunctionHasFailedAndTheFunctionIsNamed) {
  const Movers movers = find_movers(EMPTY_ACCEL_CONFIG);
  EXPECT_EQ(movers.discovery, MoverDiscovery::library_failed);
  EXPECT_THAT(movers.note, ::testing::HasSubstr("accfg_new"));
}

TEST(Movers, ALibraryThatRefusesToStartHasFailedAndSaysWhy) {
  ::setenv("HEADRACE_FAKE_ACCEL_CONFIG_ERRNO", std::to_string(ENOMEM).c_str(), 1);
  const Movers movers = find_movers(FAKE_ACCEL_CONFIG);
  ::unsetenv("HEADRACE_FAKE_ACCEL_CONFIG_ERRNO");
  EXPECT_EQ(movers.discovery, MoverDiscovery::library_failed);
  EXPECT_THAT(movers.note, ::testing::HasSubstr("Cannot allocate memory"));
}

TEST(Movers, DsaDevicesAreListedWithTheirQueuesAndOtherAcceleratorsAreNot) {
  const Movers movers = find_movers(FAKE_ACCEL_CONFIG);
  EXPECT_EQ(movers.discovery, MoverDiscovery::done);
  EXPECT_EQ(movers.note, "");
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
  EXPECT_EQ(device.queues[1].mode, "dedicated");
  EXPECT_EQ(device.queues[1].state, "disabled");
  EXPECT_EQ(device.queues[1].type, "kernel");
}

}  // namespace
}  // namespace headrace::topo
