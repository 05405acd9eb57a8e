// SPDX-License-Identifier: Apache-2.0
// The string instructions of x86-64. Not copy routines: the copy layer handles overlap and dispatch
// (src/copy/kernels/rep_movsb.cpp).
#pragma once

#if defined(__x86_64__)

#include <cstddef>

namespace headrace::platform {

/// `rep movsb`: moves `byte_count` bytes upwards, so `target` must not start inside the source
/// except at its first byte.
///
/// The ABI keeps the direction flag clear, and the "memory" clobber keeps the compiler from holding
/// either range in registers across it. Fast-string stores may become visible out of order among
/// themselves, never after a later store: a later release needs no fence.
inline void rep_movsb(std::byte* target, const std::byte* source, std::size_t byte_count) noexcept {
  asm volatile("rep movsb" : "+D"(target), "+S"(source), "+c"(byte_count) : : "memory");
}

/// `rep stosb`: stores `value` to `byte_count` bytes upwards. Ordered as above.
inline void rep_stosb(std::byte* target, std::byte value, std::size_t byte_count) noexcept {
  asm volatile("rep stosb" : "+D"(target), "+c"(byte_count) : "a"(value) : "memory");
}

}  // namespace headrace::platform

#endif
