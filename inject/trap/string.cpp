// SPDX-License-Identifier: Apache-2.0
// memcpy, memmove, memset and memcmp of the preload's own, local by its version script: the
// compiler calls them wherever it likes, and the program's may be another preload's, which submits
// from inside them. The device's copies are not made with these (emu/platform/guarded.hpp).
#include <cstddef>
#include <cstdint>

extern "C" {

void* memcpy(void* target, const void* source, std::size_t byte_count) noexcept {
  void* result = target;
  asm volatile("rep movsb" : "+D"(target), "+S"(source), "+c"(byte_count) : : "memory");
  return result;
}

void* memmove(void* target, const void* source, std::size_t byte_count) noexcept {
  const auto distance =
      reinterpret_cast<std::uintptr_t>(target) - reinterpret_cast<std::uintptr_t>(source);
  // As unsigned: also far apart if the target is below.
  if (distance >= byte_count) return memcpy(target, source, byte_count);
  void* result = target;
  auto* to = static_cast<std::byte*>(target) + byte_count - 1;
  const auto* from = static_cast<const std::byte*>(source) + byte_count - 1;
  asm volatile("std\n\trep movsb\n\tcld" : "+D"(to), "+S"(from), "+c"(byte_count) : : "memory");
  return result;
}

void* memset(void* target, int value, std::size_t byte_count) noexcept {
  void* result = target;
  asm volatile("rep stosb" : "+D"(target), "+c"(byte_count) : "a"(value) : "memory");
  return result;
}

int memcmp(const void* left, const void* right, std::size_t byte_count) noexcept {
  const auto* a = static_cast<const unsigned char*>(left);
  const auto* b = static_cast<const unsigned char*>(right);
  for (std::size_t i = 0; i < byte_count; ++i) {
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  }
  return 0;
}

}  // extern "C"
