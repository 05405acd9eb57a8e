// SPDX-License-Identifier: Apache-2.0
// Records that are damaged, foreign, absurd or from the future.
#include <gmock/gmock.h>

#include <functional>
#include <random>

#include "fixture.hpp"
#include "support/seed.hpp"

namespace headrace::topo {
namespace {

using test::fixture_path;
using test::load_fixture;
using test::replay_text;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

/// The error of the ddr-cxl record after `change`.
Error error_after(const std::function<void(Json&)>& change) {
  Json record = load_fixture("ddr-cxl");
  change(record);
  const Result<Machine> machine = replay_text(record.dump());
  EXPECT_FALSE(machine.has_value());
  return machine.has_value() ? Error{} : machine.error();
}

TEST(Record, AMissingFileIsNamed) {
  const Result<Machine> machine = replay("/no/such/machine.json");
  ASSERT_FALSE(machine.has_value());
  EXPECT_EQ(machine.error().code, Code::not_found);
  EXPECT_THAT(machine.error().message(), HasSubstr("/no/such/machine.json"));
}

TEST(Record, ATruncatedFileIsCorruptWhereverItEnds) {
  const std::string whole = load_fixture("bare-node").dump(2);
  for (std::size_t length = 0; length + 1 < whole.size(); length += 7) {
    const test::TemporaryFile file(whole.substr(0, length) + " ");
    const Result<Machine> machine = replay(file.path());
    ASSERT_FALSE(machine.has_value()) << length;
    EXPECT_EQ(machine.error().code, Code::corrupt_data);
    EXPECT_THAT(machine.error().message(), AllOf(HasSubstr(file.path()), HasSubstr("line")));
  }
}

TEST(Record, OtherJsonIsRefusedByTheNameOfItsSchema) {
  for (const char* text : {"{}", "[]", "1", "null", "\"text\"", "{\"schema\": 1}"}) {
    const Result<Machine> machine = replay_text(text);
    ASSERT_FALSE(machine.has_value()) << text;
    EXPECT_EQ(machine.error().code, Code::corrupt_data);
    EXPECT_THAT(machine.error().message(), AnyOf(HasSubstr("schema"), HasSubstr("not an object")))
        << text;
  }
  const Error error = error_after([](Json& json) { json["schema"]["name"] = "other"; });
  EXPECT_EQ(error.code, Code::corrupt_data);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("schema.name"), HasSubstr("'other'")));
}

TEST(Record, ADescriptionIsNotARecordAndIsRefusedAsSuch) {
  const Result<Machine> machine = replay_text(to_json(*replay(fixture_path("bare-node"))));
  ASSERT_FALSE(machine.has_value());
  EXPECT_THAT(machine.error().message(), HasSubstr("'headrace-machine'"));
}

TEST(Record, ANewerVersionIsAMismatchThatNamesBothVersions) {
  const Error error = error_after([](Json& json) { json["schema"]["version"] = 2; });
  EXPECT_EQ(error.code, Code::version_mismatch);
  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("schema.version"), HasSubstr("is 2"), HasSubstr("version 1")));
}

TEST(Record, EachWrongFieldIsNamed) {
  const std::vector<std::pair<std::string, std::function<void(Json&)>>> changes{
      {"origin", [](Json& json) { json.erase("origin"); }},
      {"evidence", [](Json& json) { json["evidence"] = "hearsay"; }},
      {"page_bytes", [](Json& json) { json["page_bytes"] = -1; }},
      {"page_bytes", [](Json& json) { json["page_bytes"] = 1.5; }},
      {"usable_cpus", [](Json& json) { json["usable_cpus"] = "3-1"; }},
      {"usable_cpus", [](Json& json) { json["usable_cpus"] = "0-99999999999"; }},
      {"nodes", [](Json& json) { json["nodes"] = 3; }},
      {"nodes", [](Json& json) { json["nodes"] = std::vector<int>(5000, 0); }},
      {"nodes[1].node", [](Json& json) { json["nodes"][1]["node"] = 0; }},
      {"nodes[1].cpus", [](Json& json) { json["nodes"][1]["cpus"] = "x"; }},
      {"nodes[0].huge_pages[1].page_bytes",
       [](Json& json) { json["nodes"][0]["huge_pages"][1]["page_bytes"] = UINT64_MAX; }},
      {"nodes[0].huge_pages[0].free_count",
       [](Json& json) { json["nodes"][0]["huge_pages"][0]["free_count"] = 1; }},
      {"movers.discovery", [](Json& json) { json["movers"]["discovery"] = "maybe"; }},
      {"movers.dsa_devices[0].device",
       [](Json& json) { json["movers"]["dsa_devices"].push_back(Json::object()); }},
      {"model.measured.pairs[0].read_gb_per_s",
       [](Json& json) {
         json["model"]["measured"]["pairs"] = {
             {{"initiator", 0}, {"target", 0}, {"read_gb_per_s", 0.0}, {"latency_ns", 90.5}}};
       }},
      {"model.measured.pairs[0].latency_ns",
       [](Json& json) {
         json["model"]["measured"]["pairs"] = {
             {{"initiator", 0}, {"target", 0}, {"read_gb_per_s", 1}, {"latency_ns", "90 ns"}}};
       }},
      {"hwloc_xml", [](Json& json) { json.erase("hwloc_xml"); }},
      {"hwloc_xml_fnv1a64", [](Json& json) { json.erase("hwloc_xml_fnv1a64"); }},
      {"hwloc_xml_fnv1a64",
       [](Json& json) { json["hwloc_xml"] = json["hwloc_xml"].get<std::string>() + " "; }},
  };
  for (const auto& [field, change] : changes) {
    const Error error = error_after(change);
    EXPECT_EQ(error.code, Code::corrupt_data) << field;
    EXPECT_THAT(error.message(), HasSubstr("'" + field + "'"));
    EXPECT_THAT(error.message(), HasSubstr("headrace-topo-test"));
  }
}

TEST(Record, XmlThatIsNoTopologyIsNamedWithFileAndField) {
  for (const char* xml : {"", "<", "text", "<topology version=\"2.0\">", "<html></html>"}) {
    const Error error = error_after([&](Json& json) { test::set_xml(json, xml); });
    EXPECT_EQ(error.code, Code::corrupt_data);
    EXPECT_THAT(error.message(), AllOf(HasSubstr("hwloc_xml"), HasSubstr("headrace-topo-test")))
        << xml;
  }
}

TEST(Record, AFileTooLargeToBeARecordIsNotReadWhole) {
  const test::TemporaryFile file("x");
  std::filesystem::resize_file(file.path(), std::uintmax_t{1} << 40U);  // Sparse.
  const Result<Machine> machine = replay(file.path());
  ASSERT_FALSE(machine.has_value());
  EXPECT_EQ(machine.error().code, Code::capacity_exceeded);
}

TEST(Record, DeepNestingIsRefusedWithoutExhaustingTheStack) {
  const Result<Machine> machine = replay_text(std::string(1U << 20U, '['));
  ASSERT_FALSE(machine.has_value());
  EXPECT_EQ(machine.error().code, Code::corrupt_data);
}

TEST(Record, DamagedRecordsAreRefusedOrReadButNeverMoreThanThat) {
  const std::string whole = load_fixture("ddr-cxl").dump(2);
  std::mt19937_64 random(headrace::test::seed());
  for (int round = 0; round < 300; ++round) {
    std::string text = whole;
    const std::size_t at = random() % text.size();
    switch (random() % 3) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, 1 + random() % 40);
        break;
      default:
        text.insert(at, text.substr(random() % text.size(), random() % 80));
        break;
    }
    const Result<Machine> machine = replay_text(text);
    EXPECT_TRUE(machine.has_value() || !machine.error().message().empty());
  }
}

}  // namespace
}  // namespace headrace::topo
