// SPDX-License-Identifier: Apache-2.0
// The driver's files without FUSE: effects of reading and writing them on the devices.
#include "launch/emulator/driver.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "launch/emulator/values.hpp"

namespace headrace::emu {
namespace {

class DriverFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    EmulatorConfig config;
    config.devices.push_back(default_device(1, 1, 2, "app"));
    config.devices.push_back(DeviceConfig{});
    const std::size_t word_count = registers_bytes() / sizeof(Line) + 1;
    memory_ = std::make_unique<Line[]>(word_count);
    control_.emplace(*Control::create(
        {reinterpret_cast<std::byte*>(memory_.get()), word_count * sizeof(Line)}, config));
    driver_.emplace(*control_, std::vector<DeviceExtras>{});
    driver_->add_files(tree_);
  }

  std::string show(const std::string& path) {
    const Node* node = tree_.find(path);
    return node == nullptr ? "absent" : node->show();
  }
  int store(const std::string& path, const std::string& text) {
    const Node* node = tree_.find(path);
    return node == nullptr ? ENOENT : node->store(text);
  }
  int bind(const std::string& driver, const std::string& name) {
    return store("/sys/bus/dsa/drivers/" + driver + "/bind", name + "\n");
  }
  int unbind(const std::string& driver, const std::string& name) {
    return store("/sys/bus/dsa/drivers/" + driver + "/unbind", name + "\n");
  }

  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::unique_ptr<Line[]> memory_;
  std::optional<Control> control_;
  std::optional<Driver> driver_;
  Tree tree_;
  const std::string device_ = "/sys/devices/pcid5a0:00/d5a0:00:01.0/dsa0";
  const std::string queue_ = device_ + "/wq0.0";
};

TEST_F(DriverFiles, AQueueAppearsWhenItsDriverTakesIt) {
  EXPECT_EQ(show(queue_ + "/state"), "disabled\n");
  EXPECT_EQ(tree_.find("/dev/dsa/wq0.0"), nullptr);
  EXPECT_EQ(bind("user", "wq0.0"), ENXIO) << "its device is not enabled";
  EXPECT_EQ(show(device_ + "/cmd_status"), "0x80000020\n");
  EXPECT_EQ(bind("idxd", "dsa0"), 0);
  EXPECT_EQ(bind("idxd", "dsa0"), EBUSY);
  EXPECT_EQ(bind("user", "wq0.0"), 0);
  EXPECT_EQ(bind("user", "wq0.0"), EBUSY);
  EXPECT_EQ(show(queue_ + "/state"), "enabled\n");
  EXPECT_EQ(show(queue_ + "/cdev_minor"), "0\n");
  EXPECT_NE(tree_.find("/dev/dsa/wq0.0"), nullptr);
  EXPECT_NE(tree_.find("/sys/bus/dsa/drivers/user/wq0.0"), nullptr);
  EXPECT_EQ(tree_.list("/dev/dsa"), std::vector<std::string>{"wq0.0"});
  EXPECT_EQ(unbind("user", "wq0.0"), 0);
  EXPECT_EQ(unbind("user", "wq0.0"), ENODEV);
  EXPECT_EQ(show(queue_ + "/state"), "disabled\n");
  EXPECT_TRUE(tree_.list("/dev/dsa").empty());
}

TEST_F(DriverFiles, DriversTakeOnlyWhatIsTheirs) {
  EXPECT_EQ(bind("idxd", "wq0.0"), ENODEV);
  EXPECT_EQ(bind("user", "dsa0"), ENODEV);
  EXPECT_EQ(bind("idxd", "dsa7"), ENODEV);
  EXPECT_EQ(bind("idxd", ""), ENODEV);
  EXPECT_EQ(bind("idxd", "dsa1"), EINVAL) << "it has no WQ";
  EXPECT_EQ(show("/sys/devices/pcid5a0:00/d5a0:01:01.0/dsa1/cmd_status"), "0x800d0000\n");
}

TEST_F(DriverFiles, DisablingADeviceDisablesItsQueuesAndForgetsThem) {
  ASSERT_EQ(bind("idxd", "dsa0"), 0);
  ASSERT_EQ(bind("user", "wq0.0"), 0);
  EXPECT_EQ(unbind("idxd", "dsa0"), 0);
  EXPECT_EQ(show(device_ + "/state"), "disabled\n");
  EXPECT_EQ(show(queue_ + "/state"), "disabled\n");
  EXPECT_EQ(show(queue_ + "/size"), "0\n");
  EXPECT_EQ(show(queue_ + "/group_id"), "-1\n");
  EXPECT_EQ(show(device_ + "/group0.0/engines"), "");
}

TEST_F(DriverFiles, AValueIsReplacedWholeAndOnlyWhileDisabled) {
  EXPECT_EQ(store(queue_ + "/name", "a_rather_long_name\n"), 0);
  EXPECT_EQ(store(queue_ + "/name", "b\n"), 0);
  EXPECT_EQ(show(queue_ + "/name"), "b\n");
  EXPECT_EQ(store(queue_ + "/size", "8\n"), 0);
  EXPECT_EQ(show(queue_ + "/threshold"), "8\n") << "it cannot exceed the size";
  ASSERT_EQ(bind("idxd", "dsa0"), 0);
  EXPECT_EQ(store(queue_ + "/size", "9\n"), EPERM);
  EXPECT_EQ(store(queue_ + "/group_id", "1\n"), EPERM);
  EXPECT_EQ(store(queue_ + "/priority", "3\n"), 0) << "the WQ itself is disabled";
  ASSERT_EQ(bind("user", "wq0.0"), 0);
  for (const char* file :
       {"mode", "priority", "threshold", "block_on_fault", "type", "name", "driver_name",
        "max_transfer_size", "max_batch_size", "op_config", "ats_disable", "prs_disable"}) {
    EXPECT_EQ(store(queue_ + "/" + file, show(queue_ + "/" + file)), EPERM) << file;
  }
}

TEST_F(DriverFiles, WhatNoDeviceTakesIsRefused) {
  for (const auto& [file, text] :
       std::vector<std::pair<std::string, std::string>>{{"mode", "both"},
                                                        {"priority", "16"},
                                                        {"priority", "x"},
                                                        {"threshold", "65"},
                                                        {"threshold", "0"},
                                                        {"block_on_fault", "maybe"},
                                                        {"type", "any"},
                                                        {"name", ""},
                                                        {"name", std::string(64, 'n')},
                                                        {"max_transfer_size", "0"},
                                                        {"max_transfer_size", "2147483649"},
                                                        {"max_batch_size", "1025"},
                                                        {"size", "128"},
                                                        {"size", "-1"},
                                                        {"group_id", "4"},
                                                        {"group_id", "-2"},
                                                        {"op_config", "xyz"},
                                                        {"op_config", "ffffffff,ffffffff"}}) {
    const std::string before = show(queue_ + "/" + file);
    EXPECT_EQ(store(queue_ + "/" + file, text + "\n"), EINVAL) << file << " " << text;
    EXPECT_EQ(show(queue_ + "/" + file), before);
  }
  EXPECT_EQ(store(device_ + "/read_buffer_limit", "97"), EINVAL);
  EXPECT_EQ(store(device_ + "/group0.0/traffic_class_a", "0"), EPERM) << "DSA 1.0";
  EXPECT_EQ(store(device_ + "/group0.0/read_buffers_allowed", "7"), EINVAL) << "2 engines";
  EXPECT_EQ(store(device_ + "/group0.0/read_buffers_allowed", "8"), 0);
  EXPECT_EQ(store(device_ + "/engine0.0/group_id", "9"), EINVAL);
}

TEST_F(DriverFiles, SizesAreRoundedUpToAPowerOfTwo) {
  EXPECT_EQ(store(queue_ + "/max_batch_size", "33"), 0);
  EXPECT_EQ(show(queue_ + "/max_batch_size"), "64\n");
  EXPECT_EQ(store(queue_ + "/max_transfer_size", "0x1001"), 0);
  EXPECT_EQ(show(queue_ + "/max_transfer_size"), "8192\n");
}

TEST_F(DriverFiles, RetriesOfWritesMayBeChangedAtAnyTimeUpToSixtyFour) {
  EXPECT_EQ(show(queue_ + "/enqcmds_retries"), "32\n");
  ASSERT_EQ(bind("idxd", "dsa0"), 0);
  ASSERT_EQ(bind("user", "wq0.0"), 0);
  EXPECT_EQ(store(queue_ + "/enqcmds_retries", "0\n"), 0);
  EXPECT_EQ(show(queue_ + "/enqcmds_retries"), "0\n");
  EXPECT_EQ(store(queue_ + "/enqcmds_retries", "1000\n"), 0);
  EXPECT_EQ(show(queue_ + "/enqcmds_retries"), "64\n");
  EXPECT_EQ(store(queue_ + "/enqcmds_retries", "-1\n"), EINVAL);
  EXPECT_EQ(store(queue_ + "/enqcmds_retries", "many\n"), EINVAL);
  ASSERT_EQ(unbind("user", "wq0.0"), 0);
  ASSERT_EQ(store(queue_ + "/mode", "dedicated\n"), 0);
  EXPECT_EQ(store(queue_ + "/enqcmds_retries", "1\n"), EOPNOTSUPP);
}

TEST_F(DriverFiles, ChangingTheTypeForgetsTheName) {
  EXPECT_EQ(store(queue_ + "/type", "kernel\n"), 0);
  EXPECT_EQ(show(queue_ + "/name"), "\n");
}

TEST_F(DriverFiles, EveryLinkLeadsSomewhere) {
  ASSERT_EQ(bind("idxd", "dsa0"), 0);
  ASSERT_EQ(bind("user", "wq0.0"), 0);
  const auto visit = [&](const auto& self, const std::string& directory) -> void {
    for (const std::string& name : tree_.list(directory)) {
      const std::string path = directory == "/" ? "/" + name : directory + "/" + name;
      const Node* node = tree_.find(path);
      ASSERT_NE(node, nullptr) << path;
      if (node->kind == NodeKind::directory) self(self, path);
      if (node->kind != NodeKind::link) continue;
      std::string place = directory;
      std::string rest = node->target;
      while (rest.starts_with("../")) {
        place.resize(place.rfind('/'));
        rest.erase(0, 3);
      }
      EXPECT_NE(tree_.find(place + "/" + rest), nullptr) << path << " -> " << node->target;
    }
  };
  visit(visit, "/");
}

TEST(Values, BitmapsAreReadAsTheyAreWritten) {
  const std::array<std::uint64_t, 4> bits{0x1'003f'03ff, 0, 0, 0x8000'0000'0000'0000};
  EXPECT_EQ(bitmap_text(bits),
            "80000000,00000000,00000000,00000000,00000000,00000000,00000001,003f03ff");
  EXPECT_EQ(parse_bitmap(bitmap_text(bits)), bits);
  EXPECT_EQ(parse_bitmap("1,3f")->at(0), 0x1'0000'003fU);
  for (const char* text : {"", ",", "1,", "g", "100000000", "1,1,1,1,1,1,1,1,1", "-1", "0x1"}) {
    EXPECT_FALSE(parse_bitmap(text)) << text;
  }
}

TEST(Values, NumbersAreReadAsTheKernelDoes) {
  EXPECT_EQ(parse_number("12\n"), 12);
  EXPECT_EQ(parse_number("-1"), -1);
  EXPECT_EQ(parse_number("0x10"), 16);
  for (const char* text : {"", "\n", "1 ", " 1", "--1", "-", "0x", "1x", "9223372036854775808"}) {
    EXPECT_FALSE(parse_number(text)) << text;
  }
}

}  // namespace
}  // namespace headrace::emu
