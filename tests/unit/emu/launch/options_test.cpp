// SPDX-License-Identifier: Apache-2.0
#include "launch/emulator/options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace headrace::emu {
namespace {

using ::testing::HasSubstr;

Result<Options> parse(std::vector<std::string> words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size());
  for (std::string& word : words) pointers.push_back(word.data());
  return parse_options(pointers);
}

std::string refusal(std::vector<std::string> words) {
  const auto options = parse(std::move(words));
  return options ? "accepted" : options.error().cause;
}

TEST(Options, EveryOneIsRead) {
  const auto options = parse({"--devices",
                              "3",
                              "--wq=dedicated",
                              "--wq-name",
                              "app",
                              "--engines",
                              "2",
                              "--seed",
                              "18446744073709551615",
                              "--faults",
                              "f.toml",
                              "--stats",
                              "s",
                              "--trace",
                              "t",
                              "--refuse-mmap",
                              "--force-access-trap",
                              "--",
                              "ls",
                              "--help"});
  ASSERT_TRUE(options) << options.error().cause;
  EXPECT_EQ(options->device_count, 3U);
  EXPECT_EQ(options->queues, QueueChoice::dedicated);
  EXPECT_EQ(options->queue_name, "app");
  EXPECT_EQ(options->engine_count, 2U);
  EXPECT_EQ(options->seed, ~std::uint64_t{0});
  EXPECT_TRUE(options->refuse_mmap);
  EXPECT_TRUE(options->force_access_trap);
  EXPECT_FALSE(options->help);
  EXPECT_EQ(options->command, (std::vector<std::string>{"ls", "--help"}));
}

TEST(Options, EachDeviceMayHaveANode) {
  const auto options = parse({"--device-nodes", "0,3,-1", "ls"});
  ASSERT_TRUE(options) << options.error().cause;
  EXPECT_EQ(options->device_count, 3U);
  EXPECT_EQ(options->device_nodes, (std::vector<int>{0, 3, -1}));
  for (const char* bad : {"", "x", "0,", ",0", "0,,1", "-2", "1024", "99999999999",
                          "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0"}) {
    EXPECT_THAT(refusal({"--device-nodes", bad, "ls"}), HasSubstr("is not a list such as 0,1,2"))
        << bad;
  }
  EXPECT_THAT(refusal({"--devices", "3", "--device-nodes", "0,1", "ls"}),
              HasSubstr("2 nodes for 3 devices"));
}

TEST(Options, ACommandMayFollowWithoutDashes) {
  const auto options = parse({"--devices", "2", "ls", "-l"});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->command, (std::vector<std::string>{"ls", "-l"}));
}

TEST(Options, WhatIsWrongIsSaidInOneSentence) {
  EXPECT_THAT(refusal({"--devices", "0", "x"}), HasSubstr("--devices: '0' is not a whole number"));
  EXPECT_THAT(refusal({"--devices", "17", "x"}), HasSubstr("from 1 to 16"));
  EXPECT_THAT(refusal({"--devices", "-1", "x"}), HasSubstr("'-1'"));
  EXPECT_THAT(refusal({"--engines", "5", "x"}), HasSubstr("from 1 to 4"));
  EXPECT_THAT(refusal({"--seed", "12x", "x"}), HasSubstr("--seed: '12x'"));
  EXPECT_THAT(refusal({"--wq", "any", "x"}), HasSubstr("shared, dedicated or both"));
  EXPECT_THAT(refusal({"--wq-name", "", "x"}), HasSubstr("--wq-name"));
  EXPECT_THAT(refusal({"--wq-name", std::string(100, 'a'), "x"}), HasSubstr("1 to 63"));
  EXPECT_THAT(refusal({"--wq-name", "a b", "x"}), HasSubstr("--wq-name"));
  EXPECT_THAT(refusal({"--stats", "", "x"}), HasSubstr("'' is not a path"));
  EXPECT_THAT(refusal({"--frobnicate", "1", "x"}), HasSubstr("no option '--frobnicate'"));
  EXPECT_THAT(refusal({"--devices"}), HasSubstr("a value is missing"));
  EXPECT_THAT(refusal({"--"}), HasSubstr("no command"));
  EXPECT_THAT(refusal({"--config", "c", "--wq", "both", "x"}),
              HasSubstr("--wq cannot be given with --config"));
  EXPECT_THAT(refusal({"--wq", "shared", "--wq-name", "dpdk_x", "x"}),
              HasSubstr("--wq-name: 'dpdk_x' would name no WQ"));
  EXPECT_TRUE(parse({"--wq", "both", "--wq-name", "dpdk_x", "x"}));
  EXPECT_THAT(refusal({"--seed", "1", "--pace", "2us,30GB/s", "x"}),
              HasSubstr("--pace has no effect with --seed"));
  // Whether the number matches the file is checked when the file is read.
  EXPECT_EQ(parse({"--config", "c", "--devices", "8", "x"})->device_count, 8U);
}

TEST(Options, APaceHasATimeAndARate) {
  const auto options = parse({"--pace", "1.5us,30GB/s", "x"});
  ASSERT_TRUE(options) << options.error().cause;
  EXPECT_EQ(options->pace.latency_ns, 1500U);
  EXPECT_EQ(options->pace.bytes_per_second, 30'000'000'000U);
  EXPECT_EQ(parse_pace("0,0")->latency_ns, 0U);
  EXPECT_EQ(parse_pace("2ms,1MB/s")->latency_ns, 2'000'000U);
  EXPECT_EQ(parse_pace("2ms,1MB/s")->bytes_per_second, 1'000'000U);
  for (const char* text :
       {"", ",", "2us", "2us,", "us,1GB/s", "-1us,1GB/s", "1us,0.5B/s", "nan,1", "inf,1", "11s,0",
        "1us,1GB/s,", "1 us,1GB/s", "1us,1GiB/s", "2,30GB/s", "2us,30"}) {
    EXPECT_FALSE(parse_pace(text)) << text;
  }
}

}  // namespace
}  // namespace headrace::emu
