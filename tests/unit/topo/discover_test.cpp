// SPDX-License-Identifier: Apache-2.0
// Discovery of the machine that the test runs on.
#include <gmock/gmock.h>
#include <sched.h>

#include <cstdlib>
#include <fstream>
#include <thread>

#include "fixture.hpp"

namespace headrace::topo {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

Machine discovered(const DiscoverOptions& options = {}) {
  Result<Machine> machine = discover(options);
  EXPECT_TRUE(machine.has_value()) << machine.error().message();
  return machine.has_value() ? std::move(*machine) : Machine{};
}

/// Sets an environment variable for a scope.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    ::setenv(name, value.c_str(), 1);
  }
  ~Environment() { ::unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
};

TEST(Discover, FindsNodesInOrderAndEveryProcessorThatThisThreadMayUse) {
  const Machine machine = discovered();
  ASSERT_FALSE(machine.nodes.empty());
  for (std::size_t index = 1; index < machine.nodes.size(); ++index) {
    EXPECT_LT(machine.nodes[index - 1].id, machine.nodes[index].id);
  }
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  std::size_t found_count = 0;
  for (const Node& node : machine.nodes) {
    for (const CpuId cpu : node.cpus) {
      EXPECT_TRUE(CPU_ISSET(cpu.value(), &allowed));
      EXPECT_EQ(machine.node_of(cpu), node.id);
      ++found_count;
    }
  }
  EXPECT_EQ(found_count, static_cast<std::size_t>(CPU_COUNT(&allowed)));
  EXPECT_EQ(machine.origin, "discovered");
  EXPECT_GE(machine.page_bytes, kib(4));
}

TEST(Discover, AThreadPinnedToOneProcessorSeesOneAndIsTold) {
  const Machine whole = discovered();
  std::size_t whole_count = 0;
  for (const Node& node : whole.nodes) whole_count += node.cpus.size();
  if (whole_count < 2) GTEST_SKIP() << "needs two processors";
  std::thread([&] {
    const Node& own =
        *whole.node(*whole.node_of(CpuId(static_cast<std::uint32_t>(::sched_getcpu()))));
    const CpuId last = own.cpus.back();
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(last.value(), &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    const Machine machine = discovered();
    EXPECT_THAT(machine.node(own.id)->cpus, ::testing::ElementsAre(last));
    EXPECT_EQ(machine.nodes.size(), whole.nodes.size());
    EXPECT_THAT(machine.notes, Contains(HasSubstr("This process may use 1 of")));
  }).join();
}

TEST(Discover, ReplayOfARecordEqualsWhatWasRecorded) {
  const test::TemporaryFile file;
  Result<Recording> recorded = make_record();
  ASSERT_TRUE(recorded.has_value()) << recorded.error().message();
  std::ofstream(file.path()) << recorded->text;
  Result<Machine> replayed = replay(file.path());
  ASSERT_TRUE(replayed.has_value()) << replayed.error().message();
  EXPECT_THAT(replayed->origin, HasSubstr("recorded"));
  replayed->origin = recorded->machine.origin;
  EXPECT_EQ(to_json(*replayed), to_json(recorded->machine));
}

TEST(Discover, ARecordDoesNotNameTheMachine) {
  const Result<Recording> recorded = make_record();
  ASSERT_TRUE(recorded.has_value()) << recorded.error().message();
  const std::string& text = recorded->text;
  EXPECT_THAT(text, HasSubstr("<topology"));
  for (const char* word : {"HostName", "Serial", "UUID", "AssetTag", "LinuxCgroup"}) {
    EXPECT_THAT(text, Not(HasSubstr(word)));
  }
}

TEST(Discover, MoversAreNotLookedForIfNotWanted) {
  EXPECT_EQ(discovered({.find_movers = false}).mover_discovery, MoverDiscovery::not_tried);
  EXPECT_NE(discovered().mover_discovery, MoverDiscovery::not_tried);
}

TEST(Discover, AMachineOfTheEnvironmentTakesThePlaceOfThisOne) {
  const Environment synthetic(
      "HWLOC_SYNTHETIC", "pack:2 [numa(memory=4294967296)] [numa(memory=1073741824)] core:3 pu:1");
  const Machine machine = discovered();
  ASSERT_EQ(machine.nodes.size(), 4U);
  EXPECT_EQ(machine.nodes[0].cpus.size(), 3U);
  EXPECT_EQ(machine.nodes[0].capacity, gib(4));
  EXPECT_EQ(machine.nodes[0].tier, Tier::ddr);
  EXPECT_EQ(machine.nodes[1].cpus.size(), 0U);
  EXPECT_EQ(machine.nodes[1].tier, Tier::unknown);
  EXPECT_EQ(machine.nodes[2].package, 1U);
  EXPECT_EQ(machine.mover_discovery, MoverDiscovery::not_tried);
  EXPECT_THAT(machine.notes, Contains(HasSubstr("HWLOC_SYNTHETIC")));
}

TEST(Discover, AnXmlFileOfTheEnvironmentIsDescribedAsItsRecordWouldBe) {
  const test::TemporaryFile file(test::load_fixture("xeon-max-flat")["hwloc_xml"]);
  const Environment xml("HWLOC_XMLFILE", file.path());
  const Machine machine = discovered();
  ASSERT_EQ(machine.nodes.size(), 16U);
  EXPECT_EQ(machine.nodes[3].cpus.size(), 12U);
  EXPECT_EQ(machine.nodes[11].tier, Tier::hbm);
  EXPECT_EQ(machine.nodes[11].tier_evidence, Evidence::declared);
  EXPECT_EQ(machine.faster_nodes(NodeId(3)).front(), NodeId(11));
}

TEST(Discover, ThreadsMayDiscoverAndReplayAtTheSameTime) {
  const std::string path = test::fixture_path("xeon-max-flat");
  const std::string expected = to_json(*replay(path));
  std::vector<std::thread> threads;
  for (int index = 0; index < 4; ++index) {
    threads.emplace_back([&] {
      EXPECT_FALSE(discovered().nodes.empty());
      const Result<Machine> machine = replay(path);
      ASSERT_TRUE(machine.has_value()) << machine.error().message();
      EXPECT_EQ(to_json(*machine), expected);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Discover, TheJsonNamesItsSchemaAndEveryNode) {
  const nlohmann::json json = nlohmann::json::parse(to_json(discovered()));
  EXPECT_EQ(json["schema"]["name"], "headrace-machine");
  EXPECT_EQ(json["schema"]["version"], 1);
  EXPECT_EQ(json["nodes"].size(), discovered().nodes.size());
}

}  // namespace
}  // namespace headrace::topo
