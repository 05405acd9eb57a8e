// SPDX-License-Identifier: Apache-2.0
// The string instruction that fills, of x86-64. Dispatch is the copy layer's.
#pragma once

#if defined(__x86_64__)

#include <cstddef>

namespace headrace::platform {

/// `rep stosb`: stores `value` to `byte_count` bytes upwards.
///
/// The ABI keeps the direction flag clear, and the "memory" clobber keeps the compiler from holding
/// the range in registers across it. Fast-string stores may become visible out of order among
/// themselves, never after a later store: a later release needs no fence.
inline void rep_stosb(std::byte* target, std::byte value, std::size_t byte_count) noexcept {
  asm volatile("rep stosb" : "+D"(target), "+c"(byte_count) : "a"(value) : "memory");
}

}  // namespace headrace::platform

#endif
