// SPDX-License-Identifier: Apache-2.0
// Compare, and compare with a pattern. A difference takes precedence over a later fault.
#include <algorithm>

#include "emu/operation/operation.hpp"
#include "emu/operation/rules.hpp"
#include "emu/platform/bytes.hpp"

namespace headrace::emu {

// `same` of `byte_count` bytes were equal.
bool Operation::take_difference(std::size_t same, std::size_t byte_count) {
  done_ += same;
  return same < byte_count && succeed(rules::kResultDifferent);
}

bool Operation::compare_piece(Memory& memory, std::size_t byte_count_max) {
  const std::size_t byte_count = std::min({left(), byte_count_max, kChunkBytes});
  const Reach one = read(memory, std::span(first_).first(byte_count), descriptor_.src_addr + done_);
  const Reach two =
      read(memory, std::span(second_).first(one.byte_count), descriptor_.src2_addr + done_);
  const std::size_t same = bytes::first_difference(first_.data(), second_.data(), two.byte_count);
  if (take_difference(same, two.byte_count)) return true;
  return end_piece({two.fault, one.fault}, rules::kResultEqual);
}

bool Operation::compare_pattern_piece(Memory& memory, std::size_t byte_count_max) {
  const std::size_t phase = done_ % load_pattern();
  const std::size_t byte_count = std::min({left(), byte_count_max, kChunkBytes});
  const Reach source =
      read(memory, std::span(second_).first(byte_count), descriptor_.src_addr + done_);
  const std::size_t same =
      bytes::first_difference(first_.data() + phase, second_.data(), source.byte_count);
  if (take_difference(same, source.byte_count)) return true;
  return end_piece({source.fault}, rules::kResultEqual);
}

}  // namespace headrace::emu
