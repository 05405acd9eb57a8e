// SPDX-License-Identifier: Apache-2.0
// Compare, compare with a pattern, and fill: by the C library where it can, whose vector code is as
// fast as ours would be; only the block that it found different is looked at byte by byte.
#include <algorithm>
#include <array>
#include <cstring>

#include "headrace/copy/fill.hpp"
#include "software.hpp"

namespace headrace::engine::software {
namespace {

/// Compared at once: so much is read twice at a difference, or a fraction of it ...
constexpr std::size_t kBlockBytes = 262144;
/// ... as smaller blocks find the place.
constexpr std::size_t kSmallBlockBytes = 512;
/// A pattern is repeated to a line, so that what is compared lies alike in its lines.
constexpr std::size_t kLineBytes = 64;

/// Where the first difference of two blocks is, which have one.
[[gnu::noinline]] std::size_t difference_in(const std::byte* one, const std::byte* other,
                                            std::size_t byte_count) {
  std::size_t at = 0;
  while (byte_count - at > kSmallBlockBytes &&
         std::memcmp(one + at, other + at, kSmallBlockBytes) == 0) {
    at += kSmallBlockBytes;
  }
  while (byte_count - at >= sizeof(std::uint64_t)) {
    std::uint64_t left = 0;
    std::uint64_t right = 0;
    std::memcpy(&left, one + at, sizeof left);
    std::memcpy(&right, other + at, sizeof right);
    // The lowest byte is the first (little endian, as every machine with this device).
    if (left != right) return at + static_cast<std::size_t>(__builtin_ctzll(left ^ right)) / 8;
    at += sizeof left;
  }
  while (one[at] == other[at]) ++at;
  return at;
}

ShareOutcome found(std::size_t same, std::size_t byte_count) {
  ShareOutcome outcome{.bytes_done = same};
  outcome.result.different = same < byte_count;
  if (outcome.result.different) outcome.result.difference_offset = same;
  return outcome;
}

}  // namespace

std::size_t first_difference(const std::byte* one, const std::byte* other,
                             std::size_t byte_count) noexcept {
  for (std::size_t at = 0; at < byte_count;) {
    const std::size_t block = std::min(kBlockBytes, byte_count - at);
    if (std::memcmp(one + at, other + at, block) != 0) {
      return at + difference_in(one + at, other + at, block);
    }
    at += block;
  }
  return byte_count;
}

ShareOutcome compare(const Operation& operation) noexcept {
  const std::size_t byte_count = operation.byte_count();
  return found(
      first_difference(operation.source().data(), operation.second_source().data(), byte_count),
      byte_count);
}

ShareOutcome compare_pattern(const Operation& operation) noexcept {
  const std::span<const std::byte> source = operation.source();
  const std::array<std::uint64_t, 2> pattern = operation.pattern();
  const std::size_t head = std::min(kLineBytes, source.size());
  std::array<std::uint64_t, kLineBytes / sizeof(std::uint64_t)> line{};
  line.fill(pattern[0]);
  std::size_t same = first_difference(source.data(), std::as_bytes(std::span(line)).data(), head);
  // What begins with a line of the pattern repeats it as far as it is equal to itself, moved by a
  // line.
  if (same == head && source.size() > head) {
    same += first_difference(source.data() + head, source.data(), source.size() - head);
  }
  return found(same, source.size());
}

void fill(const Operation& operation) noexcept {
  const std::span<std::byte> target = operation.target();
  const std::array<std::uint64_t, 2> pattern = operation.pattern();
  const std::uint64_t first_byte = pattern[0] & 0xffU;
  if (pattern[0] == pattern[1] && pattern[0] == first_byte * 0x0101010101010101U) {
    std::memset(target.data(), static_cast<int>(first_byte), target.size());
    return;
  }
  copy::fill_bytes(target, pattern[0], pattern[1]);
}

}  // namespace headrace::engine::software
