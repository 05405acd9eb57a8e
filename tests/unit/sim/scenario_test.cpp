// SPDX-License-Identifier: Apache-2.0
// Scenarios against closed forms, ceilings, and what must not be accepted.
#include "sim/scenario.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <string>

#include "sim/answer.hpp"
#include "sim/injection.hpp"
#include "support/test_data.hpp"

namespace headrace::sim {
namespace {

using ::testing::HasSubstr;
using Values = std::map<std::string, std::string, std::less<>>;

Model machine(const std::string& name) {
  return read_model(test::test_data() + "/machines/" + name + ".json").value();
}

Outcome run(const Model& model, const std::string& scenario, const Values& values) {
  const auto outcome = run_scenario(model, scenario, values);
  EXPECT_TRUE(outcome.has_value()) << outcome.error().message();
  return outcome.value();
}

TEST(Scenarios, HaveNamesOfTheirOwnAndAMachine) {
  std::set<std::string_view> names;
  for (const Scenario& scenario : scenarios()) {
    EXPECT_TRUE(names.insert(scenario.name).second) << scenario.name;
    EXPECT_FALSE(scenario.machine.empty());
    for (const Parameter& parameter : scenario.parameters) EXPECT_FALSE(parameter.values.empty());
  }
}

TEST(Submission, OneLongCopyTakesTheFixedCostsAndItsBytes) {
  const Model model = machine("spr-1dsa");
  const Outcome outcome = run(model, "submission", {{"mode", "sync"}, {"bytes", "1MiB"}});
  const double expected_us =
      (model.dsa.alone_ns + model.dsa.translation_ns + 1048576 / model.dsa.fabric_gb_per_s) / 1e3;
  EXPECT_NEAR(outcome.figure("time_us"), expected_us, 0.01);
}

TEST(Submission, AFullPipelineReachesTheFabricAndNoMore) {
  const Model model = machine("spr-1dsa");
  for (const char* const bytes : {"4KiB", "64KiB", "1MiB"}) {
    const Outcome outcome =
        run(model, "submission", {{"mode", "async"}, {"bytes", bytes}, {"batch", "32"}});
    EXPECT_NEAR(outcome.figure("gb_per_s"), model.dsa.fabric_gb_per_s, 0.1) << bytes;
    EXPECT_LE(outcome.figure("gb_per_s"), model.dsa.fabric_gb_per_s * 1.000001) << bytes;
    EXPECT_EQ(outcome.bound, "fabric of device 0");
  }
}

TEST(Submission, ASharedQueueIsBoundByEnqcmdOfSmallCopies) {
  const Model model = machine("spr-1dsa");
  const Outcome outcome = run(model, "submission", {{"mode", "async"}, {"bytes", "1KiB"}});
  EXPECT_NEAR(outcome.figure("gb_per_s"), 1024 / model.dsa.shared_submit_ns, 0.1);
}

TEST(DdrToHbm, DevicesAddUpToTheNode) {
  const Model model = machine("xeon-max-flat");
  const double fabric = model.dsa.fabric_gb_per_s;
  const auto rate = [&](const char* devices) {
    return run(model, "ddr-to-hbm", {{"devices", devices}, {"target", "8"}}).figure("gb_per_s");
  };
  EXPECT_NEAR(rate("1"), fabric, 0.1);
  EXPECT_NEAR(rate("2"), 2 * fabric, 0.2);
  EXPECT_NEAR(rate("4"), 70.4, 0.1);
  EXPECT_NEAR(rate("8"), 70.4, 0.1);
}

TEST(DdrToHbm, NothingIsAboveItsCeiling) {
  const Model model = machine("xeon-max-flat");
  for (const char* const target : {"8", "11", "12", "15"}) {
    for (const char* const devices : {"1", "2", "4", "8"}) {
      for (const char* const policy : {"all", "smart_copy", "push_pull", "near_source"}) {
        const Outcome outcome = run(model, "ddr-to-hbm",
                                    {{"target", target}, {"devices", devices}, {"policy", policy}});
        EXPECT_LE(outcome.figure("gb_per_s"), outcome.figure("ceiling_gb_per_s") * 1.000001)
            << target << ' ' << devices << ' ' << policy;
      }
    }
  }
}

TEST(Placement, MovingPaysOnceDataIsReadOftenEnough) {
  const Model model = machine("xeon-max-flat");
  const auto gain = [&](const char* passes) {
    return run(model, "placement", {{"passes", passes}, {"devices", "4"}}).figure("gain");
  };
  EXPECT_GT(gain("16"), gain("2"));
  // Cores read 52.9 GB/s of DDR and 107.4 of HBM: with many passes that is the gain.
  EXPECT_NEAR(gain("10000"), 107.4 / 52.9 - 1, 0.02);
  // Moving by the cores themselves costs more than one pass saves.
  EXPECT_LT(run(model, "placement", {{"passes", "1"}, {"devices", "0"}}).figure("gain"), 0);
}

TEST(Priorities, ShareADeviceAsTheirRatio) {
  const Model model = machine("spr-1dsa");
  EXPECT_NEAR(run(model, "priorities", {{"high", "1"}}).figure("high_share"), 0.5, 0.05);
  EXPECT_NEAR(run(model, "priorities", {{"high", "3"}}).figure("high_share"), 0.75, 0.05);
}

TEST(LeakyDdio, FourDevicesFallOnceTheirBuffersDoNotFit) {
  const Model model = machine("spr-4dsa");
  const Outcome kept = run(model, "leaky-ddio", {{"bytes", "64KiB"}});
  const Outcome leaking = run(model, "leaky-ddio", {{"bytes", "128KiB"}});
  EXPECT_EQ(kept.figure("leaks"), 0);
  EXPECT_EQ(leaking.figure("leaks"), 1);
  EXPECT_GT(kept.figure("gb_per_s"), 1.5 * leaking.figure("gb_per_s"));
}

TEST(Qdp, PrefetchingPaysWhereCoresWaitForAFarColumnAndNotWhereTheyCompute) {
  const Model model = machine("xeon-max-flat");
  const Outcome same = run(model, "qdp", {{"b", "0"}, {"threads", "64"}});
  // Both columns are read of node 0, whoever reads them: 8 GiB at what cores get of it.
  EXPECT_NEAR(same.figure("off_ms"), 8.0 * 1073741824 / 52.9e6, 5);
  const Outcome waits = run(model, "qdp", {{"b", "4"}, {"threads", "1"}, {"compute", "16"}});
  EXPECT_GT(waits.figure("gain"), 0.2);
  const Outcome computes = run(model, "qdp", {{"b", "4"}, {"threads", "1"}, {"compute", "4"}});
  EXPECT_NEAR(computes.figure("gain"), 0, 0.01);
  EXPECT_EQ(computes.bound, "compute");
}

TEST(Qdp, WithoutRoomNothingIsMoved) {
  const Model model = machine("xeon-max-flat");
  const Outcome outcome = run(model, "qdp", {{"capacity", "64KiB"}});
  EXPECT_EQ(outcome.figure("share_from_copies"), 0);
  EXPECT_NEAR(outcome.figure("gain"), 0, 1e-9);
}

TEST(Injection, GainRisesWithTheMessageAndFallsWhenTheCacheIsFull) {
  const Model model = machine("injection-node");
  const auto gain = [&](const char* bytes) {
    return run(model, "injection", {{"bytes", bytes}}).figure("gain");
  };
  EXPECT_LT(gain("1KiB"), gain("16KiB"));
  EXPECT_LT(gain("16KiB"), gain("512KiB"));
  EXPECT_LT(gain("8MiB"), gain("512KiB") / 2);
}

TEST(Injection, WhatIsNotReadPushesTheWorkingSetOut) {
  const Model model = machine("injection-node");
  EXPECT_LT(run(model, "injection", {{"bytes", "4MiB"}, {"read_share", "0.1"}}).figure("gain"), 0);
}

TEST(Injection, AFunctionThatThrowsOrNamesACoreOutsideIsNamedWithItsMessage) {
  const Model model = machine("injection-node");
  const auto thrown = inject(model.injection, {}, [](const Message& message) -> Place {
    if (message.index == 3) throw std::runtime_error("no idea");
    return {};
  });
  ASSERT_FALSE(thrown.has_value());
  EXPECT_THAT(thrown.error().message(), HasSubstr("message 3"));
  EXPECT_THAT(thrown.error().message(), HasSubstr("no idea"));
  const auto outside = inject(
      model.injection, {}, [](const Message&) { return Place{.payload = Level::l2, .core = 9}; });
  ASSERT_FALSE(outside.has_value());
  EXPECT_THAT(outside.error().message(), HasSubstr("core 9"));
}

TEST(Injection, ASplitByTheUsersFunctionIsCounted) {
  const Model model = machine("injection-node");
  const auto every_other = inject(model.injection, {}, [](const Message& message) {
    return message.index % 2 == 0 ? Place{.header = Level::l2, .payload = Level::l2} : Place{};
  });
  const auto none = inject(model.injection, {}, [](const Message&) { return Place{}; });
  ASSERT_TRUE(every_other.has_value() && none.has_value());
  EXPECT_LT(every_other->memory_lines, none->memory_lines * 0.75);
  EXPECT_GT(every_other->memory_lines, 0);
}

TEST(Points, WhatDoesNotExistIsRefusedWithWhatDoes) {
  const Model model = machine("spr-1dsa");
  const auto message = [&](const std::string& scenario, const Values& values) {
    const auto outcome = run_scenario(model, scenario, values);
    return outcome.has_value() ? "" : outcome.error().message();
  };
  EXPECT_THAT(message("submision", {}), HasSubstr("sim list"));
  EXPECT_THAT(message("submission", {{"byte", "64"}}), HasSubstr("bytes"));
  EXPECT_THAT(message("submission", {{"mode", "asink"}}), HasSubstr("async"));
  EXPECT_THAT(message("submission", {{"bytes", "64 parsecs"}}), HasSubstr("no size"));
  EXPECT_THAT(message("submission", {{"depth", "1.5"}}), HasSubstr("not whole"));
  EXPECT_THAT(message("submission", {{"depth", "-1"}}), HasSubstr("from 0"));
  EXPECT_THAT(message("wq-size", {{"entries", "129"}}), HasSubstr("1 to 128"));
  EXPECT_THAT(message("leaky-ddio", {{"devices", "9"}}), HasSubstr("the machine has 1"));
  EXPECT_THAT(message("optane", {}), HasSubstr("ddr-optane"));
}

TEST(Measuring, GivesRatesAndALatencyOfThisMachine) {
  const auto ask = [](const std::string& access, const std::string& cpus) {
    return measure(R"({"access": ")" + access + R"(", "cpus": )" + cpus +
                   R"(, "node": 0, "bytes": 1048576, "rounds": 2})");
  };
  for (const char* const access : {"read", "fill", "copy", "latency"}) {
    EXPECT_THAT(ask(access, "[0]"), HasSubstr("figure")) << access;
  }
  EXPECT_THAT(ask("read", "[]"), HasSubstr("no processor"));
  EXPECT_THAT(ask("read", "[60000]"), HasSubstr("error"));
}

TEST(Answers, AreTheSameEveryTime) {
  const std::string request = R"({"machine": ")" + test::test_data() +
                              R"(/machines/xeon-max-flat.json", "scenario": "ddr-to-hbm",
                              "points": [{"target": "15"}, {"policy": "smart_copy"}]})";
  const std::string first = answer(request);
  EXPECT_THAT(first, HasSubstr("results"));
  EXPECT_EQ(first, answer(request));
}

}  // namespace
}  // namespace headrace::sim
