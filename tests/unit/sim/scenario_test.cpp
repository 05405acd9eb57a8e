// SPDX-License-Identifier: Apache-2.0
// Compares scenarios with closed forms and ceilings; invalid parameters.
#include "sim/scenario.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <string>

#include "headrace/platform/thread.hpp"
#include "sim/answer.hpp"
#include "sim/injection.hpp"
#include "sim/measure.hpp"
#include "sim/policies.hpp"
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

TEST(DdrToHbm, DevicesAddUpToWhatCoresReadOfTheNode) {
  const Model model = machine("xeon-max-flat");
  const double fabric = model.dsa.fabric_gb_per_s;
  const auto rate = [&](const char* devices) {
    return run(model, "ddr-to-hbm", {{"devices", devices}, {"target", "8"}}).figure("gb_per_s");
  };
  EXPECT_NEAR(rate("1"), fabric, 0.1);
  EXPECT_GT(2 * fabric, 52.9);
  for (const char* const devices : {"2", "4", "8"}) EXPECT_NEAR(rate(devices), 52.9, 0.2);
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

TEST(Submission, NoPointIsAboveTheFabric) {
  const Model model = machine("spr-1dsa");
  for (const char* const bytes : {"4KiB", "16KiB", "64KiB", "1MiB"}) {
    for (const char* const queue : {"shared", "dedicated"}) {
      for (const char* const batch : {"1", "32"}) {
        const Outcome outcome =
            run(model, "submission",
                {{"bytes", bytes}, {"mode", "async"}, {"queue", queue}, {"batch", batch}});
        EXPECT_LE(outcome.figure("gb_per_s"), model.dsa.fabric_gb_per_s * 1.000001)
            << bytes << ' ' << queue << ' ' << batch;
      }
    }
  }
}

TEST(Submission, LongCopiesWithinAPartOfASocketAreBoundByItsMemoryAndShortOnesByTheDevice) {
  // What the thesis measured and did not explain: 1 GiB is slower than 1 MiB.
  const Model model = machine("xeon-max-flat");
  const auto rate = [&](const char* bytes) {
    return run(model, "submission", {{"mode", "async"}, {"bytes", bytes}}).figure("gb_per_s");
  };
  EXPECT_NEAR(rate("1MiB"), model.dsa.fabric_gb_per_s, 0.1);
  EXPECT_NEAR(rate("1GiB"), 42.6 / 2, 0.1);
}

TEST(Placement, MovingPaysOnceDataIsReadOftenEnough) {
  const Model model = machine("xeon-max-flat");
  const auto gain = [&](const char* passes) {
    return run(model, "placement", {{"passes", passes}, {"devices", "4"}}).figure("gain");
  };
  EXPECT_GT(gain("16"), gain("2"));
  // Cores read 52.9 GB/s of DDR and 107.4 of HBM: with many passes that is the gain.
  EXPECT_NEAR(gain("10000"), 107.4 / 52.9 - 1, 0.02);
  // Moving by the cores costs more than one pass saves.
  EXPECT_LT(run(model, "placement", {{"passes", "1"}, {"devices", "0"}}).figure("gain"), 0);
}

TEST(Placement, DataWhosePointersAreFollowedStaysWhereLatencyIsLower) {
  const Model model = machine("xeon-max-flat");
  const auto gain = [&](const char* pattern) {
    return run(model, "placement", {{"passes", "1000"}, {"pattern", pattern}}).figure("gain");
  };
  // 110 ns of DDR, 135 ns of HBM.
  EXPECT_NEAR(gain("chase"), 110.0 / 135 - 1, 0.02);
  EXPECT_GT(gain("update"), 1);
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
  // Both columns are read from node 0: 8 GiB at the cores' rate.
  EXPECT_NEAR(same.figure("off_ms"), 8.0 * 1073741824 / 52.9e6, 5);
  const Outcome waits = run(model, "qdp", {{"b", "4"}, {"threads", "1"}, {"compute", "16"}});
  EXPECT_GT(waits.figure("gain"), 0.2);
  const Outcome computes = run(model, "qdp", {{"b", "4"}, {"threads", "1"}, {"compute", "4"}});
  EXPECT_NEAR(computes.figure("gain"), 0, 0.01);
  EXPECT_EQ(computes.bound, "compute");
}

TEST(Qdp, PrefetchingGainsNothingWhereBothColumnsAreBoundByTheSameMemory) {
  // Cores or devices: each byte of b is read once from node 0.
  const Model model = machine("xeon-max-flat");
  for (const char* const threads : {"64", "12"}) {
    const Outcome same = run(model, "qdp", {{"b", "0"}, {"threads", threads}});
    EXPECT_LT(same.figure("gain"), 0.02) << threads;
    EXPECT_GT(same.figure("gain"), -0.03) << threads;  // Not of the first chunks alone.
    EXPECT_GT(same.figure("on_ms"), 8.0 * 1073741824 / 52.9e6 * 0.99) << threads;
  }
}

TEST(Qdp, APrefetchCostsADeviceWhatACopyCosts) {
  const Values values{{"b", "4"}, {"threads", "12"}, {"chunk", "64KiB"}, {"column", "16MiB"}};
  const auto with = [&](double DsaModel::* cost, double value, double depth) {
    Model model = machine("xeon-max-flat");
    model.dsa.*cost = value;
    if (depth != 0) model.dsa.engine_depth = depth;
    return run(model, "qdp", values);
  };
  // A copy that has not ended when all is scanned is not waited for.
  const Outcome now = with(&DsaModel::descriptor_ns, 40, 0);
  const double share = now.figure("share_from_copies");
  EXPECT_LT(with(&DsaModel::descriptor_ns, 20'000, 0).figure("share_from_copies"), share / 1.05);
  EXPECT_LT(with(&DsaModel::translation_ns, 400'000, 0).figure("share_from_copies"), share / 1.2);
  EXPECT_GT(with(&DsaModel::shared_submit_ns, 100'000, 0).figure("on_ms"),
            now.figure("on_ms") * 1.2);
  // Fewer descriptors in flight hide less of the translations.
  const auto translate = [&](double depth) {
    return with(&DsaModel::translation_ns, 20'000, depth).figure("share_from_copies");
  };
  EXPECT_LT(translate(1), translate(0) / 1.1);
}

TEST(Qdp, WithoutRoomNothingIsMoved) {
  const Model model = machine("xeon-max-flat");
  const Outcome outcome = run(model, "qdp", {{"capacity", "64KiB"}});
  EXPECT_EQ(outcome.figure("share_from_copies"), 0);
  EXPECT_GT(outcome.figure("share_refused"), 0);
  EXPECT_NEAR(outcome.figure("gain"), 0, 1e-9);
}

TEST(Qdp, TheScheduleHoldsBackWhenTheCacheIsSmallAndOldCopiesMakeRoom) {
  const Model model = machine("xeon-max-flat");
  const auto with = [&](const char* capacity) {
    return run(model, "qdp", {{"b", "4"}, {"threads", "12"}, {"capacity", capacity}});
  };
  const Outcome small = with("8MiB");
  const Outcome large = with("4GiB");
  EXPECT_GT(small.figure("evictions"), 0);
  EXPECT_EQ(large.figure("evictions"), 0);
  EXPECT_EQ(large.figure("share_refused"), 0);
  // Rarely refused: the schedule requests no more than the cache holds.
  EXPECT_LT(small.figure("share_refused"), 0.2);
  EXPECT_LT(small.figure("share_from_copies"), large.figure("share_from_copies"));
}

TEST(Qdp, CoresThatMoveAreTakenFromThoseThatCompute) {
  const Model model = machine("xeon-max-flat");
  const Outcome moved = run(model, "qdp", {{"devices", "0"}, {"threads", "12"}, {"compute", "2"}});
  EXPECT_GT(moved.figure("share_from_copies"), 0.5);
  EXPECT_LT(moved.figure("gain"), 0);
}

TEST(Qdp, AMoverThatFindsNoFreeCoreWaitsForTheEndOfASlice) {
  Model model = machine("xeon-max-flat");
  model.sockets.front().core_count = 2 * model.ddr_node_count(0);
  const auto share = [&](const char* threads, const char* column) {
    const Values values{{"devices", "0"}, {"threads", threads}, {"column", column}, {"b", "4"}};
    return run(model, "qdp", values).figure("share_from_copies");
  };
  EXPECT_EQ(share("2", "8MiB"), 0);
  EXPECT_GT(share("1", "8MiB"), 0.5);
  // Much longer than a slice of 3 ms.
  EXPECT_GT(share("2", "512MiB"), 0.5);
}

TEST(HbmCacheMode, KeepsOfAColumnReadInOrderWhatNothingDisplaces) {
  const Model model = machine("xeon-max-flat");
  const auto with = [&](const char* bytes, const char* order) {
    return run(model, "hbm-cache-mode", {{"bytes", bytes}, {"passes", "8"}, {"order", order}});
  };
  // In order, a line stays if no other maps to it: 2 x 16 GiB - 24 GiB of 24.
  EXPECT_NEAR(with("24GiB", "sequential").figure("hit_share"), 8.0 / 24, 0.001);
  EXPECT_EQ(with("48GiB", "sequential").figure("hit_share"), 0);
  // At random, each of the two blocks of a set was the last one half of the time.
  EXPECT_NEAR(with("32GiB", "random").figure("hit_share"), 0.5, 0.01);
  // What fits is read at HBM's rate after one pass at DDR's.
  const Outcome fits = with("4GiB", "sequential");
  const double gib4 = 4.0 * 1073741824;
  EXPECT_NEAR(fits.figure("cache_mode_ms"), (gib4 / 52.9 + 7 * gib4 / 107.4) / 1e6, 1);
  EXPECT_NEAR(fits.figure("flat_ms"), 8 * gib4 / 52.9 / 1e6, 1);
  EXPECT_NEAR(fits.figure("cache_mode_gain"),
              fits.figure("flat_ms") / fits.figure("cache_mode_ms") - 1, 1e-9);
  // Devices read the column once more: the first pass takes twice as long.
  EXPECT_NEAR(fits.figure("prefetched_ms"), (2 * gib4 / 52.9 + 7 * gib4 / 107.4) / 1e6, 1);
  // Prefetching pays where the cache has conflicts.
  EXPECT_GT(with("48GiB", "sequential").figure("prefetched_over_cache_mode"), 1.05);
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

TEST(Injection, IsThatOfEachMachineWithANic) {
  for (const char* const name : {"spr-1dsa", "spr-4dsa", "spr-cxl", "xeon-max-9462",
                                 "xeon-max-flat", "xeon-max-cache", "cloud-guest-2cpu"}) {
    const Model model = machine(name);
    EXPECT_GT(run(model, "injection", {{"bytes", "64KiB"}}).figure("gain"), 0.01) << name;
  }
  const auto none = run_scenario(machine("ddr-optane"), "injection", {});
  ASSERT_FALSE(none.has_value());
  EXPECT_THAT(none.error().message(), ::testing::HasSubstr("no field 'injection'"));
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
  EXPECT_THAT(message("submission", {{"bytes", "64 parsecs"}}), HasSubstr("not a size"));
  EXPECT_THAT(message("submission", {{"depth", "1.5"}}), HasSubstr("not a whole number"));
  EXPECT_THAT(message("submission", {{"depth", "-1"}}), HasSubstr("from 0"));
  EXPECT_THAT(message("wq-size", {{"entries", "129"}}), HasSubstr("1 to 128"));
  EXPECT_THAT(message("leaky-ddio", {{"devices", "9"}}), HasSubstr("the machine has 1"));
  EXPECT_THAT(message("optane", {}), HasSubstr("ddr-optane"));
}

TEST(Points, WhatWouldTakeForeverIsRefused) {
  const Model model = machine("xeon-max-flat");
  for (const Scenario& scenario : scenarios()) {
    for (const Parameter& parameter : scenario.parameters) {
      if (parameter.kind != Parameter::Kind::count) continue;
      const auto outcome =
          run_scenario(model, scenario.name, {{std::string(parameter.name), "999999999"}});
      EXPECT_FALSE(outcome.has_value()) << scenario.name << ' ' << parameter.name;
    }
  }
  const auto message = [&](const std::string& scenario, const Values& values) {
    const auto outcome = run_scenario(model, scenario, values);
    return outcome.has_value() ? "" : outcome.error().message();
  };
  EXPECT_THAT(message("qdp", {{"target", "16"}}), HasSubstr("no node 16"));
  EXPECT_THAT(message("qdp", {{"threads", "4000"}}), HasSubstr("from 0 to 1024"));
  const Outcome most = run(machine("injection-node"), "injection", {{"bytes", "1MiB"}});
  EXPECT_GT(most.figure("time_us"), 0);
  const auto more = run_scenario(machine("injection-node"), "injection", {{"bytes", "1GiB"}});
  ASSERT_FALSE(more.has_value());
  EXPECT_THAT(more.error().message(), HasSubstr("to 64 MiB"));
}

TEST(Streams, ThreadsAddUpToTheNodeAndShareItWithOthers) {
  Model model = machine("spr-1dsa");
  const auto rate = [&](const Values& values, const char* figure) {
    return run(model, "streams", values).figure(figure);
  };
  const double call_share = 1048576 / (1048576 + model.core.call_ns * model.core.copy_gb_per_s);
  EXPECT_NEAR(rate({{"access", "copy"}}, "gb_per_s"), model.core.copy_gb_per_s * call_share, 0.2);
  // 16 cores exceed the node's ceiling of reads and writes 1:1.
  EXPECT_NEAR(rate({{"access", "copy"}, {"threads", "16"}}, "gb_per_s"), 186.0 / 2, 1);
  const Values both{{"access", "copy"}, {"threads", "16"}, {"beside", "read"}};
  EXPECT_LT(rate(both, "gb_per_s"), 186.0 / 2);
  EXPECT_GT(rate(both, "beside_gb_per_s"), 0);
  model.nodes.front().write_gb_per_s = 50;
  EXPECT_NEAR(rate({{"access", "fill"}, {"threads", "16"}}, "gb_per_s"), 50, 0.5);
}

TEST(Streams, KindsShareTheTimeOfANodeWhoseCeilingsWereMeasured) {
  Model model = machine("spr-1dsa");
  model.nodes.front().write_gb_per_s = 40;
  model.core.fill_gb_per_s = 20;
  const Outcome both =
      run(model, "streams", {{"access", "fill"}, {"threads", "16"}, {"beside", "read"}});
  const double fill = both.figure("gb_per_s");
  const double read = both.figure("beside_gb_per_s");
  EXPECT_NEAR(fill / 40 + read / model.nodes.front().read_gb_per_s, 1, 0.01);
  EXPECT_LT(fill, 40);
  EXPECT_LT(0, read);
}

TEST(Streams, AnUpdateBringsALineInAndOutAsAFillUnlessReadsOrItsLoopAreSlower) {
  Model model = machine("spr-1dsa");
  model.nodes.front().write_gb_per_s = 50;
  model.core.fill_gb_per_s = 8;
  const auto rate = [&](const char* threads, const char* span) {
    const Values values{{"access", "update"}, {"threads", threads}, {"span", span}};
    return run(model, "streams", values).figure("gb_per_s");
  };
  EXPECT_NEAR(rate("1", "256MiB"), 8, 0.01);
  EXPECT_NEAR(rate("16", "256MiB"), 50, 0.1);
  model.core.levels = {{.bytes = 4 << 20,
                        .core_count = 2,
                        .read_gb_per_s = 40,
                        .fill_gb_per_s = 60,
                        .copy_gb_per_s = 30,
                        .read_all_gb_per_s = 70,
                        .fill_all_gb_per_s = 120,
                        .copy_all_gb_per_s = 60}};
  EXPECT_NEAR(rate("1", "1MiB"), 40, 0.1);
  EXPECT_NEAR(rate("2", "1MiB"), 70, 0.1);
  model.core.update_gb_per_s = 20;
  EXPECT_NEAR(rate("1", "1MiB"), 20, 0.1);
  // Each core has its own loop.
  EXPECT_NEAR(rate("2", "1MiB"), 40, 0.1);
}

TEST(Streams, WhatFitsACacheHasItsRate) {
  Model model = machine("spr-1dsa");
  model.core.levels = {{.bytes = 1 << 20,
                        .core_count = 1,
                        .read_gb_per_s = 80,
                        .fill_gb_per_s = 60,
                        .copy_gb_per_s = 40}};
  model.core.call_ns = 10;
  const auto rate = [&](const char* access, const char* span) {
    return run(model, "streams", {{"access", access}, {"span", span}, {"bytes", "1000"}})
        .figure("gb_per_s");
  };
  // 1000 bytes take 12.5 ns plus 10 ns per call.
  EXPECT_NEAR(rate("read", "512KiB"), 1000 / 22.5, 0.1 * 44);
  EXPECT_NEAR(rate("copy", "256KiB"), 1000 / 35.0, 0.1 * 28);
  // A copy has two buffers: this one does not fit.
  EXPECT_LT(rate("copy", "768KiB"), 1000 / 100.0);
}

TEST(Streams, CallsBetweenTwoThatWereMeasuredAreInterpolated) {
  Model model = machine("spr-1dsa");
  model.core.calls = {{.bytes = 1024, .fill_gb_per_s = 20, .copy_gb_per_s = 10},
                      {.bytes = 16384, .fill_gb_per_s = 40, .copy_gb_per_s = 30}};
  const auto rate = [&](const char* bytes) {
    return run(model, "streams", {{"access", "copy"}, {"bytes", bytes}}).figure("gb_per_s");
  };
  EXPECT_NEAR(rate("64"), 10, 0.01);
  EXPECT_NEAR(rate("4KiB"), 20, 0.01);
  EXPECT_NEAR(rate("1MiB"), 30, 0.01);
}

TEST(Messages, TakeHandingOverThereAndBack) {
  Model model = machine("spr-1dsa");
  const auto refused = run_scenario(model, "messages", {});
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("topo --measure"));
  model.core.handover_ns = 100;
  model.core.handover_gb_per_s = 4;
  EXPECT_DOUBLE_EQ(run(model, "messages", {{"bytes", "64"}}).figure("trip_ns"), 200);
  EXPECT_DOUBLE_EQ(run(model, "messages", {{"bytes", "4160"}}).figure("message_ns"), 562);
}

TEST(Automatic, GivesShortCopiesToTheCallingThreadAndLongOnesToTheDevice) {
  EXPECT_EQ(path_of(64, 0, false), "calling thread");
  EXPECT_EQ(path_of(1 << 20, 0, false), "device");
  EXPECT_EQ(path_of(64, 0, true), "calling thread");
  EXPECT_EQ(path_of(1 << 20, 0, true), "device");
}

TEST(Split, CutsAsTheEngineDoes) {
  EXPECT_EQ(split(1 << 30, 4), std::vector<double>(4, 1 << 28));
  // No part is shorter than 64 KiB.
  EXPECT_EQ(split(128 << 10, 4), std::vector<double>(2, 64 << 10));
  EXPECT_EQ(split(4096, 4), std::vector<double>{4096});
}

TEST(Measuring, GivesRatesAndLatenciesOfThisMachine) {
  const auto ask = [](const std::string& what, const std::string& access, unsigned cpu) {
    const std::string stream = R"({"access": ")" + access + R"(", "cpu": )" + std::to_string(cpu) +
                               R"(, "node": 0, "span": 1048576, "bytes": 65536})";
    return measure(R"({"what": ")" + what + R"(", "streams": [)" + stream + ", " + stream +
                   R"(], "samples": 1, "round_us": 50, "time_max_ms": 50})");
  };
  const std::vector<CpuId> cpus = platform::allowed_cpus();
  const std::uint32_t cpu = cpus.front().value();
  for (const char* const access : {"read", "fill", "copy"}) {
    EXPECT_THAT(ask("streams", access, cpu), HasSubstr("values")) << access;
  }
  EXPECT_THAT(ask("latency", "read", cpu), HasSubstr("values"));
  EXPECT_THAT(ask("streams", "read", 60000), HasSubstr("error"));
  EXPECT_THAT(measure(R"({"what": "streams", "streams": [], "samples": 1, "round_us": 50,
                          "time_max_ms": 50})"),
              HasSubstr("no processor"));
  if (cpus.size() < 2) return;
  const auto pair = [&](const char* what) {
    const auto samples = std::string(what) == "handover"
                             ? measure_handover(cpus[0], cpus[1], 64, {.sample_count = 1})
                             : measure_messages(cpus[0], cpus[1], 64, std::string(what) == "trips",
                                                {.sample_count = 1});
    return samples.has_value() && samples->values.front().front() > 0;
  };
  for (const char* const what : {"handover", "messages", "trips"}) EXPECT_TRUE(pair(what)) << what;
  for (const bool sleeps : {false, true}) {
    const auto worker =
        measure_worker({cpus[0], cpus[1]}, NodeId(0), 64, sleeps, false, {.sample_count = 1});
    ASSERT_TRUE(worker) << worker.error().message();
    EXPECT_GT(worker->values.front().front(), 0);
  }
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
