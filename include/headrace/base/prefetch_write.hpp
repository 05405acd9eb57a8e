// SPDX-License-Identifier: Apache-2.0
// Prefetch for a store.
#pragma once

namespace headrace {

/// Prefetches the line of `address` in exclusive state (PREFETCHW, a no-op on x86 processors
/// without it). Unless compiled for processors with PREFETCHW, __builtin_prefetch would fetch a
/// shared line.
inline void prefetch_for_write(const void* address) noexcept {
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
}

}  // namespace headrace
