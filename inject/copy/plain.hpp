// SPDX-License-Identifier: Apache-2.0
// memmove, memset and memcmp without anything: for the time before the C library's are known.
// Programs call us then: resolvers while libraries are being relocated, constructors of libraries
// that are initialised before this one. Not fast.
#pragma once

#include <cstddef>

namespace headrace::preload {

void* plain_move(void* target, const void* source, std::size_t byte_count) noexcept;
void* plain_fill(void* target, int value, std::size_t byte_count) noexcept;
int plain_compare(const void* left, const void* right, std::size_t byte_count) noexcept;

}  // namespace headrace::preload
