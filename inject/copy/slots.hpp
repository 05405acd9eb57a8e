// SPDX-License-Identifier: Apache-2.0
// The slots: pages that hold memcpy, memmove, memset and memcmp of the preload. Each begins as one
// jump to a function of functions.cpp, which is right at any time. The constructor replaces the
// pages by code generated for the profile, so that a call finds compares of its length, inline
// copies and direct jumps in the function that the program calls, and loads nothing but the bytes
// (docs/decisions/0024-the-preload-generates-its-functions.md).
#pragma once

#include <cstddef>

extern "C" {

void* headrace_initial_memcpy(void* target, const void* source, std::size_t byte_count) noexcept;
void* headrace_initial_memmove(void* target, const void* source, std::size_t byte_count) noexcept;
void* headrace_initial_memset(void* target, int value, std::size_t byte_count) noexcept;
int headrace_initial_memcmp(const void* left, const void* right, std::size_t byte_count) noexcept;

// The slots by names that no other library replaces.
void* headrace_slot_memcpy(void* target, const void* source, std::size_t byte_count) noexcept;
void* headrace_slot_memmove(void* target, const void* source, std::size_t byte_count) noexcept;
void* headrace_slot_memset(void* target, int value, std::size_t byte_count) noexcept;
extern std::byte headrace_slots[];

}  // extern "C"

namespace headrace::preload {

inline constexpr std::size_t kMoveSlotBytes = 8192;
inline constexpr std::size_t kOtherSlotBytes = 2048;
/// Offsets: memcpy, memmove, memset and memcmp.
inline constexpr std::size_t kMemmoveSlot = kMoveSlotBytes;
inline constexpr std::size_t kMemsetSlot = 2 * kMoveSlotBytes;
inline constexpr std::size_t kMemcmpSlot = kMemsetSlot + kOtherSlotBytes;
inline constexpr std::size_t kSlotsBytes = kMemcmpSlot + kOtherSlotBytes;

}  // namespace headrace::preload
