// SPDX-License-Identifier: Apache-2.0
// Copies and fills of any range through a medium, whole lines with non-temporal stores. Templates,
// so that the crash checker's recorder takes the same steps as memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "headrace/base/line.hpp"

namespace headrace::pmem::detail {

/// Calls `whole(offset, byte_count)` for the whole lines of the range, and `partial` for the parts
/// before and after them; each part at most once.
template <typename Whole, typename Partial>
void split_into_lines(const std::byte* target, std::size_t byte_count, Whole whole,
                      Partial partial) {
  const std::size_t offset = reinterpret_cast<std::uintptr_t>(target) % kLineBytes;
  const std::size_t before = (kLineBytes - offset) % kLineBytes;
  if (byte_count < before + kLineBytes) {
    if (byte_count != 0) partial(std::size_t{0}, byte_count);
    return;
  }
  const std::size_t end = byte_count - (byte_count - before) % kLineBytes;
  if (before != 0) partial(std::size_t{0}, before);
  whole(before, end - before);
  if (end != byte_count) partial(end, byte_count - end);
}

template <typename Memory>
void copy_range(Memory& memory, std::byte* target, std::span<const std::byte> source) {
  split_into_lines(
      target, source.size(),
      [&](std::size_t at, std::size_t byte_count) {
        memory.stream(target + at, source.subspan(at, byte_count));
      },
      // Partial lines are written in the cache and flushed.
      [&](std::size_t at, std::size_t byte_count) {
        memory.store(target + at, source.subspan(at, byte_count));
        memory.flush(target + at, byte_count);
      });
}

/// Streams the lines from a small filled buffer, which stays in the L1 cache.
template <typename Memory>
void fill_range(Memory& memory, std::byte* target, std::byte value, std::size_t byte_count) {
  alignas(kLineBytes) std::array<std::byte, 16 * kLineBytes> lines;
  std::fill_n(lines.begin(), std::min(lines.size(), byte_count), value);
  split_into_lines(
      target, byte_count,
      [&](std::size_t at, std::size_t whole_bytes) {
        for (const std::size_t end = at + whole_bytes; at < end; at += lines.size()) {
          memory.stream(target + at, std::span(lines).first(std::min(lines.size(), end - at)));
        }
      },
      [&](std::size_t at, std::size_t part_bytes) {
        memory.store(target + at, std::span(lines).first(part_bytes));
        memory.flush(target + at, part_bytes);
      });
}

}  // namespace headrace::pmem::detail
