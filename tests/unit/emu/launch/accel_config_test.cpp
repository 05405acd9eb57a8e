// SPDX-License-Identifier: Apache-2.0
#include "launch/emulator/accel_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace headrace::emu {
namespace {

using ::testing::HasSubstr;

/// A device with one shared WQ of the given fields, and one engine.
std::string with_queue(const std::string& fields) {
  return R"([{"dev":"dsa0","groups":[{"dev":"group0.0","grouped_workqueues":[{"dev":"wq0.0",)" +
         fields + R"(}],"grouped_engines":[{"dev":"engine0.0","group_id":0}]}]}])";
}

std::string refusal(const std::string& json) {
  const auto config = parse_accel_config(json, "C.json");
  return config ? "accepted" : config.error().message();
}

constexpr const char* kGood =
    R"("mode":"shared","size":16,"group_id":0,"priority":10,"block_on_fault":1,"type":"user",
       "driver_name":"user","name":"app","threshold":15)";

std::string replaced(const std::string& part, const std::string& by) {
  std::string fields = kGood;
  const std::size_t place = fields.find(part);
  EXPECT_NE(place, std::string::npos);
  return with_queue(fields.replace(place, part.size(), by));
}

TEST(AccelConfig, ASavedConfigurationIsRead) {
  const auto config = parse_accel_config(with_queue(kGood), "C.json");
  ASSERT_TRUE(config) << config.error().message();
  ASSERT_EQ(config->devices.size(), 1U);
  const QueueConfig& queue = config->devices[0].queues[0];
  EXPECT_EQ(queue.mode, dsa::QueueMode::shared);
  EXPECT_EQ(queue.size, 16U);
  EXPECT_EQ(queue.threshold, 15U);
  EXPECT_EQ(queue.priority, 10U);
  EXPECT_TRUE(queue.block_on_fault);
  EXPECT_EQ(queue.group, 0U);
  EXPECT_EQ(queue.name, "app");
  EXPECT_EQ(config->devices[0].engine_groups[0], 0U);
  EXPECT_EQ(config->devices[0].engine_groups[1], kNoGroup);
}

TEST(AccelConfig, ACommaMayStandBeforeAClosingBracketButNotInsideAString) {
  const auto config = parse_accel_config(
      R"([{"dev":"dsa0","groups":[{"dev":"group0.0","grouped_workqueues":[{"dev":"wq0.0","size":4,
          "mode":"dedicated","priority":1,"type":"user","driver_name":"user","name":"a,]\",}",},],
          "grouped_engines":[{"dev":"engine0.0",},],},],},])",
      "C.json");
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->devices[0].queues[0].name, "a,]\",}");
}

TEST(AccelConfig, ADeviceThatIsNotNamedHasNoQueues) {
  const auto config = parse_accel_config(R"([{"dev":"dsa2"}])", "C.json");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->devices.size(), 3U);
}

TEST(AccelConfig, ADeviceMayHaveANode) {
  const auto config =
      parse_accel_config(R"([{"dev":"dsa0"},{"dev":"dsa1","numa_node":5}])", "C.json");
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->devices[0].numa_node, 0);
  EXPECT_EQ(config->devices[1].numa_node, 5);
  EXPECT_THAT(refusal(R"([{"dev":"dsa0","numa_node":1024}])"),
              HasSubstr("more than the 1023 allowed"));
}

TEST(AccelConfig, EachFieldSaysWhatIsAllowed) {
  EXPECT_THAT(replaced("\"size\":16", "\"size\":129"), ::testing::Ne("")) << "a sanity check";
  EXPECT_THAT(
      refusal(replaced("\"size\":16", "\"size\":129")),
      HasSubstr("field '[0].groups[0].grouped_workqueues[0].size' is 129, more than the 128 "
                "allowed"));
  EXPECT_THAT(refusal(replaced("\"size\":16", "\"size\":-1")),
              HasSubstr("size' is not a whole number"));
  EXPECT_THAT(refusal(replaced("\"size\":16", "\"size\":1.5")),
              HasSubstr("size' is not a whole number"));
  EXPECT_THAT(refusal(replaced("\"size\":16", "\"size\":\"x\"")),
              HasSubstr("size' is not a whole number"));
  EXPECT_THAT(refusal(replaced("\"threshold\":15", "\"threshold\":17")),
              HasSubstr("threshold' is 17 for a shared WQ of size 16; use 1 to 16"));
  EXPECT_THAT(refusal(replaced("\"threshold\":15", "\"threshold\":0")), HasSubstr("use 1 to 16"));
  EXPECT_THAT(refusal(replaced("\"shared\"", "\"dedicated\"")),
              HasSubstr("threshold' is set for a dedicated WQ, which has none"));
  EXPECT_THAT(refusal(replaced("\"shared\"", "\"both\"")),
              HasSubstr("mode' is 'both', not one of shared, dedicated"));
  EXPECT_THAT(refusal(replaced("\"priority\":10", "\"priority\":16")),
              HasSubstr("priority' is 16, more than the 15 allowed"));
  EXPECT_THAT(refusal(replaced("\"priority\":10", "\"priority\":0")), HasSubstr("use 1 to 15"));
  EXPECT_THAT(refusal(replaced("\"name\":\"app\"", "\"name\":\"\"")), HasSubstr("it has no name"));
  EXPECT_THAT(refusal(replaced("\"driver_name\":\"user\"", "\"driver_name\":\"dmaengine\"")),
              HasSubstr("driver_name' is 'dmaengine', which is not emulated"));
  EXPECT_THAT(refusal(replaced("\"group_id\":0", "\"group_id\":1")),
              HasSubstr("group_id' is 1, not the group that contains it"));
  EXPECT_THAT(refusal(replaced("\"size\":16", "\"colour\":16")),
              HasSubstr("colour' is not known; use one of dev, group_id,"));
}

TEST(AccelConfig, AMissingDriverNameIsSaidToBeMissing) {
  EXPECT_THAT(refusal(replaced("\"driver_name\":\"user\"", "\"driver_name\":\"\"")),
              HasSubstr("driver_name' is missing"));
}

TEST(AccelConfig, WhatIsNotEmulatedIsLeftOutAndTold) {
  const auto config = parse_accel_config(
      R"([{"dev":"dsa0","groups":[
            {"dev":"group0.0","grouped_workqueues":[
               {"dev":"wq0.0","mode":"dedicated","size":100,"group_id":0,"priority":10,
                "type":"kernel","driver_name":"dmaengine","name":"dmaengine"},
               {"dev":"wq0.1","mode":"dedicated","size":100,"group_id":0,"priority":10,
                "type":"user","driver_name":"user","name":"app"}],
             "grouped_engines":[{"dev":"engine0.0","group_id":0}]},
            {"dev":"group0.1","grouped_workqueues":[
               {"dev":"wq0.2","mode":"dedicated","size":8,"type":"mdev","driver_name":"mdev"}]}]},
          {"dev":"iax1","groups":[{"dev":"group1.0","grouped_workqueues":[{"dev":"wq1.0"}]}]}])",
      "C.json");
  ASSERT_TRUE(config) << config.error().message();
  ASSERT_EQ(config->devices.size(), 1U);
  EXPECT_EQ(config->devices[0].queues[0].size, 0U);
  EXPECT_EQ(config->devices[0].queues[1].name, "app");
  EXPECT_THAT(config->left_out,
              ::testing::ElementsAre("'C.json', [0].groups[0].grouped_workqueues[0]: wq0.0 of type "
                                     "kernel ignored: only WQs of type user are emulated",
                                     "'C.json', [0].groups[1].grouped_workqueues[0]: wq0.2 of type "
                                     "mdev ignored: only WQs of type user are emulated",
                                     "'C.json', [1]: iax1 ignored: only DSAs are emulated"));
}

TEST(AccelConfig, TheWholeIsJudgedToo) {
  EXPECT_THAT(refusal("["), HasSubstr("read the configuration 'C.json': line 1 is not JSON"));
  EXPECT_THAT(refusal(""), HasSubstr("not JSON"));
  EXPECT_THAT(refusal("{}"), HasSubstr("it is not a list"));
  EXPECT_THAT(refusal("[]"), HasSubstr("not a list of devices"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("field '[0]' is not an object"));
  EXPECT_THAT(refusal(R"([{"dev":"iax1"}])"), HasSubstr("it has no DSA"));
  EXPECT_THAT(refusal(R"([{"dev":"iaxx"}])"),
              HasSubstr("field '[0].dev' is 'iaxx', which is not a DSA device"));
  EXPECT_THAT(refusal(R"([{"dev":"dsa16"}])"), HasSubstr("use dsa0 to dsa15"));
  EXPECT_THAT(refusal(R"([{"dev":"dsa0"},{"dev":"dsa0"}])"),
              HasSubstr("field '[1].dev' is 'dsa0', which appears twice"));
  EXPECT_THAT(refusal(R"([{"dev":"dsa0","groups":{}}])"), HasSubstr("groups' is not a list"));
  EXPECT_THAT(refusal(R"([{"dev":"dsa0","groups":[{"dev":"group1.0"}]}])"),
              HasSubstr("is 'group1.0', which is no group of dsa0; use group0.0 to group0.3"));
  EXPECT_THAT(refusal(R"([{"dev":"dsa0","groups":[{"dev":"group0.0","grouped_workqueues":
                         [{"dev":"wq0.0","size":4}]}]}])"),
              HasSubstr("grouped_engines' is empty, but the group has WQs"));
  EXPECT_THAT(refusal(R"([{"dev":"dsa0","ungrouped_workqueues":
                         [{"dev":"wq0.0","size":100},{"dev":"wq0.1","size":100}]}])"),
              HasSubstr("add up to 200; use 128 at most"));
}

}  // namespace
}  // namespace headrace::emu
