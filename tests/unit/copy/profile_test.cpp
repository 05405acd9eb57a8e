// SPDX-License-Identifier: Apache-2.0
// Profiles: reading, writing, using, and refusing any invalid one with one sentence.
#include "headrace/copy/profile.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <tuple>
#include <vector>

#include "default_kernels.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/base/random.hpp"
#include "headrace/copy/copy.hpp"
#include "support/seed.hpp"

namespace headrace::copy {
namespace {

using ::testing::HasSubstr;

/// Some variant for lengths of this class; nothing if copies cannot be generated.
std::optional<Variant> variant_of_class(std::uint64_t bytes_max) {
  const std::vector<Variant> grid = variants_for(bytes_max / 2 + 1);
  if (grid.empty()) return std::nullopt;
  return grid[grid.size() / 2];
}

Profile sample() {
  Profile profile{.machine = this_machine(), .classes = {}};
  for (std::uint64_t bytes_max = 256; bytes_max <= 65536; bytes_max *= 4) {
    profile.classes.push_back({.bytes_max = bytes_max, .variant = variant_of_class(bytes_max)});
  }
  profile.classes.push_back({.bytes_max = 131072, .variant = std::nullopt});
  return profile;
}

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), with);
}

TEST(Profile, IsReadAsItWasWritten) {
  const Profile profile = sample();
  const auto read = parse_profile(to_json(profile));
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(read->machine, profile.machine);
  ASSERT_EQ(read->classes.size(), profile.classes.size());
  for (std::size_t i = 0; i < profile.classes.size(); ++i) {
    EXPECT_EQ(read->classes[i].bytes_max, profile.classes[i].bytes_max);
    EXPECT_EQ(read->classes[i].variant, profile.classes[i].variant);
  }
}

TEST(Profile, SaysFromWhereOnADevicePaysIfItIsKnown) {
  Profile profile = sample();
  EXPECT_EQ(parse_profile(to_json(profile))->dsa_bytes_min, std::nullopt);
  profile.dsa_bytes_min = 70'000;
  const std::string good = to_json(profile);
  EXPECT_EQ(parse_profile(good)->dsa_bytes_min, 70'000U);
  for (const char* const bad : {"0", "-1", "1.5", "\"70000\"", "[]"}) {
    const auto read = parse_profile(replaced(good, "70000", bad));
    ASSERT_FALSE(read.has_value()) << bad;
    EXPECT_THAT(read.error().message(), HasSubstr("field 'dsa_bytes_min' is"));
  }
}

TEST(Profile, SaysWhatWideRegistersCostIfItIsKnown) {
  Profile profile = sample();
  EXPECT_EQ(parse_profile(to_json(profile))->wide_cost, std::nullopt);
  profile.wide_cost = 1.25;
  const std::string good = to_json(profile);
  EXPECT_EQ(parse_profile(good)->wide_cost, 1.25);
  EXPECT_EQ(parse_profile(replaced(good, "1.25", "1"))->wide_cost, 1.0);
  for (const char* const bad : {"0", "-1.25", "1e300", "\"1\"", "[]", "true"}) {
    const auto read = parse_profile(replaced(good, "1.25", bad));
    ASSERT_FALSE(read.has_value()) << bad;
    EXPECT_THAT(read.error().message(), HasSubstr("field 'wide_cost' is not a number above 0"));
  }
}

/// A profile whose last class has a different variant for cold bytes.
Profile with_cold() {
  Profile profile = sample();
  profile.classes.back().cold_variant = Variant{.store_nontemporal = true};
  profile.cold_probe = {.ticks_min = 71, .ticks_max = 7100};
  return profile;
}

TEST(Profile, AClassMayHaveAnotherVariantForWhatIsCold) {
  const Profile profile = with_cold();
  const std::string good = to_json(profile);
  const auto read = parse_profile(good);
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(read->cold_probe, profile.cold_probe);
  EXPECT_EQ(read->classes.back().variant, std::nullopt);
  EXPECT_EQ(read->classes.back().cold_variant, profile.classes.back().cold_variant);
  EXPECT_EQ(read->classes.front().cold_variant, std::nullopt);
  // The probe's values must be possible, and present.
  for (const auto& [what, with] : {std::pair{"cold_probe", "x"},
                                   {"71,", "0,"},
                                   {"71,", "7100,"},
                                   {"71,", "-1,"},
                                   {"7100", "1048577"},
                                   {"7100", "\"7100\""},
                                   {"ticks_max", "x"}}) {
    const auto bad = parse_profile(replaced(good, what, with));
    ASSERT_FALSE(bad.has_value()) << what << " by " << with;
    EXPECT_THAT(bad.error().message(), HasSubstr("field 'cold_probe"));
  }
  EXPECT_THAT(parse_profile(replaced(good, "\"cold_variant\": ", "\"cold_variant\": 3, \"x\": "))
                  .error()
                  .message(),
              HasSubstr(".cold_variant' is not a string"));
}

/// A profile of kernels only; with 32-byte registers if this processor has them.
Profile with_kernels() {
  Profile profile{.machine = this_machine(), .classes = {}};
  const auto known = [](auto kernel, auto function) {
    return function != nullptr ? std::optional(kernel) : std::nullopt;
  };
  profile.fills = {
      {.bytes_max = 4096, .kernel = std::nullopt},
      {.bytes_max = 8192, .kernel = known(FillKernel::rep_stosb, fill_of(FillKernel::rep_stosb))}};
  profile.comparisons = {
      {.bytes_max = 2048,
       .kernel = known(CompareKernel::ymm, first_difference_of(CompareKernel::ymm))}};
  return profile;
}

TEST(Profile, NamesKernelsThatFillAndCompare) {
  const Profile profile = with_kernels();
  const std::string good = to_json(profile);
  const auto read = parse_profile(good);
  ASSERT_TRUE(read.has_value()) << read.error().message();
  ASSERT_EQ(read->fills.size(), 2U);
  EXPECT_EQ(read->fills[0].kernel, std::nullopt);
  EXPECT_EQ(read->fills[1].bytes_max, 8192U);
  EXPECT_EQ(read->fills[1].kernel, profile.fills[1].kernel);
  ASSERT_EQ(read->comparisons.size(), 1U);
  EXPECT_EQ(read->comparisons[0].kernel, profile.comparisons[0].kernel);
  for (const auto& [what, with, cause] :
       {std::tuple{"\"kernel\": null", "\"kernel\": \"memset\"",
                   "'fills[0].kernel' is 'memset', not one of"},
        {"\"kernel\": null", "\"kernel\": 7", "'fills[0].kernel' is not a string"},
        {"8192", "4096", "'fills[1].bytes_max' is not in ascending order"},
        {"8192", "8191", "power of two"},
        {"\"fills\": ", "\"fills\": 1, \"x\": ", "'fills' is not a list"},
        {"\"comparisons\": ", "\"comparisons\": \"\", \"x\": ", "'comparisons' is not a list"}}) {
    const auto bad = parse_profile(replaced(good, what, with));
    ASSERT_FALSE(bad.has_value()) << with;
    EXPECT_EQ(bad.error().code, Code::corrupt_data);
    EXPECT_THAT(bad.error().message(), HasSubstr(cause));
  }
}

TEST(Profile, ItsKernelsServeTheirLengthsAndLongerOnes) {
  const Profile profile = with_kernels();
  Dispatch<Fill> fills(nullptr);
  Dispatch<FirstDifference> comparisons(nullptr);
  ASSERT_TRUE(use_kernels(profile, fills, comparisons).has_value());
  const Fill fill = fill_of(FillKernel::rep_stosb);
  EXPECT_EQ(fills.function_for(4096), nullptr);
  EXPECT_EQ(fills.function_for(4097), fill);
  EXPECT_EQ(fills.function_for(std::size_t{1} << 30U), fill);
  const FirstDifference find = first_difference_of(CompareKernel::ymm);
  EXPECT_EQ(comparisons.function_for(1024), nullptr);
  EXPECT_EQ(comparisons.function_for(1025), find);
  EXPECT_EQ(comparisons.function_for(std::size_t{1} << 40U), find);
  // A profile without kernels resets them; one of another machine changes nothing.
  Profile other = profile;
  other.fills.clear();
  ++other.machine.family;
  EXPECT_EQ(use_kernels(other, fills, comparisons).error().code, Code::hardware_absent);
  EXPECT_EQ(fills.function_for(8192), fill);
  other.machine = this_machine();
  ASSERT_TRUE(use_kernels(other, fills, comparisons).has_value());
  EXPECT_EQ(fills.function_for(8192), nullptr);
  EXPECT_EQ(comparisons.function_for(2048), find);
}

TEST(Profile, WhatIsWrongIsToldInOneSentence) {
  const std::string good = to_json(sample());
  struct Case {
    std::string text;
    Code code;
    const char* cause;
  };
  const std::vector<Case> cases = {
      {"", Code::corrupt_data, "not valid JSON"},
      {good.substr(0, good.size() / 2), Code::corrupt_data, "truncated"},
      {"[]", Code::corrupt_data, "is not an object"},
      {replaced(good, "headrace-copy-profile", "x"), Code::corrupt_data,
       "not 'headrace-copy-profile'"},
      {replaced(good, "\"version\": 1", "\"version\": 2"), Code::version_mismatch,
       "'schema.version' is 2"},
      {replaced(good, "\"version\": 1", "\"version\": null"), Code::corrupt_data,
       "'schema.version' is missing"},
      {replaced(good, "\"vendor\": \"", "\"vendor\": 7, \"x\": \""), Code::corrupt_data, "machine"},
      {replaced(good, "\"stepping\": ", "\"stepping\": -"), Code::corrupt_data, "machine"},
      {replaced(good, "256", "255"), Code::corrupt_data, "power of two"},
      {replaced(good, "256", "1e400"), Code::corrupt_data, "not valid JSON"},
      {replaced(good, "256", "1048576"), Code::corrupt_data, "ascending"},
      {replaced(good, "\"variant\": ", "\"variant\": 3, \"x\": "), Code::corrupt_data,
       "not a string"},
      {replaced(good, "\"variant\": ", "\"variant\": \"movs everything\", \"x\": "),
       Code::corrupt_data, "'movs' is not understood"},
      {replaced(good, "\"variant\": ",
                "\"variant\": \"zmm load=t store=nt prefetch=none block=4 align=none forward "
                "streams=1\", \"x\": "),
       Code::corrupt_data, "aligned target"},
      {std::string(kProfileBytesMax + 1, ' '), Code::capacity_exceeded, "more than 64 KiB"},
      {std::string(kProfileBytesMax, '['), Code::corrupt_data, "not valid JSON"},
  };
  for (const Case& each : cases) {
    const auto read = parse_profile(each.text);
    ASSERT_FALSE(read.has_value()) << each.cause;
    EXPECT_EQ(read.error().code, each.code) << read.error().message();
    EXPECT_THAT(read.error().message(), HasSubstr(each.cause));
    EXPECT_THAT(read.error().message(), HasSubstr("headrace tune"));
  }
}

TEST(Profile, NoTextMakesTheReaderCrash) {
  Random random(test::seed());
  const std::string good = to_json(sample());
  for (int i = 0; i < 3000; ++i) {
    std::string text = good;
    for (std::uint64_t k = 1 + random.below(4); k > 0; --k) {
      const std::size_t at = random.below(text.size());
      switch (random.below(3)) {
        case 0:
          text[at] = static_cast<char>(random.below(256));
          break;
        case 1:
          text.erase(at, random.below(40));
          break;
        default:
          text.insert(at, good, random.below(good.size()), random.below(40));
          break;
      }
    }
    // A text that parses can be written and read again.
    if (const auto read = parse_profile(text)) {
      EXPECT_TRUE(parse_profile(to_json(*read)).has_value()) << text;
    }
  }
}

TEST(Profile, AnUnreadableFileIsToldWithItsPath) {
  for (const std::string path : {"/absent/profile.json", "/", "/dev/zero"}) {
    const auto read = load_profile(path);
    ASSERT_FALSE(read.has_value()) << path;
    EXPECT_THAT(read.error().message(), HasSubstr("use the copy profile '" + path + "'"));
  }
}

int fallback_count = 0;
void* counting_move(void* target, const void* source, std::size_t byte_count) noexcept {
  ++fallback_count;
  return std::memmove(target, source, byte_count);
}

TEST(Profile, InUseItServesItsClassesAndLongerCopies) {
  if (!variant_of_class(4096)) GTEST_SKIP() << "nothing is generated here";
  const Profile profile{.machine = this_machine(),
                        .classes = {{.bytes_max = 4096, .variant = variant_of_class(4096)},
                                    {.bytes_max = 16384, .variant = variant_of_class(16384)}}};
  static constinit Dispatch dispatch(&counting_move);
  const auto used = use_profile(profile, dispatch);
  ASSERT_TRUE(used.has_value()) << used.error().message();
  const std::vector<char> source(100'000, 'x');
  for (const auto& [byte_count, by_fallback] : {std::pair{0, 1},
                                                {1, 1},
                                                {2048, 1},
                                                {2049, 0},
                                                {4096, 0},
                                                {4097, 1},
                                                {8192, 1},
                                                {8193, 0},
                                                {16384, 0},
                                                {16385, 0},
                                                {100'000, 0}}) {
    std::vector<char> target(source.size());
    fallback_count = 0;
    const auto length = static_cast<std::size_t>(byte_count);
    dispatch.function_for(length)(target.data(), source.data(), length);
    EXPECT_EQ(fallback_count, by_fallback) << byte_count;
    EXPECT_EQ(std::string(target.data(), length), std::string(length, 'x'));
  }
}

TEST(Profile, InUseItsEntryServesWhatTheTableServes) {
  if (!variant_of_class(256)) GTEST_SKIP() << "nothing is generated here";
  static constinit Dispatch dispatch(&counting_move);
  const auto class_of = [](std::uint64_t bytes_max, bool tuned) {
    return SizeClass{.bytes_max = bytes_max,
                     .variant = tuned ? variant_of_class(256) : std::nullopt};
  };
  const std::array<std::vector<SizeClass>, 5> profiles = {{
      {class_of(256, true), class_of(512, false), class_of(1024, true), class_of(2048, true)},
      {class_of(128, true), class_of(256, false), class_of(512, true), class_of(4096, true)},
      {class_of(256, true), class_of(1024, true)},  // A class is missing between them.
      {class_of(1024, true), class_of(2048, true), class_of(4096, false)},
      {class_of(8192, true)},
  }};
  const std::vector<char> source(10'000, 'x');
  for (const auto& classes : profiles) {
    const auto used = use_profile({.machine = this_machine(), .classes = classes}, dispatch);
    ASSERT_TRUE(used.has_value()) << used.error().message();
    EXPECT_NE(dispatch.entry(), &counting_move);
    for (const std::size_t byte_count : {0U, 1U, 64U, 128U, 129U, 255U, 256U, 257U, 511U, 512U,
                                         513U, 1024U, 1025U, 2048U, 2049U, 4097U, 9000U}) {
      std::vector<char> target(source.size());
      fallback_count = 0;
      dispatch.function_for(byte_count)(target.data(), source.data(), byte_count);
      const int by_table = fallback_count;
      std::ranges::fill(target, 'y');
      EXPECT_EQ(dispatch.entry()(target.data(), source.data(), byte_count), target.data());
      // Up to 512 bytes the fallback's classes may be copied inline.
      const bool on_the_spot = byte_count <= 512;
      if (!on_the_spot || fallback_count == by_table + 1) {
        EXPECT_EQ(fallback_count, 2 * by_table) << byte_count;
      }
      EXPECT_EQ(std::string(target.data(), byte_count), std::string(byte_count, 'x'));
      EXPECT_EQ(target[byte_count], 'y');
    }
  }
  const std::vector<SizeClass> all_stay = {class_of(256, false), class_of(512, false)};
  ASSERT_TRUE(use_profile({.machine = this_machine(), .classes = all_stay}, dispatch).has_value());
  EXPECT_EQ(dispatch.entry(), &counting_move);
}

TEST(Profile, OfAnotherMachineIsRefusedAndChangesNothing) {
  Profile profile = sample();
  profile.machine.l3_bytes += 1;
  static constinit Dispatch dispatch(&counting_move);
  const auto used = use_profile(profile, dispatch);
  ASSERT_FALSE(used.has_value());
  EXPECT_EQ(used.error().code, Code::hardware_absent);
  EXPECT_THAT(used.error().message(), HasSubstr("another machine"));
  EXPECT_EQ(dispatch.function_for(4096), &counting_move);
}

TEST(Profile, IsLookedForWhereTheUserSays) {
  ::unsetenv("HEADRACE_PROFILE");
  ::setenv("HOME", "/h", 1);
  ::unsetenv("XDG_CONFIG_HOME");
  EXPECT_EQ(default_profile_path(), "/h/.config/headrace/copy.json");
  ::setenv("XDG_CONFIG_HOME", "/c", 1);
  EXPECT_EQ(default_profile_path(), "/c/headrace/copy.json");
  ::setenv("HEADRACE_PROFILE", "/p.json", 1);
  EXPECT_EQ(default_profile_path(), "/p.json");
  ::setenv("HEADRACE_PROFILE", "none", 1);
  EXPECT_EQ(default_profile_path(), "");
}

// Each in a separate process: the search is done once per process.
using ProfileDeathTest = ::testing::Test;

void say_and_end() {
  const ProfileReport& report = use_default_profile();
  std::fprintf(stderr, "%s %s\n", report.used ? "used" : "not used", report.note.c_str());
  std::vector<char> source(50'000, 'x');
  std::vector<char> target(50'000);
  copy_bytes(std::as_writable_bytes(std::span(target)), std::as_bytes(std::span(source)));
  std::_Exit(source == target ? 0 : 1);
}

TEST(ProfileDeathTest, TheUsersProfileIsUsedOrTheReasonIsKept) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("headrace-profile-" + std::to_string(test::seed()));
  const auto run_with = [&](const std::string& text) {
    std::ofstream(path) << text;
    ::setenv("HEADRACE_PROFILE", path.c_str(), 1);
    say_and_end();
  };
  EXPECT_EXIT(run_with(to_json(sample())), ::testing::ExitedWithCode(0), "^used copies are tuned");
  EXPECT_EXIT(run_with("{"), ::testing::ExitedWithCode(0), "^not used cannot use the copy profile");
  EXPECT_EXIT(
      {
        ::setenv("HEADRACE_PROFILE", (path.string() + "-absent").c_str(), 1);
        say_and_end();
      },
      ::testing::ExitedWithCode(0), "^not used there is no profile");
  // Without a profile that fits, only the copies in which the C library crawls are replaced.
  ASSERT_TRUE(use_profile(detail::untuned_profile()).has_value());
  const std::string guard(detail::note_of_guard());
  use_no_profile();
  Profile others = sample();
  others.machine.model += 1;
  for (const std::string& text : {to_json(others), std::string("{")}) {
    EXPECT_EXIT(run_with(text), ::testing::ExitedWithCode(0), guard + "\n$") << text;
  }
  std::filesystem::remove(path);
}

TEST(ProfileDeathTest, WhereTicksAreForbiddenNobodyLooksWhetherBytesAreCold) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's allocator asks for the time, which the kernel tells by ticks";
#endif
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  if (!variant_of_class(4096)) GTEST_SKIP() << "nothing is generated here";
  EXPECT_EXIT(
      {
        if (::prctl(PR_SET_TSC, PR_TSC_SIGSEGV) != 0) std::_Exit(2);
        const auto used = use_profile(with_cold());
        std::vector<char> source(131072, 'x');
        std::vector<char> target(131072);
        move_bytes(target.data(), source.data(), source.size());
        std::_Exit(used && source == target ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(Profile, ASecondThreadChangesNoTableBeforeTheFirstHasChangedAll) {
  if (!variant_of_class(4096)) GTEST_SKIP() << "nothing is generated here";
  Profile tuned{.machine = this_machine(), .classes = {}};
  tuned.classes.push_back({.bytes_max = 65536, .variant = variant_of_class(4096)});
  tuned.fills.push_back({.bytes_max = 65536, .kernel = FillKernel::rep_stosb});
  use_no_profile();
  const auto is_tuned = [] {
    return detail::default_dispatch.function_for(65536) != &std::memmove ||
           detail::default_fills().function_for(65536) != detail::default_fills().fallback();
  };
  Mutex& mutex = detail::profile_mutex();
  mutex.lock();
  constexpr std::chrono::milliseconds kLong{100};
  auto second = std::async(std::launch::async, [&] { return use_profile(tuned).has_value(); });
  EXPECT_EQ(second.wait_for(kLong), std::future_status::timeout);
  EXPECT_FALSE(is_tuned());
  mutex.unlock();
  EXPECT_TRUE(second.get());
  EXPECT_TRUE(is_tuned());
  mutex.lock();
  auto third = std::async(std::launch::async, use_no_profile);
  EXPECT_EQ(third.wait_for(kLong), std::future_status::timeout);
  EXPECT_TRUE(is_tuned());
  mutex.unlock();
  third.get();
  EXPECT_FALSE(is_tuned());
}

TEST(ProfileDeathTest, WithoutExecutableMemoryCopiesAreTheCLibrarys) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  constexpr int kSetMdwe = 65;  // PR_SET_MDWE, Linux 6.3.
  constexpr int kGetMdwe = 66;
  constexpr unsigned long kRefuseExecGain = 1;
  if (!variant_of_class(4096)) GTEST_SKIP() << "nothing is generated here";
  if (::prctl(kGetMdwe, 0L, 0L, 0L, 0L) < 0) GTEST_SKIP() << "this kernel cannot forbid it";
  EXPECT_EXIT(
      {
        if (::prctl(kSetMdwe, kRefuseExecGain, 0L, 0L, 0L) != 0) std::_Exit(2);
        const auto used = use_profile(sample());
        std::fprintf(stderr, "refused: %s\n", used ? "no" : used.error().message().c_str());
        // Its guard is left out, however slow the C library is.
        if (!use_profile(detail::untuned_profile())) std::_Exit(3);
        std::vector<char> source(50'000, 'x');
        std::vector<char> target(50'000);
        move_bytes(target.data(), source.data(), source.size());
        std::_Exit(!used && source == target ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "refused: cannot .*executable");
}

}  // namespace
}  // namespace headrace::copy
