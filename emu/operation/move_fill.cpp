// SPDX-License-Identifier: Apache-2.0
// Memory move.
#include <algorithm>

#include "emu/operation/operation.hpp"

namespace headrace::emu {

bool Operation::advance_move(Memory& memory, std::size_t byte_count_max) {
  const std::size_t byte_count = std::min(left(), std::max<std::size_t>(byte_count_max, 1));
  const std::uint64_t offset = downwards_ ? left() - byte_count : done_;
  const Reach reach = memory.copy(descriptor_.dst_addr + offset, descriptor_.src_addr + offset,
                                  byte_count, downwards_, faults());
  done_ += reach.byte_count;
  bytes_read_ += reach.byte_count;
  bytes_written_ += reach.byte_count;
  if (reach.fault) return fail(*reach.fault);
  return left() == 0 && succeed();
}

}  // namespace headrace::emu
