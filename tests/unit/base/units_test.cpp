// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/units.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <clocale>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace headrace {
namespace {

TEST(Units, SizesAreReadWithAndWithoutAUnit) {
  EXPECT_EQ(parse_bytes("4096"), Bytes(4096));
  EXPECT_EQ(parse_bytes("64KiB"), kib(64));
  EXPECT_EQ(parse_bytes("64K"), kib(64));
  EXPECT_EQ(parse_bytes("1.5 GiB"), mib(1536));
  EXPECT_EQ(parse_bytes("512 B"), Bytes(512));
  EXPECT_EQ(parse_bytes("0"), Bytes(0));
}

TEST(Units, SizesAreReadAndWrittenAlikeUnderALocaleWithADecimalComma) {
  const std::string folder =
      std::filesystem::temp_directory_path() / ("headrace-locale-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const std::string make =
      "localedef -i de_DE -f UTF-8 '" + folder + "/de_DE.UTF-8' >/dev/null 2>&1";
  // Warns, and exits with 1, if a definition is incomplete.
  static_cast<void>(std::system(make.c_str()));  // NOLINT(concurrency-mt-unsafe)
  ::setenv("LOCPATH", folder.c_str(), 1);
  const bool made = std::setlocale(LC_ALL, "de_DE.UTF-8") != nullptr;
  const bool comma = made && std::string_view(std::localeconv()->decimal_point) == ",";
  const Result<Bytes> read = parse_bytes("1.5 GiB");
  const std::string written = to_text(mib(1536));
  std::setlocale(LC_ALL, "C");
  ::unsetenv("LOCPATH");
  std::filesystem::remove_all(folder);
  if (!comma) GTEST_SKIP() << "localedef cannot make de_DE.UTF-8 here";
  EXPECT_EQ(read, mib(1536));
  EXPECT_EQ(written, "1.5 GiB");
}

TEST(Units, EveryIntegerBelowTheLimitSurvives) {
  EXPECT_EQ(parse_bytes("9007199254740993"), Bytes(9007199254740993U));
}

TEST(Units, NonsenseIsRefusedWithTheRemedy) {
  for (const char* text :
       {"", "abc", "-1", "1.5", "1..5", "12 parsecs", "1e3", "99999999999T", "KiB", "0.0001K"}) {
    const Result<Bytes> bytes = parse_bytes(text);
    ASSERT_FALSE(bytes.has_value()) << text;
    EXPECT_EQ(bytes.error().code, Code::invalid_argument) << text;
    EXPECT_NE(bytes.error().message().find("write it like"), std::string::npos) << text;
  }
}

TEST(Units, TextUsesTheLargestUnitThatLeavesAtLeastOne) {
  EXPECT_EQ(to_text(Bytes(512)), "512 B");
  EXPECT_EQ(to_text(kib(1)), "1 KiB");
  EXPECT_EQ(to_text(mib(1536)), "1.5 GiB");
  EXPECT_EQ(to_text(BytesPerSecond(70.4e9)), "70.4 GB/s");
}

TEST(Units, NumbersOfThingsAreWrittenAsTheyAreSpoken) {
  EXPECT_EQ(counted(0, "job"), "0 jobs");
  EXPECT_EQ(counted(1, "worker thread"), "1 worker thread");
  EXPECT_EQ(counted(2, "free entry"), "2 free entries");
  EXPECT_EQ(counted(3, "day"), "3 days");
}

}  // namespace
}  // namespace headrace
