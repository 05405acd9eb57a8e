// SPDX-License-Identifier: Apache-2.0
// Move, fill, dualcast and cache flush.
#include <algorithm>

#include "emu/operation/operation.hpp"
#include "emu/operation/rules.hpp"
#include "emu/platform/bytes.hpp"

namespace headrace::emu {

bool Operation::move_piece(Memory& memory, std::size_t byte_count_max) {
  const std::size_t byte_count = std::min(left(), byte_count_max);
  const std::uint64_t offset = downwards_ ? left() - byte_count : done_;
  const Reach reach = memory.copy(descriptor_.dst_addr + offset, descriptor_.src_addr + offset,
                                  byte_count, downwards_, faults());
  done_ += reach.byte_count;
  bytes_read_ += reach.byte_count;
  bytes_written_ += reach.byte_count;
  return end_piece({reach.fault});
}

// Repeats the pattern over a chunk, once. Returns its length.
std::size_t Operation::load_pattern() {
  const bool wide =
      opcode() == dsa::Opcode::fill && (descriptor_.flags & rules::kFlagLongPattern) != 0;
  const std::size_t pattern_bytes = wide ? 16 : 8;
  if (begun_) return pattern_bytes;
  std::array<std::byte, 16> pattern{};
  const bool fill = opcode() == dsa::Opcode::fill;
  bytes::store_little<std::uint64_t>(pattern.data(),
                                     fill ? descriptor_.pattern : descriptor_.comp_pattern);
  for (std::size_t index = 0; index < 8; ++index) {
    pattern[8 + index] = static_cast<std::byte>(descriptor_.op_specific[index]);
  }
  bytes::repeat(first_, std::span(pattern).first(pattern_bytes));
  begun_ = true;
  return pattern_bytes;
}

bool Operation::fill_piece(Memory& memory, std::size_t byte_count_max) {
  const std::size_t phase = done_ % load_pattern();
  const std::size_t byte_count = std::min({left(), byte_count_max, kChunkBytes});
  const Reach reach =
      write(memory, descriptor_.dst_addr + done_, std::span(first_).subspan(phase, byte_count));
  done_ += reach.byte_count;
  return end_piece({reach.fault});
}

bool Operation::dualcast_piece(Memory& memory, std::size_t byte_count_max) {
  const std::size_t byte_count = std::min({left(), byte_count_max, kChunkBytes});
  const auto chunk = std::span(first_).first(byte_count);
  const Reach source = read(memory, chunk, descriptor_.src_addr + done_);
  const Reach one = write(memory, descriptor_.dst_addr + done_, chunk.first(source.byte_count));
  const Reach two = write(memory, descriptor_.dest2 + done_, chunk.first(one.byte_count));
  done_ += two.byte_count;
  return end_piece({two.fault, one.fault, source.fault});
}

bool Operation::flush_piece(Memory& memory, std::size_t byte_count_max) {
  const std::size_t byte_count = std::min(left(), byte_count_max);
  const Reach reach = memory.flush_lines(descriptor_.dst_addr + done_, byte_count, faults());
  done_ += reach.byte_count;
  return end_piece({reach.fault});
}

}  // namespace headrace::emu
