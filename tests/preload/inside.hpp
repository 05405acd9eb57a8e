// SPDX-License-Identifier: Apache-2.0
// Include first in a program that links the preload's functions: renames them and their calls, so
// that other code, above all a sanitizer's runtime, keeps the C library's functions.
#pragma once

#include <cstddef>

#define HEADRACE_SLOT_PREFIX "headrace_inside_"
#define HEADRACE_INSIDE(name) __asm__("headrace_inside_" #name)

extern "C" {
void* memcpy(void*, const void*, std::size_t) noexcept HEADRACE_INSIDE(memcpy);
void* mempcpy(void*, const void*, std::size_t) noexcept HEADRACE_INSIDE(mempcpy);
void* memmove(void*, const void*, std::size_t) noexcept HEADRACE_INSIDE(memmove);
void* memset(void*, int, std::size_t) noexcept HEADRACE_INSIDE(memset);
int memcmp(const void*, const void*, std::size_t) noexcept HEADRACE_INSIDE(memcmp);
int bcmp(const void*, const void*, std::size_t) noexcept HEADRACE_INSIDE(bcmp);
void* __memcpy_chk(void*, const void*, std::size_t, std::size_t) noexcept
    HEADRACE_INSIDE(memcpy_chk);
void* __mempcpy_chk(void*, const void*, std::size_t, std::size_t) noexcept
    HEADRACE_INSIDE(mempcpy_chk);
void* __memmove_chk(void*, const void*, std::size_t, std::size_t) noexcept
    HEADRACE_INSIDE(memmove_chk);
void* __memset_chk(void*, int, std::size_t, std::size_t) noexcept HEADRACE_INSIDE(memset_chk);
}

#undef HEADRACE_INSIDE
