// SPDX-License-Identifier: Apache-2.0
// Entry point of every C++ test: prints the seed, and exits with 77 if all tests were skipped.
// Names of sources on the command line select their tests (HEADRACE_JOIN_TESTS); a filter goes
// before them.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "support/seed.hpp"

#if defined(__SANITIZE_THREAD__)
// The dynamic linker frees memory that another thread allocated in dlopen, under a lock that
// ThreadSanitizer does not see.
extern "C" [[gnu::visibility("default")]] const char* __tsan_default_suppressions();
extern "C" [[gnu::visibility("default")]] const char* __tsan_default_suppressions() {
  return "race:_dl_close_worker\n";
}
#endif

namespace {

/// The filter for the tests of the source `name`.
std::string tests_of(std::string_view name) {
  std::string filter;
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  for (int suite = 0; suite < all.total_test_suite_count(); ++suite) {
    const ::testing::TestSuite& tests = *all.GetTestSuite(suite);
    for (int test = 0; test < tests.total_test_count(); ++test) {
      const ::testing::TestInfo& info = *tests.GetTestInfo(test);
      if (!std::string_view(info.file()).ends_with("/" + std::string(name))) continue;
      filter += std::string(tests.name()) + "." + info.name() + ":";
    }
  }
  return filter;
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  // A death test starts this program again with a filter of its own.
  if (argc > 1 && ::testing::GTEST_FLAG(filter) == "*") {
    std::string filter;
    for (int source = 1; source < argc; ++source) {
      const std::string tests = tests_of(argv[source]);
      if (tests.empty()) {
        std::fprintf(stderr, "no test is in a source '%s'\n", argv[source]);
        return 1;
      }
      filter += tests;
    }
    ::testing::GTEST_FLAG(filter) = filter;
  }
  const std::uint64_t seed = headrace::test::seed();
  std::printf("HEADRACE_SEED=%llu\n", static_cast<unsigned long long>(seed));
  // A death test re-executes this program, which must draw the same numbers.
  ::setenv("HEADRACE_SEED", std::to_string(seed).c_str(), 0);
  // No profile of this machine is used; tests of profiles name one.
  ::setenv("HEADRACE_PROFILE", "none", 1);
  // rapidcheck reads its seed from this variable.
  ::setenv("RC_PARAMS", ("seed=" + std::to_string(seed)).c_str(), 0);
  const int failed = RUN_ALL_TESTS();
  const ::testing::UnitTest& run = *::testing::UnitTest::GetInstance();
  if (failed == 0 && run.skipped_test_count() > 0 && run.successful_test_count() == 0) return 77;
  return failed;
}
