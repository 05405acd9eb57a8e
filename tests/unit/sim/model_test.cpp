// SPDX-License-Identifier: Apache-2.0
// What is refused in the model of a record, and the line reported.
#include "sim/model.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "headrace/platform/descriptor.hpp"
#include "support/test_data.hpp"

namespace headrace::sim {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kMachines = test::test_data() + "/machines/";

std::string text_of(const std::string& name) {
  return platform::load_file(kMachines + name, std::size_t{1} << 24U).value();
}

/// The record of one DSA with `from` replaced by `to`, once.
Result<Model> changed(const std::string& from, const std::string& to) {
  std::string text = text_of("spr-1dsa.json");
  const std::size_t at = text.find(from, text.find("\"model\""));
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  return parse_model(text, "x.json", topo::replay(kMachines + "spr-1dsa.json").value());
}

std::string message(const Result<Model>& model) {
  return model.has_value() ? "" : model.error().message();
}

TEST(Model, EveryDeclaredMachineIsRead) {
  for (const char* const name : {"xeon-max-flat", "xeon-max-cache", "xeon-max-9462", "spr-1dsa",
                                 "spr-4dsa", "spr-cxl", "ddr-optane", "injection-node"}) {
    const auto model = read_model(kMachines + name + ".json");
    EXPECT_TRUE(model.has_value()) << name << ": " << message(model);
  }
}

TEST(Model, ARecordWithoutAModelSaysSo) {
  const auto model = read_model(kMachines + "bare-node.json");
  ASSERT_FALSE(model.has_value());
  EXPECT_EQ(model.error().code, Code::not_found);
  EXPECT_THAT(message(model), HasSubstr("no field 'model'"));
}

TEST(Model, AValueWithoutUnitIsRefusedWithFieldLineAndUnits) {
  const auto model = changed("\"307.2 GB/s\"", "\"307.2\"");
  const std::string text = text_of("spr-1dsa.json");
  const auto line =
      std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(text.find("307.2 GB/s")),
                 '\n') +
      1;
  EXPECT_THAT(message(model),
              AllOf(HasSubstr("model.nodes[0].peak.value"), HasSubstr("has no unit"),
                    HasSubstr("GB/s, GiB/s"), HasSubstr("line " + std::to_string(line) + ":")));
}

TEST(Model, AWrongUnitIsRefused) {
  EXPECT_THAT(message(changed("\"110 ns\"", "\"110 GB/s\"")), HasSubstr("has the unit 'GB/s'"));
}

TEST(Model, ABandwidthOfZeroIsRefused) {
  EXPECT_THAT(message(changed("\"307.2 GB/s\"", "\"0 GB/s\"")), HasSubstr("write a value above 0"));
}

TEST(Model, ANumberWithoutSourceIsRefused) {
  EXPECT_THAT(message(changed("\"8 x 4800 MT/s x 8 B\"", "\"\"")),
              AllOf(HasSubstr("model.nodes[0].peak.source"), HasSubstr("assumed")));
  EXPECT_THAT(message(changed("\"lightdsa-cpu\"", "\"\"")),
              AllOf(HasSubstr("model.core.copy.fitted_to"), HasSubstr("assumed")));
}

TEST(Model, AnUnknownFieldIsRefusedWithThoseThatAreKnown) {
  EXPECT_THAT(message(changed("\"fabric\"", "\"fabrik\"")),
              AllOf(HasSubstr("fabrik"), HasSubstr("read_buffers")));
}

TEST(Model, ANodeThatTheMachineLacksIsRefused) {
  EXPECT_THAT(message(changed("\"node\": 0", "\"node\": 7")),
              AllOf(HasSubstr("model.nodes[0].node"), HasSubstr("no such node")));
}

TEST(Model, ALinkToASocketThatIsNotThereIsRefused) {
  EXPECT_THAT(message(changed("\"links\": []",
                              R"("links": [{"from": 0, "to": 3,
                                 "rate": {"value": "1 GB/s", "source": "assumed"}}])")),
              AllOf(HasSubstr("model.links[0].to"), HasSubstr("3")));
}

TEST(Model, MoreEnginesThanADeviceHasAreRefused) {
  std::string text = text_of("spr-1dsa.json");
  auto machine = topo::replay(kMachines + "spr-1dsa.json").value();
  machine.dsa_devices[0].engine_count = 5;
  EXPECT_THAT(message(parse_model(text, "x.json", machine)), HasSubstr("at most 4"));
}

TEST(Model, MoreReadThanTheBusCarriesIsRefused) {
  EXPECT_THAT(message(changed("\"307.2 GB/s\"", "\"100 GB/s\"")),
              HasSubstr("less than 'read' or 'mixed'"));
}

TEST(Model, LinesAreThoseOfTheInnermostMemberThatIsThere) {
  const std::string text = "{\n\"a\": [\n{\"b\": 1},\n{\"b\": \"x\\\"{\",\n\"c\": 2}]\n}";
  EXPECT_EQ(line_of(text, "a[0].b"), 3U);
  EXPECT_EQ(line_of(text, "a[1].b"), 4U);
  EXPECT_EQ(line_of(text, "a[1].c"), 5U);
  EXPECT_EQ(line_of(text, "a[1].c.d"), 5U);
  EXPECT_EQ(line_of(text, "z"), 1U);
}

}  // namespace
}  // namespace headrace::sim
