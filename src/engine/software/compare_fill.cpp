// SPDX-License-Identifier: Apache-2.0
// Compare, compare with a pattern, and fill, by the variant that the profile names for the length.
#include <algorithm>
#include <array>

#include "headrace/copy/fill.hpp"
#include "headrace/copy/fill_compare.hpp"
#include "software.hpp"

namespace headrace::engine::software {
namespace {

/// The pattern is repeated to a cache line.
constexpr std::size_t kLineBytes = 64;

Completion found(std::size_t same, std::size_t byte_count) {
  Completion outcome{.bytes_done = same};
  outcome.result.different = same < byte_count;
  if (outcome.result.different) outcome.result.difference_offset = same;
  return outcome;
}

}  // namespace

Completion compare(const Operation& operation) noexcept {
  return found(copy::first_difference(operation.source(), operation.second_source()),
               operation.byte_count());
}

Completion compare_pattern(const Operation& operation) noexcept {
  const std::span<const std::byte> source = operation.source();
  const std::array<std::uint64_t, 2> pattern = operation.pattern();
  const std::size_t head = std::min(kLineBytes, source.size());
  std::array<std::uint64_t, kLineBytes / sizeof(std::uint64_t)> line{};
  line.fill(pattern[0]);
  std::size_t same =
      copy::first_difference(source.first(head), std::as_bytes(std::span(line)).first(head));
  // Bytes that begin with a line of the pattern repeat it as far as they equal themselves shifted
  // by one line.
  if (same == head && source.size() > head) {
    same += copy::first_difference(source.subspan(head), source.first(source.size() - head));
  }
  return found(same, source.size());
}

void fill(const Operation& operation) noexcept {
  const std::span<std::byte> target = operation.target();
  const std::array<std::uint64_t, 2> pattern = operation.pattern();
  const std::uint64_t first_byte = pattern[0] & 0xffU;
  if (pattern[0] == pattern[1] && pattern[0] == first_byte * 0x0101010101010101U) {
    copy::set_bytes(target, static_cast<std::byte>(first_byte));
    return;
  }
  copy::fill_bytes(target, pattern[0], pattern[1]);
}

}  // namespace headrace::engine::software
