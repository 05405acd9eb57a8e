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

TEST(Names, AreAsTheSourceSpellsThem) {
  enum class Colour : std::uint8_t { red = 1, dark_green = 8 };
  static_assert(name(Colour::red) == "red");
  static_assert(name(static_cast<Colour>(2)) == "unknown");
  static_assert(name(static_cast<Colour>(200)) == "unknown");
  EXPECT_STREQ(name(Colour::dark_green).data(), "dark_green") << "a zero behind it";
}

TEST(Names, AreReadAndListedInARefusal) {
  enum class Colour : std::uint8_t { red, green, automatic };
  static_assert(find_name<Colour>("green") == Colour::green);
  static_assert(!find_name<Colour>("blue") && !find_name<Colour>(""));
  EXPECT_EQ(parse_name<Colour>("green", "colour").value(), Colour::green);
  EXPECT_EQ(parse_name<Colour>("blue", "colour").error().message(),
            "cannot parse 'blue' as a colour: unknown colour; use one of red, green, auto");
}

TEST(Names, HaveAMeaningEach) {
  enum class Flag : std::uint8_t { one = 1, eight = 8 };
  constexpr auto kFlags = make_meanings<Flag>({{Flag::one, "first"}, {Flag::eight, "last"}});
  EXPECT_EQ(meaning(kFlags, Flag::eight, "?"), "last");
  EXPECT_EQ(meaning(kFlags, Flag{2}, "?"), "?");
}

TEST(CheckDeathTest, AFailedCheckPrintsTheReasonAndTheValues) {
  const int index = 7;
  EXPECT_DEATH(HEADRACE_CHECK(index < 3, "the index is inside", index),
               "the index is inside \\[7\\]");
}

}  // namespace
}  // namespace headrace
