// SPDX-License-Identifier: Apache-2.0
// Valid fault scripts, and the errors for faults that cannot happen.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "emu/device/config.hpp"
#include "emu/device/faults.hpp"
#include "emu/device/trace.hpp"

namespace headrace::emu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::int32_t opcode_of(const std::string& name) {
  const auto script =
      parse_fault_script("[[fault]]\nkind = 'halt'\nopcode = '" + name + "'\n", "f.toml");
  EXPECT_TRUE(script) << script.error().message();
  return script ? script->rules[0].opcode : -1;
}

TEST(FaultScript, OpcodesHaveOurNamesAndThoseOfTheKernelsHeader) {
  EXPECT_EQ(opcode_of("move"), DSA_OPCODE_MEMMOVE);
  EXPECT_EQ(opcode_of("memmove"), DSA_OPCODE_MEMMOVE);
  EXPECT_EQ(opcode_of("MEMMOVE"), DSA_OPCODE_MEMMOVE);
  EXPECT_EQ(opcode_of("DSA_OPCODE_MEMMOVE"), DSA_OPCODE_MEMMOVE);
  EXPECT_EQ(opcode_of("memfill"), DSA_OPCODE_MEMFILL);
  EXPECT_EQ(opcode_of("compval"), DSA_OPCODE_COMPVAL);
  EXPECT_EQ(opcode_of("cr_delta"), DSA_OPCODE_CR_DELTA);
  EXPECT_EQ(opcode_of("ap_delta"), DSA_OPCODE_AP_DELTA);
  EXPECT_EQ(opcode_of("crcgen"), DSA_OPCODE_CRCGEN);
  EXPECT_EQ(opcode_of("dif_ins"), DSA_OPCODE_DIF_INS);
  EXPECT_EQ(opcode_of("dif_strp"), DSA_OPCODE_DIF_STRP);
  EXPECT_EQ(opcode_of("dif_updt"), DSA_OPCODE_DIF_UPDT);
  EXPECT_EQ(opcode_of("cflush"), DSA_OPCODE_CFLUSH);
}

TEST(FaultScript, ARefusedOpcodeListsAllNames) {
  for (const char* name : {"copy", "unknown", "", "dsa_opcode_"}) {
    const auto script = parse_fault_script(
        "[[fault]]\nkind = 'halt'\nopcode = '" + std::string(name) + "'\n", "f.toml");
    ASSERT_FALSE(script) << name;
    EXPECT_THAT(script.error().message(), HasSubstr("noop, batch, drain, move, fill"));
    EXPECT_THAT(script.error().message(), HasSubstr("cache_flush, a name of <linux/idxd.h>"));
  }
}

TEST(FaultScript, AFaultThatCannotHappenIsSaid) {
  EmulatorConfig config;
  config.devices.assign(1, default_device(1, 1, 4, "headrace"));
  const auto script = parse_fault_script(
      "[[fault]]\nkind = 'halt'\ndevice = 5\n[[fault]]\nkind = 'halt'\nqueue = 1\n"
      "[[fault]]\nkind = 'halt'\ndevice = 0\nqueue = 7\n[[fault]]\nkind = 'halt'\nqueue = 6\n",
      "f.toml");
  ASSERT_TRUE(script);
  config.faults = *script;
  EXPECT_THAT(faults_never_met(config),
              ElementsAre("fault 1 of the script never happens: there is no dsa5",
                          "fault 3 of the script never happens: there is no wq0.7",
                          "fault 4 of the script never happens: there is no wqD.6"));
}

TEST(Trace, OpcodesHaveNamesAndSubmittersAProcess) {
  TraceEvent event{.kind = TraceKind::submitted, .opcode = DSA_OPCODE_MEMMOVE, .process_id = 42};
  EXPECT_THAT(to_json(event), HasSubstr("\"opcode\":\"move\""));
  EXPECT_THAT(to_json(event), HasSubstr("\"process\":42}"));
  event.opcode = 63;
  event.process_id = 0;
  EXPECT_THAT(to_json(event), HasSubstr("\"opcode\":63"));
  EXPECT_THAT(to_json(event), Not(HasSubstr("process")));
}

}  // namespace
}  // namespace headrace::emu
