// SPDX-License-Identifier: Apache-2.0
// Checks that a copy routine does what memmove does and writes nothing else. Not for: choosing
// lengths, places and overlaps, which tests do.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/random.hpp"

namespace headrace::test {

using Span = std::span<std::byte>;
using Copy = std::function<void(Span target, std::span<const std::byte> source)>;

/// Bytes checked on each side of a target.
inline constexpr std::size_t kMarginBytes = 128;
inline constexpr std::byte kBackground{0xA5};

inline void fill_randomly(Span bytes, Random& random) {
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(bytes.data() + at, &word, std::min(sizeof word, bytes.size() - at));
  }
}

/// Reference memmove, one byte at a time. The volatile access keeps it a loop over bytes. Not
/// instrumented by sanitizers, because it takes most of the running time.
__attribute__((no_sanitize("address"), no_sanitize("thread"), no_sanitize("undefined"))) inline void
reference_move(std::byte* target, const std::byte* source, std::size_t byte_count) {
  volatile std::byte* const to = target;
  if (target < source) {
    for (std::size_t i = 0; i < byte_count; ++i) to[i] = source[i];
  } else {
    for (std::size_t i = byte_count; i-- > 0;) to[i] = source[i];
  }
}

inline std::string describe_move(const std::byte* target, std::span<const std::byte> source) {
  const auto alignment = [](const std::byte* address) {
    return reinterpret_cast<std::uintptr_t>(address) % 64;
  };
  return fmt::format("; {} bytes, target alignment {}, source alignment {}, target - source {}",
                     source.size(), alignment(target), alignment(source.data()),
                     target - source.data());
}

/// True if the range, of at most kMarginBytes, is all background.
inline bool is_background(const std::byte* begin, const std::byte* end) {
  static const std::vector<std::byte> kExpected(kMarginBytes, kBackground);
  return std::memcmp(begin, kExpected.data(), static_cast<std::size_t>(end - begin)) == 0;
}

/// Copies to `target`, whose surroundings in `room` must keep their background.
inline ::testing::AssertionResult copies(const Copy& copy, Span room, Span target,
                                         std::span<const std::byte> source) {
  const auto before = static_cast<std::size_t>(target.data() - room.data());
  const std::size_t after = room.size() - before - target.size();
  std::byte* const begin = target.data() - std::min(before, kMarginBytes);
  std::byte* const end = target.data() + target.size() + std::min(after, kMarginBytes);
  std::fill(begin, end, kBackground);
  copy(target, source);
  if (!source.empty() && std::memcmp(target.data(), source.data(), source.size()) != 0) {
    const auto* const bad = std::ranges::mismatch(target, source).in1.base();
    return ::testing::AssertionFailure()
           << "byte " << bad - target.data() << " is wrong" << describe_move(target.data(), source);
  }
  if (!is_background(begin, target.data()) || !is_background(target.data() + target.size(), end)) {
    return ::testing::AssertionFailure()
           << "a byte beside the target was written" << describe_move(target.data(), source);
  }
  return ::testing::AssertionSuccess();
}

/// Moves inside `arena`, which holds the same bytes as `shadow` before and after.
inline ::testing::AssertionResult moves(const Copy& copy, Span arena, Span shadow,
                                        std::size_t target_offset, std::size_t source_offset,
                                        std::size_t byte_count) {
  copy(arena.subspan(target_offset, byte_count), arena.subspan(source_offset, byte_count));
  reference_move(shadow.data() + target_offset, shadow.data() + source_offset, byte_count);
  const std::size_t begin = target_offset - std::min(target_offset, kMarginBytes);
  const std::size_t end = std::min(arena.size(), target_offset + byte_count + kMarginBytes);
  if (std::memcmp(arena.data() + begin, shadow.data() + begin, end - begin) != 0) {
    return ::testing::AssertionFailure()
           << "the arena differs from the reference"
           << describe_move(arena.data() + target_offset, arena.subspan(source_offset, byte_count));
  }
  return ::testing::AssertionSuccess();
}

}  // namespace headrace::test
