// SPDX-License-Identifier: Apache-2.0
// Compares generated copies, every variant of the grid and random ones of the whole space, with a
// loop over bytes, between guard pages, at every kind of overlap. Not for speed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "headrace/base/random.hpp"
#include "headrace/copy/generated.hpp"
#include "headrace/copy/profile.hpp"
#include "support/guarded_buffer.hpp"
#include "support/move_check.hpp"
#include "support/seed.hpp"

namespace headrace::copy {
namespace {

using test::Span;

// Room for two groups of four pages, so that several streams repeat.
constexpr std::size_t kBytesMax = std::size_t{40} << 10U;
constexpr std::size_t kLargeBytes = std::size_t{1} << 20U;

test::Copy copy_by(Move move) {
  return [move](Span target, std::span<const std::byte> source) {
    ASSERT_EQ(move(target.data(), source.data(), source.size()), target.data());
  };
}

/// Any valid variant that this processor can run, in the grid or not.
Variant draw_variant(Random& random) {
  for (;;) {
    Variant variant;
    variant.through = static_cast<Register>(random.below(7));
    if (random.chance(9, 10)) {
      variant.store_nontemporal = random.chance(1, 3);
      variant.prefetch = static_cast<Prefetch>(random.below(5));
      variant.prefetch_target = random.chance(1, 3);
      variant.prefetch_line_count =
          static_cast<std::uint8_t>(random.below(random.chance(1, 2) ? 17 : 65));
      variant.prefetch_distance_lines =
          static_cast<std::uint8_t>(random.below(kPrefetchDistanceLinesMax + 1));
      variant.stream_count = static_cast<std::uint8_t>(1U << random.below(3));
      variant.touch = static_cast<Touch>(random.below(4));
    }
    variant.block_line_count = static_cast<std::uint8_t>(1U << random.below(4));
    variant.align = static_cast<Align>(random.below(2));
    if (check(variant) && can_run(variant)) return variant;
  }
}

class VariantProperty : public ::testing::Test {
 protected:
  void SetUp() override {
    if (variants_for(kBytesMax).empty()) GTEST_SKIP() << "nothing is generated here";
    test::fill_randomly(from_.bytes(), random_);
    from_.forbid_writing();
  }

  /// Lengths at the thresholds of a variant, and random ones of every magnitude.
  std::vector<std::size_t> lengths_for(const Variant& variant) {
    const std::size_t block_bytes = variant.block_line_count * kLineBytes;
    std::vector<std::size_t> lengths = {0,
                                        1,
                                        block_bytes - 1,
                                        block_bytes,
                                        2 * block_bytes,
                                        2 * block_bytes + 1,
                                        2 * block_bytes + 64,
                                        3 * block_bytes + 65};
    for (int i = 0; i < 12; ++i)
      lengths.push_back(1 + random_.below(kBytesMax >> random_.below(7)));
    return lengths;
  }

  void check_apart(const Variant& variant, Move move) {
    for (const std::size_t byte_count : lengths_for(variant)) {
      const std::size_t source_gap = random_.below(65);
      const std::size_t target_gap = random_.below(65);
      const bool at_front = random_.chance(1, 2);
      const auto place = [&](Span room, std::size_t gap) {
        const std::size_t room_left = room.size() - byte_count;
        return room.subspan(
            at_front ? std::min(gap, room_left) : room_left - std::min(gap, room_left), byte_count);
      };
      ASSERT_TRUE(test::copies(copy_by(move), to_.bytes(), place(to_.bytes(), target_gap),
                               place(from_.bytes(), source_gap)))
          << to_text(variant);
    }
  }

  void check_overlapping(const Variant& variant, Move move) {
    for (const std::size_t byte_count : lengths_for(variant)) {
      const std::size_t distance = random_.below(byte_count + 2) >> random_.below(12);
      const std::size_t low = random_.below(64);
      const bool up = random_.chance(1, 2);
      ASSERT_TRUE(test::moves(copy_by(move), arena_.bytes(), shadow_.bytes(),
                              up ? low + distance : low, up ? low : low + distance, byte_count))
          << to_text(variant);
    }
  }

  void check_all(std::span<const Variant> variants) {
    const auto code = GeneratedCode::make(variants);
    ASSERT_TRUE(code.has_value()) << code.error().message();
    ASSERT_EQ(code->moves().size(), variants.size());
    for (std::size_t i = 0; i < variants.size(); ++i) {
      ASSERT_NO_FATAL_FAILURE(check_apart(variants[i], code->moves()[i]));
      test::fill_randomly(arena_.bytes(), random_);
      std::ranges::copy(arena_.bytes(), shadow_.bytes().begin());
      ASSERT_NO_FATAL_FAILURE(check_overlapping(variants[i], code->moves()[i]));
    }
  }

  Random random_{test::seed()};
  test::GuardedBuffer from_{kBytesMax};
  test::GuardedBuffer to_{kBytesMax};
  test::GuardedBuffer arena_{2 * kBytesMax + 128};
  test::GuardedBuffer shadow_{2 * kBytesMax + 128};
};

TEST_F(VariantProperty, VariantsOfTheGridDoWhatMemmoveDoes) {
  // Of each shape the variant without prefetch, and as many of the others as time permits.
  constexpr std::size_t kPrefetching = 3'000;
  std::vector<Variant> grid = variants_for(kBytesMax);
  std::ranges::shuffle(grid, random_);
  const auto prefetching = std::ranges::stable_partition(
      grid, [](const Variant& each) { return each.prefetch_line_count == 0; });
  ASSERT_GT(prefetching.size(), kPrefetching);
  grid.resize(grid.size() - prefetching.size() + kPrefetching);
  check_all(grid);
}

TEST_F(VariantProperty, VariantsBesideTheGridDoWhatMemmoveDoes) {
  std::vector<Variant> variants;
  for (int i = 0; i < 1000; ++i) variants.push_back(draw_variant(random_));
  check_all(variants);
}

TEST_F(VariantProperty, LargeCopiesAreExactToo) {
  test::GuardedBuffer from(kLargeBytes);
  const test::GuardedBuffer to(kLargeBytes);
  test::fill_randomly(from.bytes(), random_);
  from.forbid_writing();
  for (int i = 0; i < 100; ++i) {
    const Variant variant = draw_variant(random_);
    const auto code = GeneratedCode::make(std::span(&variant, 1));
    ASSERT_TRUE(code.has_value()) << code.error().message();
    const std::size_t byte_count = kLargeBytes - random_.below(kLargeBytes / 2);
    ASSERT_TRUE(test::copies(copy_by(code->moves()[0]), to.bytes(), to.back(byte_count),
                             from.front(byte_count)))
        << to_text(variant);
  }
}

TEST_F(VariantProperty, TextNamesAVariantAndNothingElse) {
  for (int i = 0; i < 1000; ++i) {
    const Variant variant = draw_variant(random_);
    const auto read = parse_variant(to_text(variant));
    ASSERT_TRUE(read.has_value()) << read.error().message();
    EXPECT_EQ(*read, variant) << to_text(variant);
    // A text that is truncated or changed in one place is refused, or is another variant.
    std::string text = to_text(variant);
    text[random_.below(text.size())] = static_cast<char>(random_.below(256));
    if (const auto other = parse_variant(text)) {
      EXPECT_EQ(to_text(*other), text);
    }
    EXPECT_FALSE(parse_variant(to_text(variant).substr(0, random_.below(60))));
  }
}

TEST_F(VariantProperty, TheGridNamesEachVariantOnce) {
  for (const std::size_t byte_count : {1U, 129U, 4097U, 1U << 20U}) {
    std::vector<std::string> texts;
    for (const Variant& variant : variants_for(byte_count)) texts.push_back(to_text(variant));
    std::ranges::sort(texts);
    EXPECT_EQ(std::ranges::adjacent_find(texts), texts.end()) << byte_count;
  }
}

int fallback_count = 0;
void* counting_move(void* target, const void* source, std::size_t byte_count) noexcept {
  ++fallback_count;
  return std::memmove(target, source, byte_count);
}

TEST_F(VariantProperty, ShortAndOverlappingRangesGoToTheFallback) {
  for (int i = 0; i < 100; ++i) {
    const Variant variant = draw_variant(random_);
    const auto code = GeneratedCode::make(std::span(&variant, 1), counting_move);
    ASSERT_TRUE(code.has_value()) << code.error().message();
    const Move move = code->moves()[0];
    std::byte* const room = arena_.bytes().data();
    fallback_count = 0;
    move(room, from_.bytes().data(), kBytesMax);
    EXPECT_EQ(fallback_count, 0) << to_text(variant);
    move(room, room + 1, kBytesMax);
    move(room + 1, room, kBytesMax);
    move(room, from_.bytes().data(), 0);
    EXPECT_EQ(fallback_count, 3) << to_text(variant);
  }
}

/// Every byte comes from memory, or none does.
constexpr ColdProbe kAlwaysCold{.ticks_min = 1, .ticks_max = UINT32_MAX};
constexpr ColdProbe kNeverCold{.ticks_min = UINT32_MAX - 1, .ticks_max = UINT32_MAX};

TEST_F(VariantProperty, TwoCopiesBehindOneFunctionDoWhatMemmoveDoes) {
  for (const ColdProbe& probe : {kAlwaysCold, kNeverCold}) {
    for (int i = 0; i < 100; ++i) {
      const Routine routine{
          .warm = random_.chance(1, 4) ? std::nullopt : std::optional(draw_variant(random_)),
          .cold = draw_variant(random_)};
      const auto code = GeneratedCode::make(std::span(&routine, 1), probe);
      ASSERT_TRUE(code.has_value()) << code.error().message();
      ASSERT_NO_FATAL_FAILURE(check_apart(*routine.cold, code->moves()[0]));
      test::fill_randomly(arena_.bytes(), random_);
      std::ranges::copy(arena_.bytes(), shadow_.bytes().begin());
      ASSERT_NO_FATAL_FAILURE(check_overlapping(*routine.cold, code->moves()[0]));
    }
  }
}

TEST_F(VariantProperty, TheProbeDecidesWhichOfTwoCopiesServes) {
  const Routine routine{.warm = std::nullopt, .cold = Variant{.through = Register::word}};
  for (const bool cold : {false, true}) {
    const auto code =
        GeneratedCode::make(std::span(&routine, 1), cold ? kAlwaysCold : kNeverCold, counting_move);
    ASSERT_TRUE(code.has_value()) << code.error().message();
    fallback_count = 0;
    for (int i = 0; i < 10; ++i) {
      code->moves()[0](to_.bytes().data(), from_.bytes().data(), kBytesMax);
    }
    EXPECT_EQ(fallback_count, cold ? 0 : 10);
    // Too short to be probed.
    fallback_count = 0;
    code->moves()[0](to_.bytes().data(), from_.bytes().data(), 4095);
    EXPECT_EQ(fallback_count, 1);
  }
}

/// Permissions of the mapping that holds `address`, as /proc/self/maps writes them.
std::string permissions_at(const void* address) {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    const std::uintptr_t begin = std::stoull(line, nullptr, 16);
    const std::uintptr_t end = std::stoull(line.substr(line.find('-') + 1), nullptr, 16);
    const auto wanted = reinterpret_cast<std::uintptr_t>(address);
    if (begin <= wanted && wanted < end) return line.substr(line.find(' ') + 1, 4);
  }
  return "none";
}

TEST_F(VariantProperty, ATableByAProfileIsExactAtEveryLength) {
  Profile profile{.machine = this_machine(), .classes = {}};
  for (std::uint64_t bytes_max = 2; bytes_max <= kBytesMax; bytes_max *= 2) {
    profile.classes.push_back({.bytes_max = bytes_max, .variant = draw_variant(random_)});
  }
  static constinit Dispatch dispatch(&counting_move);
  const auto used = use_profile(profile, dispatch);
  ASSERT_TRUE(used.has_value()) << used.error().message();
  const test::Copy copy = [](Span target, std::span<const std::byte> source) {
    dispatch.function_for(source.size())(target.data(), source.data(), source.size());
  };
  for (std::size_t byte_count = 0; byte_count <= 2200; ++byte_count) {
    ASSERT_TRUE(test::copies(copy, to_.bytes(), to_.back(byte_count), from_.back(byte_count)));
    ASSERT_TRUE(test::copies(copy_by(dispatch.entry()), to_.bytes(), to_.back(byte_count),
                             from_.back(byte_count)));
  }
  for (int i = 0; i < 200; ++i) {
    const std::size_t byte_count = random_.below(kBytesMax);
    ASSERT_TRUE(test::copies(copy, to_.bytes(), to_.front(byte_count), from_.back(byte_count)));
  }
}

TEST_F(VariantProperty, AnEntryIsExactWhicheverClassesStay) {
  // The C library's memmove is in reach of a jump; a function of this program may not be.
  static constinit Dispatch near(&std::memmove);
  static constinit Dispatch far(&counting_move);
  for (int i = 0; i < 8; ++i) {
    Profile profile{.machine = this_machine(), .classes = {}};
    for (std::uint64_t bytes_max = random_.chance(1, 4) ? 128 : 256; bytes_max <= 4096;
         bytes_max *= 2) {
      profile.classes.push_back({.bytes_max = bytes_max, .variant = {}});
      if (random_.chance(1, 2)) profile.classes.back().variant = draw_variant(random_);
    }
    for (Dispatch<Move>* dispatch : {&near, &far}) {
      ASSERT_TRUE(use_profile(profile, *dispatch).has_value());
      const test::Copy copy = copy_by(dispatch->entry());
      for (std::size_t byte_count = 0; byte_count <= 2200; byte_count += 1 + random_.below(5)) {
        ASSERT_TRUE(test::copies(copy, to_.bytes(), to_.back(byte_count), from_.back(byte_count)))
            << to_json(profile);
        const std::size_t distance = random_.below(byte_count + 2);
        const bool up = random_.chance(1, 2);
        std::ranges::copy(arena_.bytes(), shadow_.bytes().begin());
        ASSERT_TRUE(test::moves(copy, arena_.bytes(), shadow_.bytes(), up ? distance : 0,
                                up ? 0 : distance, byte_count))
            << to_json(profile);
      }
    }
  }
}

/// Counts prefetches in a variant's code, by two bytes that no other instruction has here.
std::size_t prefetches_in(const Variant& variant) {
  const auto code = GeneratedCode::make(std::span(&variant, 1));
  EXPECT_TRUE(code.has_value()) << code.error().message();
  const auto* const begin = reinterpret_cast<const unsigned char*>(code->moves()[0]);
  std::size_t count = 0;
  for (std::size_t at = 0; at + 1 < code->code_bytes(); ++at) {
    if (begin[at] == 0x0F && (begin[at + 1] == 0x18 || begin[at + 1] == 0x0D)) ++count;
  }
  return count;
}

TEST_F(VariantProperty, PagesAreTouchedAsTheVariantSays) {
  // Registers whose encodings do not have these bytes.
  for (const bool past : {false, true}) {
    Variant variant{.through = Register::xmm, .store_nontemporal = past};
    EXPECT_EQ(prefetches_in(variant), 0U);
    variant.touch = Touch::source;
    EXPECT_EQ(prefetches_in(variant), 1U);
    variant.touch = Touch::target;
    EXPECT_EQ(prefetches_in(variant), 1U);
    variant.touch = Touch::both;
    EXPECT_EQ(prefetches_in(variant), 2U);
    variant.stream_count = 4;
    EXPECT_EQ(prefetches_in(variant), 8U);
  }
}

TEST_F(VariantProperty, TextSaysWhatIsTouchedOnlyIfSomethingIs) {
  Variant variant;
  EXPECT_EQ(to_text(variant).find("touch"), std::string::npos);
  variant.touch = Touch::both;
  const std::string text = to_text(variant);
  EXPECT_TRUE(text.ends_with(" touch=both")) << text;
  const auto read = parse_variant(text);
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(*read, variant);
  // Equal variants have equal texts, so a variant without touch must omit the word.
  EXPECT_FALSE(parse_variant(to_text(Variant{}) + " touch=none").has_value());
}

TEST_F(VariantProperty, WhatOlderProfilesMayHaveIsRefusedByName) {
  for (const auto& [old_word, word] : {std::pair{"load=t", "load=nt"},
                                       {"forward", "backward"},
                                       {"align=target", "align=source"}}) {
    std::string text = to_text(Variant{});
    text.replace(text.find(old_word), std::string_view(old_word).size(), word);
    const auto read = parse_variant(text);
    ASSERT_FALSE(read.has_value()) << text;
    EXPECT_EQ(read.error().code, Code::unsupported);
    EXPECT_NE(read.error().message().find(word), std::string::npos) << read.error().message();
    EXPECT_NE(read.error().message().find("headrace tune"), std::string::npos);
  }
}

TEST_F(VariantProperty, CodeIsExecutableAndNotWritable) {
  const Variant variant = draw_variant(random_);
  const auto code = GeneratedCode::make(std::span(&variant, 1));
  ASSERT_TRUE(code.has_value()) << code.error().message();
  EXPECT_EQ(permissions_at(reinterpret_cast<const void*>(code->moves()[0])), "r-xp");
}

TEST_F(VariantProperty, ACopyByMmxLeavesTheX87Empty) {
  const Variant variant{.through = Register::mmx};
  const auto code = GeneratedCode::make(std::span(&variant, 1));
  ASSERT_TRUE(code.has_value()) << code.error().message();
  const std::vector<std::byte> source(10'000, std::byte{1});
  std::vector<std::byte> target(source.size());
  code->moves()[0](target.data(), source.data(), source.size());
  // Uses the x87: if its registers were clobbered, the result would be NaN.
  volatile long double half = 1.5L;
  EXPECT_EQ(static_cast<double>(half * half), 2.25);
  EXPECT_EQ(target, source);
}

TEST_F(VariantProperty, WhatCannotBeCombinedIsRefusedWithAReason) {
  const std::array<std::pair<Variant, const char*>, 5> wrong = {{
      {{.store_nontemporal = true, .align = Align::none}, "aligned target"},
      {{.prefetch_line_count = 4}, "a type and a number"},
      {{.prefetch = Prefetch::t0, .prefetch_line_count = 2}, "whole blocks"},
      {{.block_line_count = 3}, "1, 2, 4 or 8"},
      {{.through = Register::rep_movsb, .block_line_count = 1, .touch = Touch::source},
       "touch no pages"},
  }};
  for (const auto& [variant, reason] : wrong) {
    const auto code = GeneratedCode::make(std::span(&variant, 1));
    ASSERT_FALSE(code.has_value());
    EXPECT_EQ(code.error().code, Code::invalid_argument);
    EXPECT_NE(code.error().message().find(reason), std::string::npos) << code.error().message();
  }
}

}  // namespace
}  // namespace headrace::copy
