// SPDX-License-Identifier: Apache-2.0
// The light half of a pair of barriers; the heavy half is a system call (src/platform/barrier.hpp).
#pragma once

namespace headrace {

/// Keeps the compiler from exchanging what comes before and what comes after; no instruction.
inline void light_barrier() noexcept {
  asm volatile("" : : : "memory");
}

}  // namespace headrace
