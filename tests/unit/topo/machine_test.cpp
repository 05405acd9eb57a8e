// SPDX-License-Identifier: Apache-2.0
// Queries on hand-made machines. Recorded machines: replay_test.cpp.
#include "headrace/topo/machine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace::topo {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Node make_node(std::uint32_t id, Tier tier, std::vector<CpuId> cpus, std::uint32_t package = 0) {
  Node node;
  node.id = NodeId(id);
  node.tier = tier;
  node.cpus = std::move(cpus);
  node.package = package;
  return node;
}

Access make_access(std::uint32_t initiator, std::uint32_t target, double gb_per_s,
                   std::uint32_t distance = 0) {
  Access access;
  access.initiator = NodeId(initiator);
  access.target = NodeId(target);
  if (gb_per_s != 0) access.bandwidth = BytesPerSecond(gb_per_s * 1e9);
  access.distance = distance;
  return access;
}

TEST(Machine, NodesAndAccessesAreFoundByTheirNumbersAndOthersAreNot) {
  Machine machine;
  machine.nodes = {make_node(0, Tier::ddr, {CpuId(0), CpuId(2)}), make_node(3, Tier::hbm, {})};
  machine.accesses = {make_access(0, 0, 50), make_access(0, 3, 100)};
  ASSERT_NE(machine.node(NodeId(3)), nullptr);
  EXPECT_EQ(machine.node(NodeId(3))->tier, Tier::hbm);
  EXPECT_EQ(machine.node(NodeId(1)), nullptr);
  EXPECT_EQ(machine.node(NodeId(4)), nullptr);
  ASSERT_NE(machine.access(NodeId(0), NodeId(3)), nullptr);
  EXPECT_EQ(machine.access(NodeId(0), NodeId(3))->bandwidth, BytesPerSecond(100e9));
  EXPECT_EQ(machine.access(NodeId(3), NodeId(0)), nullptr);
  EXPECT_EQ(machine.node_of(CpuId(2)), NodeId(0));
  EXPECT_EQ(machine.node_of(CpuId(1)), std::nullopt);
}

TEST(Machine, ThereIsAFasterTierOnlyIfTwoKnownTiersDiffer) {
  Machine machine;
  machine.nodes = {make_node(0, Tier::ddr, {CpuId(0)}), make_node(1, Tier::ddr, {CpuId(1)})};
  EXPECT_FALSE(machine.has_faster_tier());
  machine.nodes[1].tier = Tier::unknown;
  EXPECT_FALSE(machine.has_faster_tier());
  machine.nodes[1].tier = Tier::persistent;
  EXPECT_TRUE(machine.has_faster_tier());
}

TEST(Machine, ANodeIsFasterFromAFifthMoreBandwidthOn) {
  Machine machine;
  machine.nodes = {make_node(0, Tier::ddr, {CpuId(0)}), make_node(1, Tier::unknown, {}),
                   make_node(2, Tier::unknown, {})};
  machine.accesses = {make_access(0, 0, 100), make_access(0, 1, 119), make_access(0, 2, 120)};
  EXPECT_THAT(machine.faster_nodes(NodeId(0)), ElementsAre(NodeId(2)));
}

TEST(Machine, FasterNodesComeBestFirstAndNearestFirstAmongEquals) {
  Machine machine;
  machine.nodes = {make_node(0, Tier::ddr, {CpuId(0)}), make_node(1, Tier::hbm, {}),
                   make_node(2, Tier::hbm, {}), make_node(3, Tier::hbm, {})};
  machine.accesses = {make_access(0, 0, 50, 10), make_access(0, 1, 100, 14),
                      make_access(0, 2, 100, 13), make_access(0, 3, 200, 20)};
  EXPECT_THAT(machine.faster_nodes(NodeId(0)), ElementsAre(NodeId(3), NodeId(2), NodeId(1)));
}

TEST(Machine, WithoutAFigureTheNearestHbmIsFasterThanDdrAndFartherHbmIsNot) {
  Machine machine;
  machine.nodes = {make_node(0, Tier::ddr, {CpuId(0)}), make_node(1, Tier::hbm, {}, 0),
                   make_node(2, Tier::hbm, {}, 1)};
  EXPECT_THAT(machine.faster_nodes(NodeId(0)), ElementsAre(NodeId(1)));  // By package.
  machine.accesses = {make_access(0, 0, 0, 10), make_access(0, 1, 0, 23), make_access(0, 2, 0, 13)};
  EXPECT_THAT(machine.faster_nodes(NodeId(0)), ElementsAre(NodeId(2)));  // By distance.
  machine.nodes[0].tier = Tier::unknown;
  EXPECT_THAT(machine.faster_nodes(NodeId(0)), IsEmpty());
}

TEST(Machine, AFigureThatShowsHbmToBeNoFasterIsBelieved) {
  Machine machine;
  machine.nodes = {make_node(0, Tier::ddr, {CpuId(0)}), make_node(1, Tier::hbm, {}),
                   make_node(2, Tier::hbm, {})};
  machine.accesses = {make_access(0, 0, 100), make_access(0, 1, 100)};
  EXPECT_THAT(machine.faster_nodes(NodeId(0)), IsEmpty());
}

TEST(Machine, ANodeThatIsNotThereHasNoFasterNodes) {
  EXPECT_THAT(Machine{}.faster_nodes(NodeId(0)), IsEmpty());
}

}  // namespace
}  // namespace headrace::topo
