// SPDX-License-Identifier: Apache-2.0
// The preload's private memcpy, memmove, memset and memcmp, local by its version script: the
// compiler may emit calls to them, and the program's may be another preload's, which submits from
// them. The device does not copy with these (emu/platform/guarded.hpp).
#include "inject/plain.hpp"

extern "C" {

void* memcpy(void* target, const void* source, std::size_t byte_count) noexcept {
  return headrace::inject::plain_move(target, source, byte_count);
}
void* memmove(void* target, const void* source, std::size_t byte_count) noexcept {
  return headrace::inject::plain_move(target, source, byte_count);
}
void* memset(void* target, int value, std::size_t byte_count) noexcept {
  return headrace::inject::plain_fill(target, value, byte_count);
}
int memcmp(const void* left, const void* right, std::size_t byte_count) noexcept {
  return headrace::inject::plain_compare(left, right, byte_count);
}

}  // extern "C"
