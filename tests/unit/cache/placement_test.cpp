// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "headrace/cache/cache.hpp"
#include "headrace/platform/thread.hpp"
#include "support/cache_stage.hpp"

namespace headrace::cache::placement {
namespace {

using test::hand_made_machine;

std::optional<NodeId> fastest_for(const topo::Machine& machine, std::uint32_t node) {
  return fastest({machine, NodeId(node), {}});
}

TEST(Placement, FastestIsTheNearHighBandwidthMemory) {
  const topo::Machine machine = hand_made_machine();
  EXPECT_EQ(fastest_for(machine, 0), NodeId(8));
  EXPECT_EQ(fastest_for(machine, 1), NodeId(9));
}

TEST(Placement, FastestMovesNothingWhereThereIsNothingFaster) {
  topo::Machine machine = hand_made_machine();
  machine.nodes.resize(2);
  machine.accesses.clear();
  EXPECT_EQ(fastest_for(machine, 0), std::nullopt);
  EXPECT_EQ(fastest({machine, std::nullopt, {}}), std::nullopt);
}

topo::Machine recorded(const std::string& name) {
  return topo::replay(HEADRACE_TEST_DATA "/machines/" + name).value();
}

TEST(Placement, FastestOnARecordedXeonMaxIsTheNodeEightFurther) {
  const topo::Machine machine = recorded("xeon-max-flat.json");
  for (std::uint32_t node = 0; node < 8; ++node) {
    EXPECT_EQ(fastest_for(machine, node), NodeId(node + 8));
  }
}

TEST(Placement, FastestOnRecordedMachinesWithoutFasterMemoryIsNone) {
  for (const char* name : {"xeon-max-cache.json", "ddr-cxl.json", "bare-node.json"}) {
    EXPECT_EQ(fastest_for(recorded(name), 0), std::nullopt) << name;
  }
}

TEST(Placement, FastestIsWhatACacheDoesUnlessItIsToldOtherwise) {
  const auto source = test::numbered_bytes(100);
  test::CacheStage stage;
  CacheOptions options;
  options.memory = stage.memory;
  const auto cache = Cache::make(stage.machine, *stage.engine, std::move(options)).value();
  const auto own = platform::current_node();
  const bool known = own.has_value() && stage.machine.node(*own) != nullptr;
  EXPECT_EQ(cache->access(source).node(),
            known ? fastest({stage.machine, own, source}) : std::nullopt);
}

TEST(Placement, LocalIsTheNodeOfTheCallerAndNoneIsNone) {
  const topo::Machine machine = hand_made_machine();
  EXPECT_EQ(local({machine, NodeId(1), {}}), NodeId(1));
  EXPECT_EQ(local({machine, std::nullopt, {}}), std::nullopt);
  EXPECT_EQ(none({machine, NodeId(1), {}}), std::nullopt);
  EXPECT_EQ(on(NodeId(9))({machine, NodeId(1), {}}), NodeId(9));
}

TEST(Placement, APolicySeesTheCallersNodeTheSourceAndTheMachine) {
  const auto source = test::numbered_bytes(100);
  CacheOptions options;
  bool called = false;
  options.placement = [&](const PlacementContext& context) -> std::optional<NodeId> {
    called = true;
    EXPECT_EQ(context.source.data(), source.data());
    EXPECT_EQ(context.source.size(), source.size());
    EXPECT_EQ(context.machine.nodes.size(), 4U);
    const auto own = platform::current_node();
    EXPECT_EQ(context.caller_node,
              own.has_value() && context.machine.node(*own) != nullptr ? own : std::nullopt);
    return std::nullopt;
  };
  test::CacheStage stage(test::StagedMover::Mode::at_once, std::move(options));
  EXPECT_FALSE(stage.cache->access(source).cached());
  EXPECT_TRUE(called);
  EXPECT_EQ(stage.statistics().not_placed, 1U);
}

}  // namespace
}  // namespace headrace::cache::placement
