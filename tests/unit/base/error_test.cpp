// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/error.hpp"

#include <gtest/gtest.h>

#include <cerrno>

#include "headrace/base/check.hpp"
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

TEST(Error, ScopeIsTheLargestThingToMakeAnew) {
  EXPECT_EQ(scope(Code::invalid_argument), Scope::call);
  EXPECT_EQ(scope(Code::corrupt_data), Scope::input);
  EXPECT_EQ(scope(Code::closed), Scope::queue);
  EXPECT_EQ(scope(Code::out_of_memory), Scope::device);
  EXPECT_EQ(scope(Code::permission_denied), Scope::process);
}

TEST(CheckDeathTest, AFailedCheckPrintsTheReasonAndTheValues) {
  const int index = 7;
  EXPECT_DEATH(HEADRACE_CHECK(index < 3, "the index is inside", index),
               "the index is inside \\[7\\]");
}

}  // namespace
}  // namespace headrace
