// SPDX-License-Identifier: Apache-2.0
// The crash check passes the library's rings and catches every broken one.
#include "headrace/lab/ring_check.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>

#include "support/seed.hpp"

namespace headrace::pmem::lab {
namespace {

class Ring : public ::testing::TestWithParam<CheckSubject> {};

TEST_P(Ring, IsSoundOrCaught) {
  const CheckSubject& subject = GetParam();
  // Sound rings are tried as hard as broken ones: with a sixteenth of the states a resurrected
  // record was missed. The seed differs in every run of the tests.
  const CheckOptions options{.entry_count = 6, .states_per_moment_max = 1024, .seed = test::seed()};
  const Result<CheckReport> report = check_subject(subject.name, options);
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report->states_bad == 0, subject.sound) << report->first_bad;
  EXPECT_EQ(report->first_bad.empty(), subject.sound);
  if (subject.sound) {
    EXPECT_GT(report->states_tried, 10'000U);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Ring, ::testing::ValuesIn(check_subjects()), [](const auto& tested) {
  std::string text = tested.param.name;
  std::ranges::replace(text, '-', '_');
  return text;
});

TEST(Check, TheGalleryIsLarge) {
  EXPECT_GE(std::ranges::count(check_subjects(), false, &CheckSubject::sound), 12);
}

TEST(Check, AReportNamesTheStoresThatWereLost) {
  const Result<CheckReport> report = check_subject("naive-missing-flush");
  ASSERT_TRUE(report.has_value());
  EXPECT_NE(report->first_bad.find("lost: enqueue"), std::string::npos) << report->first_bad;
}

TEST(Check, TheOptimisedRingWritesItsEntriesByWholeBlocks) {
  CheckOptions options{.entry_count = 6, .states_per_moment_max = 1};
  options.progress = [](double) { return false; };
  const Result<CheckReport> report = check_subject("optimised", options);
  ASSERT_TRUE(report.has_value());
  for (const std::string& detail : report->waste.details) {
    EXPECT_EQ(detail.find("entry"), std::string::npos) << detail;
  }
}

TEST(Check, WhatCannotBeCheckedIsRefused) {
  EXPECT_EQ(check_subject("perfect").error().code, Code::not_found);
  EXPECT_EQ(check_subject("naive", {.entry_count = 0}).error().code, Code::invalid_argument);
  EXPECT_EQ(check_subject("naive", {.entry_count = 1001}).error().code, Code::invalid_argument);
}

TEST(Check, StopsWhenItIsTold) {
  CheckOptions options{.entry_count = 6, .states_per_moment_max = 1};
  options.progress = [](double) { return false; };
  const Result<CheckReport> report = check_subject("clwb", options);
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->runs, 2U);
}

}  // namespace
}  // namespace headrace::pmem::lab
