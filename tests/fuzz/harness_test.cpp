// SPDX-License-Identifier: Apache-2.0
// Runs the fuzzer's harness for a few seconds with random bytes, for compilers without libFuzzer;
// and with a corpus of inputs that once caused a failure or nearly did.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "harness.hpp"
#include "headrace/base/random.hpp"
#include "support/seed.hpp"
#include "support/test_data.hpp"

namespace headrace::test {
namespace {

using Subject = Broken (*)(std::span<const std::uint8_t>);

struct Named {
  const char* name;
  Subject subject;
  int rounds;
};

class Fuzz : public ::testing::TestWithParam<Named> {};

/// Mostly zeros, or bytes that are valid in many fields: pure noise would be refused at once.
std::vector<std::uint8_t> any_input(Random& random) {
  std::vector<std::uint8_t> input(16 + random.below(900));
  const std::uint64_t style = random.below(3);
  constexpr std::uint8_t kOpcodes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 18, 19, 20, 21, 32};
  for (std::uint8_t& value : input) {
    switch (random.below(style == 0 ? 2 : 6)) {
      case 0:
        value = static_cast<std::uint8_t>(random());
        break;
      case 1:
        value = kOpcodes[random.below(std::size(kOpcodes))];
        break;
      case 2:
        value = static_cast<std::uint8_t>(1U << random.below(8));
        break;
      default:
        break;
    }
  }
  return input;
}

TEST_P(Fuzz, RandomBytesBreakNoPromise) {
  Random random(seed());
  for (int round = 0; round < GetParam().rounds; ++round) {
    const auto input = any_input(random);
    const Broken broken = GetParam().subject(input);
    ASSERT_FALSE(broken) << *broken << " in round " << round;
  }
}

TEST_P(Fuzz, TheCorpusBreaksNoPromise) {
  const std::filesystem::path corpus(test::test_data() + "/fuzz/corpus");
  for (const auto& entry : std::filesystem::directory_iterator(corpus / GetParam().name)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::vector<std::uint8_t> input{std::istreambuf_iterator<char>(file), {}};
    const Broken broken = GetParam().subject(input);
    EXPECT_FALSE(broken) << *broken << " from " << entry.path();
  }
}

INSTANTIATE_TEST_SUITE_P(Subjects, Fuzz,
                         ::testing::Values(Named{"operation", throw_at_operation, 10'000}
#ifdef HEADRACE_HARNESS_DEVICE
                                           ,
                                           Named{"device", throw_at_device, 300}
#endif
                                           ),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace headrace::test
