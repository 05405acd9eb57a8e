// SPDX-License-Identifier: Apache-2.0
// The light half of an asymmetric barrier; the heavy half is a system call
// (src/platform/barrier.hpp).
#pragma once

namespace headrace {

/// Prevents the compiler from reordering memory accesses across it; emits no instruction.
inline void light_barrier() noexcept {
  asm volatile("" : : : "memory");
}

}  // namespace headrace
