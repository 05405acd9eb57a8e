// SPDX-License-Identifier: Apache-2.0
// Compares copy_bytes with a loop over bytes: all lengths up to a page's quarter, all alignments
// mod 64, all overlaps, guard pages at both ends. Generated copies: variant_property_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "headrace/base/random.hpp"
#include "headrace/copy/copy.hpp"
#include "support/guarded_buffer.hpp"
#include "support/move_check.hpp"
#include "support/seed.hpp"

namespace headrace::copy {
namespace {

using test::fill_randomly;
using test::kMarginBytes;
using test::Span;

// The longest loop-free copy of an entry has 512 bytes.
constexpr std::size_t kSeamBytesMax = 1100;
constexpr std::size_t kLoopFreeBytesMax = 520;
constexpr std::size_t kLargeBytesMax = std::size_t{2} << 20U;

class CopyProperty : public ::testing::Test {
 protected:
  static ::testing::AssertionResult copies(Span room, Span target,
                                           std::span<const std::byte> source) {
    return test::copies(copy_bytes, room, target, source);
  }
  static ::testing::AssertionResult moves(Span arena, Span shadow, std::size_t target_offset,
                                          std::size_t source_offset, std::size_t byte_count) {
    return test::moves(copy_bytes, arena, shadow, target_offset, source_offset, byte_count);
  }

  Random random_{test::seed()};
};

TEST_F(CopyProperty, CopiesAreExactAtEveryLengthAndAlignment) {
  test::GuardedBuffer from(2 * kSeamBytesMax);
  const test::GuardedBuffer to(2 * kSeamBytesMax);
  fill_randomly(from.bytes(), random_);
  from.forbid_writing();
  for (std::size_t byte_count = 0; byte_count <= kSeamBytesMax; ++byte_count) {
    // Each length meets every alignment of both sides; each pair of alignments meets a sixty-fourth
    // of the lengths.
    for (std::size_t alignment = 0; alignment < 64; ++alignment) {
      const std::size_t target_alignment = (alignment + byte_count) % 64;
      ASSERT_TRUE(copies(to.bytes(),
                         to.bytes().subspan(kMarginBytes + target_alignment, byte_count),
                         from.bytes().subspan(alignment, byte_count)));
    }
  }
}

TEST_F(CopyProperty, LongerCopiesAreExactAtEveryPairOfAlignments) {
  constexpr std::size_t kBytesMax = 8192;
  test::GuardedBuffer from(kBytesMax + 64);
  const test::GuardedBuffer to(kBytesMax + 64 + 2 * kMarginBytes);
  fill_randomly(from.bytes(), random_);
  from.forbid_writing();
  for (std::size_t pair = 0; pair < 64 * 64; ++pair) {
    const std::size_t byte_count = kSeamBytesMax + random_.below(kBytesMax - kSeamBytesMax + 1);
    ASSERT_TRUE(copies(to.bytes(), to.bytes().subspan(kMarginBytes + pair / 64, byte_count),
                       from.bytes().subspan(pair % 64, byte_count)));
  }
}

TEST_F(CopyProperty, NothingOutsideTheBuffersIsTouched) {
  test::GuardedBuffer from(kLargeBytesMax);
  const test::GuardedBuffer to(kLargeBytesMax);
  fill_randomly(from.bytes(), random_);
  from.forbid_writing();
  const auto copy_between_guards = [&](std::size_t byte_count) {
    for (const Span source : {from.front(byte_count), from.back(byte_count)}) {
      for (const Span target : {to.front(byte_count), to.back(byte_count)}) {
        ASSERT_TRUE(copies(to.bytes(), target, source));
      }
    }
  };
  for (std::size_t byte_count = 0; byte_count <= kSeamBytesMax; ++byte_count) {
    ASSERT_NO_FATAL_FAILURE(copy_between_guards(byte_count));
  }
  for (std::size_t bits = 11; bits <= 20; ++bits) {
    const std::size_t byte_count = std::size_t{1} << bits;
    ASSERT_NO_FATAL_FAILURE(copy_between_guards(byte_count + random_.below(byte_count)));
  }
  ASSERT_NO_FATAL_FAILURE(copy_between_guards(kLargeBytesMax));
}

TEST_F(CopyProperty, ShortMovesSurviveEveryOverlap) {
  const test::GuardedBuffer arena(4 * kLoopFreeBytesMax);
  const test::GuardedBuffer shadow(4 * kLoopFreeBytesMax);
  fill_randomly(arena.bytes(), random_);
  std::ranges::copy(arena.bytes(), shadow.bytes().begin());
  for (std::size_t byte_count = 1; byte_count <= kLoopFreeBytesMax; ++byte_count) {
    const std::size_t middle = kLoopFreeBytesMax + kMarginBytes + random_.below(64);
    for (std::size_t distance = 0; distance <= byte_count; ++distance) {
      ASSERT_TRUE(moves(arena.bytes(), shadow.bytes(), middle + distance, middle, byte_count));
      // Overlapping moves spread few values over the arena; fresh values keep errors visible.
      const std::byte fresh{static_cast<unsigned char>(random_())};
      const std::size_t place = middle + random_.below(byte_count);
      arena.bytes()[place] = shadow.bytes()[place] = fresh;
      ASSERT_TRUE(moves(arena.bytes(), shadow.bytes(), middle - distance, middle, byte_count));
    }
    fill_randomly(arena.bytes().subspan(kMarginBytes, 3 * kLoopFreeBytesMax), random_);
    std::ranges::copy(arena.bytes(), shadow.bytes().begin());
  }
}

TEST_F(CopyProperty, MovesWithALoopSurviveOverlapInBothDirections) {
  constexpr std::array<std::size_t, 14> kEdges = {1,  2,   31,  32,  33,  63,  64,
                                                  65, 127, 128, 129, 255, 256, 257};
  const test::GuardedBuffer arena(4 * kSeamBytesMax);
  const test::GuardedBuffer shadow(4 * kSeamBytesMax);
  for (std::size_t byte_count = kLoopFreeBytesMax; byte_count <= kSeamBytesMax; ++byte_count) {
    fill_randomly(arena.bytes(), random_);
    std::ranges::copy(arena.bytes(), shadow.bytes().begin());
    for (std::size_t alignment = 0; alignment < 64; ++alignment) {
      const std::size_t middle = kSeamBytesMax + kMarginBytes + alignment;
      const std::size_t distance =
          alignment < kEdges.size() ? kEdges[alignment] : byte_count - random_.below(byte_count);
      ASSERT_TRUE(moves(arena.bytes(), shadow.bytes(), middle + distance, middle, byte_count));
      ASSERT_TRUE(moves(arena.bytes(), shadow.bytes(), middle - distance, middle, byte_count));
    }
  }
}

TEST_F(CopyProperty, LargeMovesSurviveAnyOverlapAndAlignment) {
  const test::GuardedBuffer arena(3 * kLargeBytesMax);
  const test::GuardedBuffer shadow(3 * kLargeBytesMax);
  fill_randomly(arena.bytes(), random_);
  std::ranges::copy(arena.bytes(), shadow.bytes().begin());
  for (int round = 0; round < 60; ++round) {
    // Lengths and distances of every magnitude, so that near and far overlaps are equally frequent.
    const std::size_t byte_count = 1 + random_.below(kLargeBytesMax >> random_.below(11));
    const std::size_t distance = random_.below(byte_count + 1) >> random_.below(21);
    const std::size_t low = random_.below(kLargeBytesMax - byte_count + 64);
    const bool up = random_.chance(1, 2);
    ASSERT_TRUE(moves(arena.bytes(), shadow.bytes(), up ? low + distance : low,
                      up ? low : low + distance, byte_count));
  }
  EXPECT_TRUE(std::ranges::equal(arena.bytes(), shadow.bytes()));
}

}  // namespace
}  // namespace headrace::copy
