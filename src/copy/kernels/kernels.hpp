// SPDX-License-Identifier: Apache-2.0
// The kernels of fills and comparisons. src/copy/CMakeLists.txt decides which exist, fill.cpp and
// fill_compare.cpp which may run; a kernel that the processor lacks is an illegal instruction.
#pragma once

#include <cstddef>
#include <cstdint>

#include "headrace/copy/fill_compare.hpp"

namespace headrace::copy::detail {

/// Repeats a pattern, as fill_bytes does; `byte_count` is at least one register.
using PatternFill = void (*)(std::byte* target, std::size_t byte_count, std::uint64_t low,
                             std::uint64_t high);

void fill_avx2(std::byte* target, std::size_t byte_count, std::uint64_t low, std::uint64_t high);
void fill_avx512(std::byte* target, std::size_t byte_count, std::uint64_t low, std::uint64_t high);

// Constant data, so callable before main.
extern const Fill set_avx2;
extern const Fill set_avx2_prefetched;
extern const Fill set_avx2_touching;
extern const Fill set_avx2_nontemporal;
extern const Fill set_avx512;
extern const FirstDifference difference_avx2;
extern const FirstDifference difference_avx512;

void* set_rep_stosb(void* target, int value, std::size_t byte_count) noexcept;

}  // namespace headrace::copy::detail
