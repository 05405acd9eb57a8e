// SPDX-License-Identifier: Apache-2.0
#include "headrace/dsa/descriptor.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace headrace::dsa {
namespace {

TEST(Descriptor, every_status_of_the_header_has_a_name_and_an_explanation_of_its_own) {
  std::set<std::string_view> names;
  std::set<std::string_view> explanations;
  for (int raw = 0; raw <= DSA_COMP_TRANSLATION_FAIL; ++raw) {
    if (raw > DSA_COMP_DIF_ERR && raw < DSA_COMP_BAD_OPCODE) continue;
    const auto status = static_cast<std::uint8_t>(raw);
    EXPECT_NE(name(status_of(status)), "unknown") << raw;
    EXPECT_TRUE(names.insert(name(status_of(status))).second) << raw;
    EXPECT_TRUE(explanations.insert(explain(status)).second) << raw;
    EXPECT_EQ(explain(status).back(), '.') << raw;
  }
}

TEST(Descriptor, a_write_fault_is_explained_as_the_read_fault_is) {
  EXPECT_EQ(explain(0x83), explain(0x03));
  EXPECT_EQ(status_of(0x83), Status::page_fault);
  EXPECT_TRUE(is_write_fault(0x83));
  EXPECT_FALSE(is_write_fault(0x03));
}

TEST(Descriptor, values_without_a_meaning_are_unknown_and_an_abort_is_not_one_of_them) {
  EXPECT_EQ(name(static_cast<Status>(0x0f)), "unknown");
  EXPECT_EQ(name(static_cast<Opcode>(0x7f)), "unknown");
  EXPECT_NE(explain(0x0f), explain(kStatusAborted));
  EXPECT_NE(explain(kStatusAborted).find("reset"), std::string_view::npos);
}

}  // namespace
}  // namespace headrace::dsa
