// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headrace/cache/cache.hpp"
#include "headrace/platform/memory.hpp"
#include "headrace/platform/thread.hpp"
#include "support/cache_stage.hpp"
#include "support/test_data.hpp"

namespace headrace::cache::placement {
namespace {

using test::hand_made_machine;

/// The first choice.
std::optional<NodeId> fastest_for(const topo::Machine& machine, std::uint32_t node) {
  const Placement placement = fastest({machine, NodeId(node), {}});
  return placement.nodes().empty() ? std::nullopt : std::optional(placement.nodes().front());
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
  EXPECT_EQ(fastest({machine, std::nullopt, {}}), Placement());
}

topo::Machine recorded(const std::string& name) {
  return topo::replay(test::test_data() + "/machines/" + name).value();
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
            known ? fastest_for(stage.machine, own->value()) : std::nullopt);
}

TEST(Placement, LocalIsTheNodeOfTheCallerAndNoneIsNone) {
  const topo::Machine machine = hand_made_machine();
  EXPECT_EQ(local({machine, NodeId(1), {}}), Placement(NodeId(1)));
  EXPECT_EQ(local({machine, std::nullopt, {}}), Placement());
  EXPECT_EQ(none({machine, NodeId(1), {}}), Placement());
  EXPECT_EQ(on(NodeId(9))({machine, NodeId(1), {}}), Placement(NodeId(9)));
}

TEST(Placement, AMapGoesByTheNodeOfTheCaller) {
  const topo::Machine machine = hand_made_machine();
  const PlacementPolicy policy = map({{NodeId(0), NodeId(8)}, {NodeId(1), {NodeId(9), NodeId(8)}}});
  EXPECT_EQ(policy({machine, NodeId(0), {}}), Placement(NodeId(8)));
  EXPECT_EQ(policy({machine, NodeId(1), {}}), (Placement{NodeId(9), NodeId(8)}));
  EXPECT_EQ(policy({machine, NodeId(8), {}}), Placement());
  EXPECT_EQ(policy({machine, std::nullopt, {}}), Placement());
}

TEST(Placement, AMapOfARecordedXeonMaxMayGiveEveryCallerTheNodeEightFurther) {
  const topo::Machine machine = recorded("xeon-max-flat.json");
  std::vector<std::pair<NodeId, Placement>> places;
  for (std::uint32_t node = 0; node < 8; ++node) places.emplace_back(node, NodeId(node + 8));
  const PlacementPolicy policy = map(places);
  test::CacheStage stage;
  const auto make = [&] {
    CacheOptions options;
    options.placement = map(places);
    options.memory = stage.memory;
    return Cache::make(machine, *stage.engine, std::move(options));
  };
  for (std::uint32_t node = 0; node < 8; ++node) {
    EXPECT_EQ(policy({machine, NodeId(node), {}}), Placement(NodeId(node + 8)));
  }
  EXPECT_TRUE(make().has_value());
  places[3].second = NodeId(16);
  EXPECT_EQ(make().error().code, Code::not_found);
  places[3] = {NodeId(17), NodeId(8)};
  EXPECT_EQ(make().error().code, Code::not_found);
  places[3] = {NodeId(0), NodeId(8)};
  EXPECT_EQ(make().error().code, Code::invalid_argument);
}

TEST(Placement, ACacheAsksAMapForTheNodeOfTheCallingThread) {
  const auto own = platform::current_node();
  test::CacheStage stage;
  if (!own.has_value() || stage.machine.node(*own) == nullptr) GTEST_SKIP() << "no such node here";
  const auto source = test::numbered_bytes(100);
  CacheOptions options;
  options.memory = stage.memory;
  options.placement = map({{NodeId(8), NodeId(0)}, {*own, NodeId(9)}});
  const auto cache = Cache::make(stage.machine, *stage.engine, std::move(options)).value();
  EXPECT_EQ(cache->access(source).node(), NodeId(9));
  EXPECT_EQ(cache->access(source).node(), NodeId(9));
  EXPECT_EQ(cache->statistics().hits, 1U);
}

/// A cache that may use node 9 if node 8 is full, two pages each.
class Choice : public ::testing::Test {
 protected:
  static CacheOptions options() {
    CacheOptions made;
    made.capacity_per_node = Bytes(2 * platform::page_bytes());
    made.placement = [](const PlacementContext&) { return Placement{NodeId(8), NodeId(9)}; };
    return made;
  }
  std::span<const std::byte> page(std::size_t index, std::size_t count = 1) {
    return std::span(source_).subspan(index * page_bytes_, count * page_bytes_);
  }
  Entry access(std::size_t index) { return stage_.cache->access(page(index)); }

  const std::size_t page_bytes_ = platform::page_bytes();
  const std::vector<std::byte> source_ = test::numbered_bytes(8 * page_bytes_);
  test::CacheStage stage_{test::StagedMover::Mode::at_once, options()};
};

TEST_F(Choice, ACopyGoesToTheFirstNodeThatHasRoomAndIsFoundThere) {
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(access(i).node(), NodeId(i < 2 ? 8 : 9)) << i;
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(access(i).node(), NodeId(i < 2 ? 8 : 9)) << i;
    EXPECT_EQ(stage_.cache->access_weak(page(i)).node(), NodeId(i < 2 ? 8 : 9)) << i;
  }
  EXPECT_EQ(stage_.statistics().hits, 4U);
  EXPECT_EQ(stage_.statistics().misses, 4U);
  EXPECT_EQ(stage_.statistics().refused, 0U);
  EXPECT_EQ(stage_.statistics().evictions, 0U);
}

TEST_F(Choice, WhereNoneHasRoomUnusedEntriesOfTheFirstMakeItThatCan) {
  const std::array held{access(0), access(1)};
  static_cast<void>(access(2));
  static_cast<void>(access(3));
  EXPECT_EQ(access(4).node(), NodeId(9)) << "all of 8 are held";
  EXPECT_EQ(stage_.statistics().evictions, 1U);
  EXPECT_EQ(stage_.cache->access(page(5, 3)).node(), std::nullopt) << "more than the capacity";
  EXPECT_EQ(stage_.statistics().refused, 1U) << "counted once, not for each node";
  EXPECT_EQ(stage_.statistics().evictions, 1U);
}

TEST_F(Choice, ANodeThatOthersHaveFilledIsPassedOver) {
  stage_.memory->fill_up(NodeId(8));
  EXPECT_EQ(access(0).node(), NodeId(9));
  stage_.memory->fill_up(std::nullopt);
  EXPECT_EQ(access(1).node(), NodeId(8));
  EXPECT_EQ(access(0).node(), NodeId(9)) << "where it is";
}

TEST_F(Choice, AMoverThatRefusesIsNotAskedAgainForTheNextNode) {
  stage_.mover->refuse(true);
  EXPECT_FALSE(access(0).cached());
  EXPECT_EQ(stage_.statistics().refused, 1U);
  EXPECT_EQ(stage_.memory->live_count(), 0U);
}

TEST_F(Choice, InvalidateReachesEveryNode) {
  for (std::size_t i = 0; i < 4; ++i) static_cast<void>(access(i));
  EXPECT_EQ(stage_.cache->invalidate(source_), 4U);
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
