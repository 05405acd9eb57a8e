// SPDX-License-Identifier: Apache-2.0
// Entry point of every C++ test: prints the seed, and exits with 77 if all tests were skipped.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "support/seed.hpp"

#if defined(__SANITIZE_THREAD__)
// The dynamic linker frees memory that another thread allocated in dlopen, under a lock that
// ThreadSanitizer does not see.
extern "C" [[gnu::visibility("default")]] const char* __tsan_default_suppressions();
extern "C" [[gnu::visibility("default")]] const char* __tsan_default_suppressions() {
  return "race:_dl_close_worker\n";
}
#endif

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
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
