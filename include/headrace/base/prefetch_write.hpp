// SPDX-License-Identifier: Apache-2.0
// A hint for a store that comes soon.
#pragma once

namespace headrace {

/// Asks for the line of `address` to be brought into this core's cache and taken from all others
/// (PREFETCHW). Processors that lack it take it for a no-op; does nothing elsewhere. The compiler's
/// own builtin asks for a shared line unless it compiles for processors that have the instruction.
inline void prefetch_for_write(const void* address) noexcept {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

}  // namespace headrace
