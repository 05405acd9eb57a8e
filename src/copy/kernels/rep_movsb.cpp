// SPDX-License-Identifier: Apache-2.0
// The microcoded string instructions. The move is fast only upwards: with the direction flag set it
// moves single bytes, so memmove handles a target that starts inside the source.
#include <cstdint>
#include <cstring>

#include "headrace/platform/string_move.hpp"
#include "kernels.hpp"

namespace headrace::copy::detail {

void move_rep_movsb(std::byte* target, const std::byte* source, std::size_t byte_count) {
  // Wraps to a large number if the target lies below the source.
  const std::uintptr_t distance =
      reinterpret_cast<std::uintptr_t>(target) - reinterpret_cast<std::uintptr_t>(source);
  if (distance >= byte_count) {
    platform::rep_movsb(target, source, byte_count);
  } else {
    std::memmove(target, source, byte_count);
  }
}

void* set_rep_stosb(void* target, int value, std::size_t byte_count) noexcept {
  platform::rep_stosb(static_cast<std::byte*>(target), static_cast<std::byte>(value), byte_count);
  return target;
}

}  // namespace headrace::copy::detail
