// SPDX-License-Identifier: Apache-2.0
// The microcoded fill.
#include "kernels.hpp"

namespace headrace::copy::detail {

void* set_rep_stosb(void* target, int value, std::size_t byte_count) noexcept {
  // The ABI keeps the direction flag clear, and the "memory" clobber keeps the compiler from
  // holding the range in registers across it. Fast-string stores may become visible out of order
  // among themselves, never after a later store: a later release needs no fence.
  void* at = target;
  asm volatile("rep stosb" : "+D"(at), "+c"(byte_count) : "a"(value) : "memory");
  return target;
}

}  // namespace headrace::copy::detail
