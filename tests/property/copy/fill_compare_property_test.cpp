// SPDX-License-Identifier: Apache-2.0
// Compares every fill and compare kernel that runs here, and the functions that a profile selects,
// with loops over bytes: all lengths around the kernels' thresholds, all alignments mod 64, guard
// pages, and a difference at every position.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "headrace/base/random.hpp"
#include "headrace/copy/fill_compare.hpp"
#include "support/guarded_buffer.hpp"
#include "support/move_check.hpp"
#include "support/seed.hpp"

namespace headrace::copy::fill_compare_property_test {
namespace {

using test::fill_randomly;
using test::Span;

// Beyond every threshold of the kernels: two lines, then loop steps of 256 bytes.
constexpr std::size_t kSeamBytesMax = 700;
constexpr std::size_t kLargeBytesMax = std::size_t{1} << 20U;

/// A kernel, or the function that a profile selects.
template <typename Kernel, std::size_t kCount, typename FunctionOf>
std::vector<std::optional<Kernel>> subjects(FunctionOf function_of) {
  std::vector<std::optional<Kernel>> all{std::nullopt};
  for (std::size_t i = 0; i < kCount; ++i) {
    const auto kernel = static_cast<Kernel>(i);
    if (function_of(kernel) != nullptr) all.emplace_back(kernel);
  }
  return all;
}

template <typename Instance>
std::string subject_name(const Instance& instance) {
  return instance.param ? std::string(name(*instance.param)) : "dispatch";
}

class FillProperty : public ::testing::TestWithParam<std::optional<FillKernel>> {
 protected:
  /// Fills `target`, inside `room`, and expects all other bytes of `room` unchanged.
  void expect_filled(Span room, Span target) {
    const auto value = static_cast<int>(random_() & 0xffffU);
    const std::byte wanted{static_cast<unsigned char>(value)};
    const std::byte before = ~wanted;
    std::ranges::fill(room, before);
    if (!GetParam()) {
      set_bytes(target, wanted);
    } else {
      // As memset, which uses only the lowest byte.
      ASSERT_EQ(fill_of(*GetParam())(target.data(), value, target.size()), target.data());
    }
    const auto begin = static_cast<std::size_t>(target.data() - room.data());
    for (std::size_t i = 0; i < room.size(); ++i) {
      const bool inside = i >= begin && i < begin + target.size();
      ASSERT_EQ(room[i], inside ? wanted : before) << i << " of " << begin << '+' << target.size();
    }
  }

  Random random_{test::seed()};
};

TEST_P(FillProperty, FillsAreExactAtEveryLengthAndAlignment) {
  const test::GuardedBuffer to(kSeamBytesMax + 128);
  for (std::size_t byte_count = 0; byte_count <= kSeamBytesMax; ++byte_count) {
    // Each length meets four alignments, each alignment a sixteenth of the lengths.
    for (std::size_t i = 0; i < 4; ++i) {
      const std::size_t alignment = (byte_count * 4 + i) % 64;
      ASSERT_NO_FATAL_FAILURE(
          expect_filled(to.bytes(), to.bytes().subspan(32 + alignment, byte_count)));
    }
  }
}

TEST_P(FillProperty, NothingOutsideIsTouched) {
  const test::GuardedBuffer to(kLargeBytesMax);
  const auto fill_at_guards = [&](std::size_t byte_count) {
    ASSERT_NO_FATAL_FAILURE(expect_filled(to.front(byte_count), to.front(byte_count)));
    ASSERT_NO_FATAL_FAILURE(expect_filled(to.back(byte_count), to.back(byte_count)));
  };
  for (std::size_t byte_count = 0; byte_count <= kSeamBytesMax; ++byte_count) {
    ASSERT_NO_FATAL_FAILURE(fill_at_guards(byte_count));
  }
  for (std::size_t bits = 10; bits < 20; ++bits) {
    const std::size_t byte_count = std::size_t{1} << bits;
    ASSERT_NO_FATAL_FAILURE(fill_at_guards(byte_count + random_.below(byte_count)));
  }
}

class CompareProperty : public ::testing::TestWithParam<std::optional<CompareKernel>> {
 protected:
  static std::size_t difference(std::span<const std::byte> left, std::span<const std::byte> right) {
    if (!GetParam()) return first_difference(left, right);
    return first_difference_of(*GetParam())(left.data(), right.data(), left.size());
  }

  /// Equal bytes, then one that differs at each place of `places`, and more behind it.
  static void expect_found(Span left, Span right, std::span<const std::size_t> places) {
    std::ranges::copy(left, right.begin());
    ASSERT_EQ(difference(left, right), left.size());
    for (const std::size_t place : places) {
      right[place] ^= std::byte{0x80};  // Equal in the lower seven bits.
      ASSERT_EQ(difference(left, right), place) << left.size();
      const std::size_t later = std::min(place + 1 + place % 67, left.size() - 1);
      if (later != place) right[later] ^= std::byte{1};
      ASSERT_EQ(difference(left, right), place) << left.size();
      ASSERT_EQ(difference(right, left), place) << left.size();
      if (later != place) right[later] ^= std::byte{1};
      right[place] ^= std::byte{0x80};
    }
  }

  Random random_{test::seed()};
};

TEST_P(CompareProperty, EveryDifferenceIsFoundAtEveryLength) {
  const test::GuardedBuffer one(kSeamBytesMax + 64);
  const test::GuardedBuffer other(kSeamBytesMax + 64);
  fill_randomly(one.bytes(), random_);
  std::vector<std::size_t> places;
  for (std::size_t byte_count = 0; byte_count <= kSeamBytesMax; ++byte_count) {
    ASSERT_NO_FATAL_FAILURE(expect_found(one.bytes().subspan(random_.below(64), byte_count),
                                         other.bytes().subspan(random_.below(64), byte_count),
                                         places));
    places.push_back(byte_count);
  }
}

TEST_P(CompareProperty, NothingOutsideIsRead) {
  const test::GuardedBuffer one(kLargeBytesMax);
  const test::GuardedBuffer other(kLargeBytesMax);
  fill_randomly(one.bytes(), random_);
  const auto compare_at_guards = [&](std::size_t byte_count) {
    const std::array<std::size_t, 3> places{0, byte_count - 1, random_.below(byte_count)};
    for (const Span left : {one.front(byte_count), one.back(byte_count)}) {
      for (const Span right : {other.front(byte_count), other.back(byte_count)}) {
        ASSERT_NO_FATAL_FAILURE(expect_found(left, right, places));
      }
    }
  };
  for (std::size_t byte_count = 1; byte_count <= kSeamBytesMax; ++byte_count) {
    ASSERT_NO_FATAL_FAILURE(compare_at_guards(byte_count));
  }
  for (std::size_t bits = 10; bits < 20; ++bits) {
    const std::size_t byte_count = std::size_t{1} << bits;
    ASSERT_NO_FATAL_FAILURE(compare_at_guards(byte_count + random_.below(byte_count)));
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, FillProperty,
                         ::testing::ValuesIn(subjects<FillKernel, kFillKernelCount>(fill_of)),
                         [](const auto& instance) { return subject_name(instance); });
INSTANTIATE_TEST_SUITE_P(
    Kernels, CompareProperty,
    ::testing::ValuesIn(subjects<CompareKernel, kCompareKernelCount>(first_difference_of)),
    [](const auto& instance) { return subject_name(instance); });

TEST(FillCompareKernels, AreFoundByTheirNamesAndNoOthersAre) {
  for (std::size_t i = 0; i < kFillKernelCount; ++i) {
    const auto kernel = static_cast<FillKernel>(i);
    EXPECT_EQ(find_name<FillKernel>(name(kernel)), kernel);
  }
  for (std::size_t i = 0; i < kCompareKernelCount; ++i) {
    const auto kernel = static_cast<CompareKernel>(i);
    EXPECT_EQ(find_name<CompareKernel>(name(kernel)), kernel);
  }
  EXPECT_FALSE(find_name<FillKernel>("memset"));
  EXPECT_FALSE(find_name<CompareKernel>("rep_stosb"));
}

TEST(FillCompareKernels, NothingMayBeNull) {
  set_bytes({}, std::byte{1});
  EXPECT_EQ(first_difference({}, {}), 0U);
}

}  // namespace
}  // namespace headrace::copy::fill_compare_property_test
