// SPDX-License-Identifier: Apache-2.0
// How many instructions a call of a program takes with the preload, beside the C library's.
#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "headrace/copy/profile.hpp"
#include "program.hpp"

namespace headrace::preload {
namespace {

/// For a process of this program under valgrind, whose processor is another one.
TEST(Machine, IsPrinted) {
  std::puts(copy::to_json({.machine = copy::this_machine(), .classes = {}}).c_str());
}

/// What valgrind counts.
struct Cost {
  double instructions = 0;
  double loads = 0;
};

std::vector<std::string> under_valgrind(const std::vector<std::string>& words,
                                        const std::filesystem::path& output = "/dev/null") {
  std::vector<std::string> all{"valgrind",
                               "--tool=callgrind",
                               "--cache-sim=yes",
                               "--dump-after=headrace_counted_until_here",
                               "--combine-dumps=yes",
                               "--callgrind-out-file=" + output.string()};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

/// Of one call with each length, in one program: to start valgrind takes longer than to count.
std::vector<Cost> costs_of(const std::string& scenario, const std::vector<std::size_t>& lengths,
                           const Environment& environment, const std::filesystem::path& output) {
  constexpr int kCount = 1000;
  std::vector<std::string> words{HEADRACE_VICTIM, scenario};
  for (const std::size_t length : lengths) words.push_back(std::to_string(length));
  words.push_back(std::to_string(kCount));
  const Ending ending = run(under_valgrind(words, output), environment);
  EXPECT_EQ(ending.exit_code(), 0) << ending.said;
  std::ifstream dumps(output);
  std::vector<Cost> costs;
  for (std::string line; std::getline(dumps, line);) {
    if (!line.starts_with("summary:")) continue;
    std::istringstream numbers(line.substr(8));
    Cost& cost = costs.emplace_back();
    numbers >> cost.instructions >> cost.loads;
    cost.instructions /= kCount;
    cost.loads /= kCount;
  }
  // Before, and of, each length; and the end of the program.
  EXPECT_EQ(costs.size(), 2 * lengths.size() + 1) << ending.said;
  costs.resize(2 * lengths.size() + 1);
  for (std::size_t i = 0; i < lengths.size(); ++i) costs[i] = costs[2 * i + 1];
  costs.resize(lengths.size());
  return costs;
}

/// With a profile for the processor that valgrind makes.
class PreloadInstructions : public ::testing::Test {
 protected:
  void SetUp() override {
    static const Ending here =
        run(under_valgrind({std::filesystem::read_symlink("/proc/self/exe").string(),
                            "--gtest_filter=Machine.IsPrinted"}),
            {});
    if (here.exit_code() == 127) GTEST_SKIP() << "valgrind is not installed";
    const std::size_t begin = here.said.find("{\n");
    ASSERT_NE(begin, std::string::npos) << here.said;
    auto profile = copy::parse_profile(here.said.substr(begin, here.said.rfind('}') + 1 - begin));
    ASSERT_TRUE(profile.has_value()) << profile.error().message() << here.said;
    const auto variant = [](const std::string& through, int block) {
      return *copy::parse_variant(through + " load=t store=t prefetch=none block=" +
                                  std::to_string(block) + " align=target forward streams=1");
    };
    profile_ = *profile;
    profile_.classes = {{.bytes_max = 128, .variant = variant("ymm", 1)},
                        {.bytes_max = 256, .variant = variant("ymm", 2)},
                        {.bytes_max = 512, .variant = {}},
                        {.bytes_max = 1024, .variant = variant("xmm", 1)},
                        {.bytes_max = 2048, .variant = {}}};
  }
  void TearDown() override {
    std::filesystem::remove(path_);
    std::filesystem::remove(counts_path());
  }
  [[nodiscard]] std::string counts_path() const { return path_.string() + ".counts"; }
  [[nodiscard]] Environment with() const {
    return {{"LD_PRELOAD", HEADRACE_PRELOAD}, {"HEADRACE_PROFILE", path_.string()}};
  }
  [[nodiscard]] std::vector<Cost> costs(const std::string& scenario,
                                        const std::vector<std::size_t>& lengths,
                                        const Environment& environment) const {
    return costs_of(scenario, lengths, environment, counts_path());
  }
  /// Of the C library's calls, which no profile changes: all that the tests ask for, in one
  /// program.
  const std::map<std::size_t, Cost>& libc_costs(const std::string& scenario) const {
    static const std::map<std::string, std::vector<std::size_t>> kLengths{
        {"copy_repeatedly", {3, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 32768}},
        {"fill_repeatedly", {1, 3, 5, 8, 16, 32, 64, 128, 256, 512}},
        {"compare_repeatedly", {8, 64, 512}}};
    static std::map<std::string, std::map<std::size_t, Cost>> known;
    auto& found = known[scenario];
    if (found.empty()) {
      const auto& lengths = kLengths.at(scenario);
      const std::vector<Cost> costs_now = costs(scenario, lengths, {});
      for (std::size_t i = 0; i < lengths.size(); ++i) found[lengths[i]] = costs_now[i];
    }
    return found;
  }
  /// Calls take at most so many instructions more than the C library's, and no more loads.
  void expect_more(const std::string& scenario,
                   const std::vector<std::pair<std::size_t, int>>& more_by_length,
                   const Environment& environment) {
    std::ofstream(path_) << copy::to_json(profile_);
    std::vector<std::size_t> lengths;
    for (const auto& [length, more] : more_by_length) lengths.push_back(length);
    const auto& libc = libc_costs(scenario);
    const std::vector<Cost> ours = costs(scenario, lengths, environment);
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const auto& [length, more] = more_by_length[i];
      const Cost& theirs = libc.at(length);
      EXPECT_GT(theirs.instructions, 4) << scenario << length;
      EXPECT_LE(ours[i].instructions, theirs.instructions + more) << scenario << length;
      EXPECT_LE(ours[i].loads, theirs.loads) << scenario << length << ": only the bytes";
    }
  }

  const std::filesystem::path path_ =
      std::filesystem::temp_directory_path() /
      ("headrace-instructions-" + std::to_string(::getpid()) + ".json");
  copy::Profile profile_;
};

TEST_F(PreloadInstructions, ACopyThatStaysTakesFourMoreAndAShortOneOfOursNone) {
  expect_more("copy_repeatedly",
              {{3, 4}, {16, 4}, {32, 4}, {64, 4}, {128, 0}, {256, 0}, {512, 4}, {2048, 4}}, with());
  EXPECT_GT(costs("copy_repeatedly", {1024}, with())[0].instructions,
            libc_costs("copy_repeatedly").at(1024).instructions + 20)
      << "the profile is used";
  const Environment unused{{"LD_PRELOAD", HEADRACE_PRELOAD}, {"HEADRACE_PROFILE", "none"}};
  EXPECT_EQ(run({HEADRACE_VICTIM, "some_lengths"}, unused).exit_code(), 0);
  expect_more("copy_repeatedly", {{64, 4}}, unused);
}

TEST_F(PreloadInstructions, AFillIsInlineUpTo256BytesAndAComparisonTheCLibrarys) {
  expect_more(
      "fill_repeatedly",
      {{1, 4}, {3, 4}, {5, 4}, {8, 4}, {16, 4}, {32, 4}, {64, 4}, {128, 4}, {256, 4}, {512, 4}},
      with());
  expect_more("compare_repeatedly", {{8, 0}, {64, 0}, {512, 0}},
              {{"LD_PRELOAD", HEADRACE_PRELOAD_COPIES}, {"HEADRACE_PROFILE", path_.string()}});
}

TEST_F(PreloadInstructions, ALongCopyThatStaysTakesFourMore) {
  profile_.classes = {{.bytes_max = 4096, .variant = {}},
                      {.bytes_max = 16384, .variant = profile_.classes[0].variant}};
  expect_more("copy_repeatedly", {{64, 4}, {512, 4}, {4096, 4}, {32768, 4}}, with());
}

TEST_F(PreloadInstructions, LongClassesPutNoComparesInFrontOfShortCopies) {
  const auto variant = std::exchange(profile_.classes[3].variant, {});
  for (std::uint64_t bytes_max = 4096; bytes_max <= 1U << 25U; bytes_max *= 2) {
    profile_.classes.push_back({.bytes_max = bytes_max, .variant = {}});
    if (std::countr_zero(bytes_max) % 2 == 0) profile_.classes.back().variant = variant;
  }
  expect_more("copy_repeatedly", {{64, 2}, {128, 0}, {2048, 4}}, with());
}

}  // namespace
}  // namespace headrace::preload
