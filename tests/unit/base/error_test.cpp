// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/error.hpp"

#include <gtest/gtest.h>

#include <cerrno>

#include "headrace/base/check.hpp"
#include "headrace/base/names.hpp"
#include "headrace/base/result.hpp"

namespace headrace {
namespace {

TEST(Error, MessageNamesWhatWasTriedTheCauseAndTheRemedy) {
  const Error error{Code::io_failed, ENOSPC, "write 'x.json'", "the disk is full",
                    "free some space"};
  EXPECT_EQ(error.message(),
            "cannot write 'x.json': the disk is full (No space left on device); free some space");
}

TEST(Error, ACallerAddsContextAndKeepsTheRemedy) {
  const Error inner{Code::not_found, 0, "read 'x.json'", "there is no such file", "check the path"};
  EXPECT_EQ(
      inner.within("replay the machine").message(),
      "cannot replay the machine: cannot read 'x.json': there is no such file; check the path");
}

TEST(Error, EveryCodeHasAName) {
  EXPECT_EQ(name(Code::invalid_argument), "invalid_argument");
  EXPECT_EQ(name(Code::unsupported), "unsupported");
  EXPECT_EQ(name(static_cast<Code>(99)), "unknown");
}

TEST(EnumeratorName, IsAsTheSourceSpellsIt) {
  enum class Colour : std::uint8_t { red, dark_green };
  static_assert(enumerator_name(Colour::red) == "red");
  static_assert(enumerator_name(Colour::dark_green) == "dark_green");
  static_assert(enumerator_name(static_cast<Colour>(2)) == "unknown");
  static_assert(enumerator_name(static_cast<Colour>(200)) == "unknown");
  EXPECT_STREQ(enumerator_name(Colour::dark_green).data(), "dark_green") << "a zero behind it";
}

TEST(NameTable, ReadsANameAndListsAllInARefusal) {
  enum class Colour : std::uint8_t { red, green };
  constexpr auto kColours =
      make_names<Colour>({{Colour::red, "red", "like a rose"}, {Colour::green, "green"}});
  static_assert(kColours.text(Colour::green) == "green");
  EXPECT_EQ(kColours.meaning(Colour::red), "like a rose");
  EXPECT_EQ(kColours.parse("green", "colour").value(), Colour::green);
  EXPECT_FALSE(kColours.find("blue").has_value());
  EXPECT_EQ(kColours.parse("blue", "colour").error().message(),
            "cannot parse 'blue' as a colour: unknown colour; use one of red, green");
}

TEST(NameTable, OfAnEnumerationWithGapsNamesTheValuesThatAreThere) {
  enum class Flag : std::uint8_t { one = 1, eight = 8 };
  constexpr auto kFlags = make_sparse_names<Flag>({{Flag::one, "one"}, {Flag::eight, "eight"}});
  static_assert(kFlags.text(Flag::eight) == "eight");
  EXPECT_EQ(kFlags.text(Flag{2}), "unknown");
  EXPECT_EQ(kFlags.find("eight"), Flag::eight);
}

TEST(CheckDeathTest, AFailedCheckPrintsTheReasonAndTheValues) {
  const int index = 7;
  EXPECT_DEATH(HEADRACE_CHECK(index < 3, "the index is inside", index),
               "the index is inside \\[7\\]");
}

}  // namespace
}  // namespace headrace
