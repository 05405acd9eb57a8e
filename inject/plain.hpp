// SPDX-License-Identifier: Apache-2.0
// memmove, memset and memcmp without dependencies, for injected libraries: these must not call the
// program's functions, which another preload may have replaced, and may run before symbols are
// resolved (resolvers during relocation, constructors of libraries initialised earlier). Not fast.
// Compile users with -fno-builtin: otherwise a loop may become a call to the function that contains
// it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace::inject {

inline void* plain_move(void* target, const void* source, std::size_t byte_count) noexcept {
  void* const result = target;
  const auto distance =
      reinterpret_cast<std::uintptr_t>(target) - reinterpret_cast<std::uintptr_t>(source);
  // Unsigned: a target below its source counts as far apart.
  if (distance >= byte_count) {
    asm volatile("rep movsb" : "+D"(target), "+S"(source), "+c"(byte_count) : : "memory");
    return result;
  }
  auto* to = static_cast<std::byte*>(target) + byte_count - 1;
  const auto* from = static_cast<const std::byte*>(source) + byte_count - 1;
  asm volatile("std\n\trep movsb\n\tcld" : "+D"(to), "+S"(from), "+c"(byte_count) : : "memory");
  return result;
}

inline void* plain_fill(void* target, int value, std::size_t byte_count) noexcept {
  void* const result = target;
  asm volatile("rep stosb" : "+D"(target), "+c"(byte_count) : "a"(value) : "memory");
  return result;
}

inline int plain_compare(const void* left, const void* right, std::size_t byte_count) noexcept {
  const auto* a = static_cast<const unsigned char*>(left);
  const auto* b = static_cast<const unsigned char*>(right);
  for (std::size_t i = 0; i < byte_count; ++i) {
    if (a[i] != b[i]) return a[i] - b[i];
  }
  return 0;
}

}  // namespace headrace::inject
