// SPDX-License-Identifier: Apache-2.0
// Lists of copies: short ones without a call, and prefetches for the next ones. The constants come
// from the measurements in docs/concepts/copy.md.
#include <cstdint>
#include <cstring>

#include "headrace/copy/copy.hpp"

namespace headrace::copy {
namespace {

/// Longest inline copy. Not 64: from memory, that took a tenth longer.
constexpr std::size_t kInlineBytesMax = 16;
/// Prefetch this many copies ahead, for copies of kAheadBytesMin to kAheadBytesMax: out-of-order
/// execution does not look beyond such a copy, and for longer ones the first lines do not matter.
/// Two lines of each side: with more, cached copies get slower.
constexpr std::size_t kAheadCount = 4;
constexpr std::size_t kAheadBytesMin = 384;
constexpr std::size_t kAheadBytesMax = 16384;

/// Loads everything before it stores anything: the ranges may overlap.
template <typename Word>
[[gnu::always_inline]] inline void move_ends(std::byte* target, const std::byte* source,
                                             std::size_t byte_count) noexcept {
  const std::size_t last = byte_count - sizeof(Word);
  Word head;
  Word tail;
  std::memcpy(&head, source, sizeof head);
  std::memcpy(&tail, source + last, sizeof tail);
  std::memcpy(target, &head, sizeof head);
  std::memcpy(target + last, &tail, sizeof tail);
}

[[gnu::always_inline]] inline void move_short(std::byte* target, const std::byte* source,
                                              std::size_t byte_count) noexcept {
  if (byte_count >= 8) return move_ends<std::uint64_t>(target, source, byte_count);
  if (byte_count >= 4) return move_ends<std::uint32_t>(target, source, byte_count);
  if (byte_count >= 2) return move_ends<std::uint16_t>(target, source, byte_count);
  if (byte_count != 0) *target = *source;
}

/// always_inline: GCC 12 treats a function of only prefetches as free of effects, and drops its
/// call.
[[gnu::always_inline]] inline void ask_for(const CopyItem& item) noexcept {
  if (item.byte_count < kAheadBytesMin || item.byte_count > kAheadBytesMax) return;
  for (std::size_t at = 0; at < 2 * kLineBytes; at += kLineBytes) {
    __builtin_prefetch(item.source + at);
    __builtin_prefetch(item.target + at, 1);
  }
}

}  // namespace

void copy_many(std::span<const CopyItem> items) noexcept {
  const Move move = detail::default_dispatch.entry();
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i + kAheadCount < items.size()) ask_for(items[i + kAheadCount]);
    const CopyItem& item = items[i];
    if (item.byte_count <= kInlineBytesMax) {
      move_short(item.target, item.source, item.byte_count);
    } else {
      move(item.target, item.source, item.byte_count);
    }
  }
}

}  // namespace headrace::copy
