// SPDX-License-Identifier: Apache-2.0
// Copies and fills of any range by the steps of a medium, whole lines past the caches. Templates,
// so that the crash checker's recorder makes the same steps as memory does.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "headrace/base/line.hpp"

namespace headrace::pmem::detail {

/// Calls `whole(offset, byte_count)` for the whole lines of the range and `partial` for what lies
/// before and behind them, each at most once.
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
      // A line that is written in part is better written where it is: in the cache.
      [&](std::size_t at, std::size_t byte_count) {
        memory.store(target + at, source.subspan(at, byte_count));
        memory.flush(target + at, byte_count);
      });
}

/// The lines are streamed from a few that are filled, which stay in the nearest cache.
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
