// SPDX-License-Identifier: Apache-2.0
// Discovery on each recorded machine, and on small changes to them.
#include <gmock/gmock.h>

#include "fixture.hpp"

namespace headrace::topo {
namespace {

using test::fixture_path;
using test::load_fixture;
using test::replay_changed;
using test::replay_text;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Machine replayed(const std::string& fixture) {
  Result<Machine> machine = replay(fixture_path(fixture));
  EXPECT_TRUE(machine.has_value()) << machine.error().message();
  return machine.has_value() ? std::move(*machine) : Machine{};
}

double gb_per_s(const Machine& machine, std::uint32_t initiator, std::uint32_t target) {
  const Access* access = machine.access(NodeId(initiator), NodeId(target));
  return access != nullptr && access->bandwidth.has_value() ? access->bandwidth->count() / 1e9 : -1;
}

// hwloc keeps whole MiB/s, so figures come back rounded.
constexpr double kRounding = 0.002;

TEST(XeonMaxFlat, HasEightDdrNodesWithProcessorsAndEightHbmNodesWithout) {
  const Machine machine = replayed("xeon-max-flat");
  ASSERT_EQ(machine.nodes.size(), 16U);
  for (std::uint32_t id = 0; id < 16; ++id) {
    const Node& node = machine.nodes[id];
    EXPECT_EQ(node.id, NodeId(id));
    EXPECT_EQ(node.tier, id < 8 ? Tier::ddr : Tier::hbm);
    EXPECT_EQ(node.tier_evidence, Evidence::declared);
    EXPECT_EQ(node.capacity, id < 8 ? gib(64) : gib(16));
    EXPECT_EQ(node.memory_side_cache, Bytes(0));
    EXPECT_EQ(node.package, id % 8 / 4);
    EXPECT_EQ(node.cpus.size(), id < 8 ? 12U : 0U);
  }
  EXPECT_EQ(machine.nodes[7].cpus.front(), CpuId(84));
  EXPECT_EQ(machine.nodes[7].cpus.back(), CpuId(95));
  EXPECT_EQ(machine.node_of(CpuId(13)), NodeId(1));
  EXPECT_EQ(machine.cpu_model, "Intel(R) Xeon(R) CPU Max 9468");
  EXPECT_TRUE(machine.has_faster_tier());
  EXPECT_THAT(machine.notes, IsEmpty());
}

TEST(XeonMaxFlat, TellsBandwidthLatencyAndDistanceOfEveryPair) {
  const Machine machine = replayed("xeon-max-flat");
  EXPECT_EQ(machine.accesses.size(), 8U * 16U);
  EXPECT_NEAR(gb_per_s(machine, 0, 0), 52.9, kRounding);
  EXPECT_NEAR(gb_per_s(machine, 0, 8), 107.4, kRounding);
  EXPECT_NEAR(gb_per_s(machine, 0, 4), 23.0, kRounding);
  EXPECT_NEAR(gb_per_s(machine, 0, 12), 20.9, kRounding);
  const Access* own_hbm = machine.access(NodeId(5), NodeId(13));
  ASSERT_NE(own_hbm, nullptr);
  EXPECT_EQ(own_hbm->latency, std::chrono::nanoseconds(135));
  EXPECT_EQ(own_hbm->distance, 13U);
  EXPECT_EQ(own_hbm->evidence, Evidence::declared);
  EXPECT_EQ(machine.access(NodeId(0), NodeId(1))->distance, 12U);
  EXPECT_EQ(machine.access(NodeId(0), NodeId(9))->distance, 14U);
  EXPECT_EQ(machine.access(NodeId(0), NodeId(15))->distance, 23U);
}

TEST(XeonMaxFlat, TheFasterNodesAreTheHbmOfTheOwnSocketAndTheOwnFirst) {
  const Machine machine = replayed("xeon-max-flat");
  EXPECT_THAT(machine.faster_nodes(NodeId(0)),
              ElementsAre(NodeId(8), NodeId(9), NodeId(10), NodeId(11)));
  EXPECT_THAT(machine.faster_nodes(NodeId(6)),
              ElementsAre(NodeId(14), NodeId(12), NodeId(13), NodeId(15)));
  EXPECT_THAT(machine.faster_nodes(NodeId(8)), IsEmpty());
}

TEST(XeonMaxFlat, TheNodeWithProcessorsNearestToHbmIsThatOfItsPartOfTheSocket) {
  const Machine machine = replayed("xeon-max-flat");
  for (std::uint32_t node = 0; node < 8; ++node) {
    EXPECT_EQ(machine.nearest_with_cpus(NodeId(node)), NodeId(node));
    EXPECT_EQ(machine.nearest_with_cpus(NodeId(node + 8)), NodeId(node));
  }
  EXPECT_EQ(machine.nearest_with_cpus(NodeId(99)), std::nullopt);
}

TEST(XeonMaxFlat, HasOneDsaWithOneSharedQueuePerDdrNode) {
  const Machine machine = replayed("xeon-max-flat");
  EXPECT_EQ(machine.mover_discovery, MoverDiscovery::done);
  ASSERT_EQ(machine.dsa_devices.size(), 8U);
  for (std::uint32_t index = 0; index < 8; ++index) {
    const DsaDevice& device = machine.dsa_devices[index];
    EXPECT_EQ(device.id, DeviceId(2 * index));
    EXPECT_EQ(device.node, NodeId(index));
    EXPECT_EQ(device.engine_count, 1U);
    ASSERT_EQ(device.queues.size(), 1U);
    EXPECT_EQ(device.queues[0].mode, "shared");
    EXPECT_EQ(device.queues[0].entry_count, 128U);
    EXPECT_EQ(device.queues[0].transfer_max, gib(2));
  }
}

TEST(XeonMaxFlat, WithoutStatedKindsTheTiersAreConcludedFromBandwidth) {
  nlohmann::ordered_json record = load_fixture("xeon-max-flat");
  std::string xml = record["hwloc_xml"];
  xml = test::replace_all(xml, " subtype=\"HBM\"", "");
  test::set_xml(record, test::replace_all(xml, " subtype=\"DRAM\"", ""));
  const Result<Machine> machine = replay_text(record.dump());
  ASSERT_TRUE(machine.has_value()) << machine.error().message();
  for (const Node& node : machine->nodes) {
    EXPECT_EQ(node.tier, node.id.value() < 8 ? Tier::ddr : Tier::hbm);
    EXPECT_EQ(node.tier_evidence, Evidence::inferred);
  }
}

TEST(XeonMaxFlat, WithoutKindsAndFiguresTheNodesOfMemoryOnlyAreUnknown) {
  nlohmann::ordered_json record = load_fixture("xeon-max-flat");
  std::string xml = record["hwloc_xml"];
  xml = test::replace_all(xml, " subtype=\"HBM\"", "");
  xml = test::replace_all(xml, " subtype=\"DRAM\"", "");
  xml.resize(xml.find("  <memattr "));
  test::set_xml(record, xml + "</topology>\n");
  const Result<Machine> machine = replay_text(record.dump());
  ASSERT_TRUE(machine.has_value()) << machine.error().message();
  EXPECT_EQ(machine->nodes[0].tier, Tier::ddr);
  EXPECT_EQ(machine->nodes[8].tier, Tier::unknown);
  EXPECT_FALSE(machine->has_faster_tier());
  EXPECT_THAT(machine->notes, Contains(HasSubstr("Nodes 8-15 are of unknown tier")));
  EXPECT_THAT(machine->notes, Contains(HasSubstr("Bandwidth and latency are unknown")));
  EXPECT_THAT(machine->faster_nodes(NodeId(0)), IsEmpty());
}

TEST(XeonMaxFlat, WithStatedKindsButNoFiguresTheOwnHbmIsFaster) {
  nlohmann::ordered_json record = load_fixture("xeon-max-flat");
  std::string xml = record["hwloc_xml"];
  xml.resize(xml.find("  <memattr "));
  test::set_xml(record, xml + "</topology>\n");
  const Result<Machine> machine = replay_text(record.dump());
  ASSERT_TRUE(machine.has_value()) << machine.error().message();
  EXPECT_THAT(machine->faster_nodes(NodeId(3)), ElementsAre(NodeId(11)));
}

TEST(XeonMaxFlat, ProcessorsBelongToTheDdrNodesEvenIfTheRecordListsNone) {
  nlohmann::ordered_json record = load_fixture("xeon-max-flat");
  for (auto& node : record["nodes"]) node.erase("cpus");
  const Result<Machine> machine = replay_text(record.dump());
  ASSERT_TRUE(machine.has_value()) << machine.error().message();
  Machine whole = replayed("xeon-max-flat");
  EXPECT_EQ(to_json(*machine), to_json(whole));
}

TEST(XeonMaxFlat, ARestrictedProcessSeesItsProcessorsOnlyAndIsTold) {
  nlohmann::ordered_json record = load_fixture("xeon-max-flat");
  record["usable_cpus"] = "10-13";
  const Result<Machine> machine = replay_text(record.dump());
  ASSERT_TRUE(machine.has_value()) << machine.error().message();
  EXPECT_THAT(machine->nodes[0].cpus, ElementsAre(CpuId(10), CpuId(11)));
  EXPECT_THAT(machine->nodes[1].cpus, ElementsAre(CpuId(12), CpuId(13)));
  EXPECT_THAT(machine->nodes[2].cpus, IsEmpty());
  EXPECT_EQ(machine->nodes[2].tier, Tier::ddr);
  EXPECT_EQ(machine->accesses.size(), 2U * 16U);
  EXPECT_THAT(machine->notes, Contains("This process may use 4 of 96 processors."));
}

TEST(XeonMaxFlat, NodesThatTheProcessMayNotUseAreLeftOutAndNamed) {
  const Result<Machine> machine = replay_changed("xeon-max-flat", "allowed_nodeset=\"0x0000ffff\"",
                                                 "allowed_nodeset=\"0x00007fff\"");
  ASSERT_TRUE(machine.has_value()) << machine.error().message();
  EXPECT_EQ(machine->nodes.size(), 15U);
  EXPECT_EQ(machine->node(NodeId(15)), nullptr);
  EXPECT_EQ(machine->access(NodeId(7), NodeId(15)), nullptr);
  EXPECT_THAT(machine->notes, Contains(HasSubstr("Node 15 is left out")));
}

TEST(XeonMaxCache, HasEightNodesBehindAMemorySideCacheAndOneTier) {
  const Machine machine = replayed("xeon-max-cache");
  ASSERT_EQ(machine.nodes.size(), 8U);
  for (const Node& node : machine.nodes) {
    EXPECT_EQ(node.tier, Tier::ddr);
    EXPECT_EQ(node.capacity, gib(64));
    EXPECT_EQ(node.memory_side_cache, gib(16));
    EXPECT_EQ(node.cpus.size(), 12U);
    EXPECT_THAT(machine.faster_nodes(node.id), IsEmpty());
  }
  EXPECT_NEAR(gb_per_s(machine, 0, 0), 52.9, kRounding);
  EXPECT_FALSE(machine.has_faster_tier());
  EXPECT_EQ(machine.dsa_devices.size(), 8U);
}

TEST(DdrCxl, TheExpanderIsConcludedFromItsFiguresAndIsNotFaster) {
  const Machine machine = replayed("ddr-cxl");
  ASSERT_EQ(machine.nodes.size(), 2U);
  EXPECT_EQ(machine.nodes[0].tier, Tier::ddr);
  EXPECT_EQ(machine.nodes[0].cpus.size(), 32U);
  EXPECT_EQ(machine.nodes[1].tier, Tier::cxl);
  EXPECT_EQ(machine.nodes[1].tier_evidence, Evidence::inferred);
  EXPECT_THAT(machine.nodes[1].cpus, IsEmpty());
  EXPECT_NEAR(gb_per_s(machine, 0, 1), 17.7, kRounding);
  EXPECT_EQ(machine.access(NodeId(0), NodeId(1))->latency, std::chrono::nanoseconds(300));
  EXPECT_TRUE(machine.has_faster_tier());
  EXPECT_THAT(machine.faster_nodes(NodeId(0)), IsEmpty());
  EXPECT_EQ(machine.mover_discovery, MoverDiscovery::done);
  EXPECT_THAT(machine.dsa_devices, IsEmpty());
}

TEST(DdrCxl, WhatTheTopologyStatesComesBeforeWhatTheFiguresSuggest) {
  const std::string node = "os_index=\"1\" local_memory=\"68719476736\"";
  const auto tier = [&](const std::string& subtype, const std::string& info) {
    nlohmann::ordered_json record = load_fixture("ddr-cxl");
    std::string xml = record["hwloc_xml"];
    if (!subtype.empty()) {
      xml = test::replace_all(xml, node, node + " subtype=\"" + subtype + "\"");
    } else {
      const std::size_t begin = xml.find(node);
      xml.insert(xml.find('>', begin) + 1, "\n<info " + info + "/>");
    }
    test::set_xml(record, xml);
    const Result<Machine> machine = replay_text(record.dump());
    EXPECT_TRUE(machine.has_value()) << machine.error().message();
    return machine.has_value() ? machine->nodes[1].tier : Tier::unknown;
  };
  EXPECT_EQ(tier("NVM", ""), Tier::persistent);
  EXPECT_EQ(tier("HBM", ""), Tier::hbm);
  EXPECT_EQ(tier("MCDRAM", ""), Tier::hbm);
  EXPECT_EQ(tier("CXL-DRAM", ""), Tier::cxl);
  EXPECT_EQ(tier("CXL-NVM", ""), Tier::persistent);
  EXPECT_EQ(tier("SPM", ""), Tier::cxl);  // Set apart by the firmware: the figures decide.
  EXPECT_EQ(tier("", "name=\"DAXType\" value=\"NVM\""), Tier::persistent);
  EXPECT_EQ(tier("", "name=\"CXLDevice\" value=\"0000:36:00.0\""), Tier::cxl);
}

TEST(DdrCxl, FiguresThatContradictEachOtherLeaveTheTierUnknown) {
  // Same bandwidth as local memory, but a much higher latency: neither HBM nor certainly CXL.
  const Result<Machine> machine = replay_changed("ddr-cxl", "value=\"16880\"", "value=\"220299\"");
  ASSERT_TRUE(machine.has_value()) << machine.error().message();
  EXPECT_EQ(machine->nodes[1].tier, Tier::unknown);
  EXPECT_THAT(machine->notes, Contains(HasSubstr("Node 1 is of unknown tier")));
}

TEST(DdrCxl, FiguresBeyondReasonAreLeftOutWithANote) {
  const Result<Machine> machine =
      replay_changed("ddr-cxl", "value=\"16880\"", "value=\"18446744073709551615\"");
  ASSERT_TRUE(machine.has_value()) << machine.error().message();
  EXPECT_EQ(machine->access(NodeId(0), NodeId(1))->bandwidth, std::nullopt);
  EXPECT_THAT(machine->notes, Contains(HasSubstr("implausible")));
}

TEST(DdrCxl, ANodeWithoutMemoryIsKeptAndNamed) {
  const Result<Machine> machine =
      replay_changed("ddr-cxl", "local_memory=\"68719476736\"", "local_memory=\"0\"");
  ASSERT_TRUE(machine.has_value()) << machine.error().message();
  EXPECT_EQ(machine->nodes[1].capacity, Bytes(0));
  EXPECT_THAT(machine->notes, Contains("Node 1 has no memory."));
}

TEST(BareNode, IsCalledDdrWithANoteAndNothingElseIsClaimed) {
  const Machine machine = replayed("bare-node");
  ASSERT_EQ(machine.nodes.size(), 1U);
  const Node& node = machine.nodes[0];
  EXPECT_EQ(node.tier, Tier::ddr);
  EXPECT_EQ(node.tier_evidence, Evidence::inferred);
  EXPECT_EQ(node.cpus.size(), 4U);
  EXPECT_EQ(node.package, std::nullopt);
  EXPECT_THAT(node.huge_pages, IsEmpty());
  EXPECT_THAT(machine.accesses, IsEmpty());
  EXPECT_THAT(machine.cpu_caches, IsEmpty());
  EXPECT_EQ(machine.cpu_model, "");
  EXPECT_EQ(machine.mover_discovery, MoverDiscovery::not_tried);
  EXPECT_FALSE(machine.has_faster_tier());
  EXPECT_THAT(machine.faster_nodes(NodeId(0)), IsEmpty());
  EXPECT_THAT(machine.notes, Contains(HasSubstr("Node 0 is called ddr")));
}

TEST(BareNode, HasTheMemoryOfTheSystemWhereTheKernelCountsLessToItsOnlyNode) {
  const Result<Machine> before = replay(fixture_path("bare-node"));
  ASSERT_TRUE(before.has_value());
  nlohmann::ordered_json record = load_fixture("bare-node");
  const Bytes all(before->nodes[0].capacity.count() * 3);
  record["system_memory_bytes"] = all.count();
  const Result<Machine> machine = replay_text(record.dump());
  ASSERT_TRUE(machine.has_value()) << machine.error().message();
  EXPECT_EQ(machine->nodes[0].capacity, all);
  EXPECT_THAT(machine->notes, Contains(HasSubstr("of the system")));
  // Memory reserved by the kernel makes no difference.
  record["system_memory_bytes"] = before->nodes[0].capacity.count() / 100 * 102;
  const Result<Machine> near = replay_text(record.dump());
  EXPECT_EQ(near->nodes[0].capacity, before->nodes[0].capacity);
  EXPECT_EQ(near->notes, before->notes);
}

TEST(DdrCxl, MemoryThatBelongsToNoNodeIsNoted) {
  const Result<Machine> before = replay(fixture_path("ddr-cxl"));
  ASSERT_TRUE(before.has_value());
  nlohmann::ordered_json record = load_fixture("ddr-cxl");
  Bytes sum;
  for (const Node& node : before->nodes) sum += node.capacity;
  record["system_memory_bytes"] = sum.count() * 2;
  const Result<Machine> machine = replay_text(record.dump());
  ASSERT_TRUE(machine.has_value()) << machine.error().message();
  EXPECT_EQ(machine->nodes[0].capacity, before->nodes[0].capacity);
  EXPECT_THAT(machine->notes, Contains(HasSubstr("belongs to no node")));
}

TEST(CloudGuest, IsOneNodeOfDdrWithTwoProcessors) {
  const Machine machine = replayed("cloud-guest-2cpu");
  ASSERT_EQ(machine.nodes.size(), 1U);
  EXPECT_EQ(machine.nodes[0].tier, Tier::ddr);
  EXPECT_EQ(machine.nodes[0].tier_evidence, Evidence::inferred);
  EXPECT_THAT(machine.nodes[0].cpus, ElementsAre(CpuId(0), CpuId(1)));
  ASSERT_EQ(machine.nodes[0].huge_pages.size(), 2U);
  EXPECT_EQ(machine.nodes[0].huge_pages[0].page_bytes, mib(2));
  ASSERT_EQ(machine.cpu_caches.size(), 3U);
  EXPECT_EQ(machine.cpu_caches[2].level, 3U);
  EXPECT_EQ(machine.cpu_caches[2].line_bytes, 64U);
  EXPECT_FALSE(machine.has_faster_tier());
  // The firmware states no bandwidth; 'headrace topo --measure' found 58.04 GB/s and 189.8 ns.
  const Access* const access = machine.access(NodeId(0), NodeId(0));
  ASSERT_NE(access, nullptr);
  EXPECT_EQ(access->evidence, Evidence::measured);
  EXPECT_NEAR(access->bandwidth->count(), 58.04e9, 1e7);
  EXPECT_EQ(access->latency, std::chrono::nanoseconds(189));
  EXPECT_THAT(machine.notes, Not(Contains(HasSubstr("no HMAT"))));
}

}  // namespace
}  // namespace headrace::topo
