// SPDX-License-Identifier: Apache-2.0
// The check of histories against the specification of the cache: accepts valid ones and rejects
// invalid ones. Histories of the real cache: tests/stress/cache.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "support/cache_spec.hpp"

namespace headrace::test {
namespace {

using Kind = CacheSpec::Kind;

RecordedOperation read(std::uint64_t value, std::uint64_t from, std::uint64_t to) {
  return {{.kind = Kind::read, .value = value}, from, to};
}
RecordedOperation begin(std::uint64_t value, std::uint64_t before, std::uint64_t from,
                        std::uint64_t to) {
  return {{.kind = Kind::begin_change, .value = value, .before = before}, from, to};
}
RecordedOperation end(std::uint64_t value, std::uint64_t from, std::uint64_t to) {
  return {{.kind = Kind::end_change, .value = value}, from, to};
}
RecordedOperation write_back(std::uint64_t from, std::uint64_t to) {
  return {{.kind = Kind::write_back}, from, to};
}
RecordedOperation invalidate(std::uint64_t from, std::uint64_t to) {
  return {{.kind = Kind::invalidate}, from, to};
}
bool is_right(const std::vector<RecordedOperation>& history) {
  return !find_violation(history).has_value();
}

TEST(CacheSpec, AChangeThatHasEndedIsSeenByEveryAccessThatBeginsAfterIt) {
  EXPECT_TRUE(is_right({begin(1, 0, 1, 2), end(1, 3, 4), read(1, 5, 6)}));
  EXPECT_FALSE(is_right({begin(1, 0, 1, 2), end(1, 3, 4), read(0, 5, 6)}));
  EXPECT_TRUE(is_right({begin(1, 0, 1, 2), end(1, 3, 5), read(0, 4, 6)})) << "it began before";
}

TEST(CacheSpec, WhatWasSeenIsNotUnseen) {
  EXPECT_TRUE(is_right({begin(1, 0, 1, 2), end(1, 3, 10), read(0, 4, 5), read(1, 6, 7)}));
  EXPECT_FALSE(is_right({begin(1, 0, 1, 2), end(1, 3, 4), begin(2, 1, 5, 6), end(2, 7, 20),
                         write_back(21, 22), read(2, 23, 24), read(1, 25, 26)}));
}

TEST(CacheSpec, ALiveChangeMayBeSeenOrNot) {
  EXPECT_TRUE(is_right({begin(1, 0, 1, 2), read(1, 3, 4), read(0, 5, 6), end(1, 7, 8)}));
  EXPECT_FALSE(is_right({begin(1, 0, 1, 2), read(2, 3, 4)})) << "no operation wrote that";
}

TEST(CacheSpec, OneChangeIsLiveAtATime) {
  EXPECT_FALSE(is_right({begin(1, 0, 1, 2), begin(2, 0, 3, 4), end(1, 5, 6), end(2, 7, 8)}));
}

TEST(CacheSpec, AChangeBeginsWithWhatTheLastOneWrote) {
  EXPECT_FALSE(is_right({begin(1, 0, 1, 2), end(1, 3, 4), begin(2, 0, 5, 6)}));
}

TEST(CacheSpec, InvalidateLosesWhatWasNotWrittenBackAndNothingElse) {
  EXPECT_TRUE(is_right({begin(1, 0, 1, 2), end(1, 3, 4), invalidate(5, 6), read(0, 7, 8)}));
  EXPECT_TRUE(is_right({begin(1, 0, 1, 2), end(1, 3, 4), invalidate(5, 6), read(1, 7, 8)}))
      << "the cache may have written it back";
  EXPECT_FALSE(is_right(
      {begin(1, 0, 1, 2), end(1, 3, 4), write_back(5, 6), invalidate(7, 8), read(0, 9, 10)}));
}

TEST(CacheSpec, AnInvalidatedChangeIsGivenUp) {
  EXPECT_TRUE(is_right({begin(1, 0, 1, 2), invalidate(3, 4), end(1, 5, 6), read(0, 7, 8)}));
  EXPECT_TRUE(is_right({begin(1, 0, 1, 2), invalidate(3, 4), begin(2, 0, 5, 6), end(1, 7, 8),
                        end(2, 9, 10), read(2, 11, 12)}));
}

}  // namespace
}  // namespace headrace::test
