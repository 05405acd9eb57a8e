// SPDX-License-Identifier: Apache-2.0
// Included before all else of a program that has the functions of the preload inside: they and the
// calls of them have symbols of their own there, so that nothing is replaced for anybody else,
// above all not for the runtime of a sanitizer.
#pragma once

#include <cstddef>

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
