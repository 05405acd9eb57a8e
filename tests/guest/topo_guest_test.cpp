// SPDX-License-Identifier: Apache-2.0
// Discovery on a machine with complete firmware tables: HMAT, distances, nodes without processors.
// Runs in a guest (scripts/guest). Recorded machines: tests/unit/topo.
#include <algorithm>

#include "guest.hpp"
#include "headrace/topo/machine.hpp"

namespace headrace::topo {
namespace {

class Discovery : public test::InGuest {};

TEST_F(Discovery, FindsEveryNodeWithItsProcessorAndItsTier) {
  const Machine machine = discover().value();
  ASSERT_EQ(machine.nodes.size(), 2 * tiles_);
  for (std::uint32_t node = 0; node < 2 * tiles_; ++node) {
    EXPECT_EQ(machine.nodes[node].id, NodeId(node));
    EXPECT_EQ(machine.nodes[node].cpus.size(), node < tiles_ ? 1U : 0U);
    EXPECT_EQ(machine.nodes[node].tier, node < tiles_ ? Tier::ddr : Tier::hbm) << node;
    // Slightly less than in tests/guest/machine.py: the kernel reserves some.
    EXPECT_GT(machine.nodes[node].capacity.count(), mib(32).count());
    EXPECT_LE(machine.nodes[node].capacity.count(), mib(256).count());
  }
}

TEST_F(Discovery, FindsWhatTheFirmwareSaysOfTheWayToLocalMemory) {
  const Machine machine = discover().value();
  for (std::uint32_t tile = 0; tile < tiles_; ++tile) {
    const Access* ddr = machine.access(NodeId(tile), NodeId(tile));
    const Access* hbm = machine.access(NodeId(tile), NodeId(tile + tiles_));
    ASSERT_NE(ddr, nullptr);
    ASSERT_NE(hbm, nullptr);
    EXPECT_EQ(ddr->distance, 10U);
    EXPECT_EQ(hbm->distance, 13U);
    ASSERT_TRUE(ddr->bandwidth.has_value());
    ASSERT_TRUE(hbm->bandwidth.has_value());
    // 70 and 200 GiB/s, as tests/guest/machine.py says.
    EXPECT_NEAR(ddr->bandwidth->count() / (70 * 1.073741824e9), 1, 0.02);
    EXPECT_NEAR(hbm->bandwidth->count() / (200 * 1.073741824e9), 1, 0.02);
    ASSERT_TRUE(ddr->latency.has_value());
    ASSERT_TRUE(hbm->latency.has_value());
    EXPECT_EQ(ddr->latency->count(), 115);
    EXPECT_EQ(hbm->latency->count(), 135);
  }
}

TEST_F(Discovery, FindsThatTheFastestNodeIsTheNearHighBandwidthMemory) {
  const Machine machine = discover().value();
  for (std::uint32_t tile = 0; tile < tiles_; ++tile) {
    const std::vector<NodeId> faster = machine.faster_nodes(NodeId(tile));
    ASSERT_FALSE(faster.empty());
    EXPECT_EQ(faster.front(), NodeId(tile + tiles_));
    EXPECT_TRUE(std::all_of(faster.begin(), faster.end(),
                            [&](NodeId node) { return node.value() >= tiles_; }));
  }
}

}  // namespace
}  // namespace headrace::topo
