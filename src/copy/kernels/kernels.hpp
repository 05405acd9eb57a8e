// SPDX-License-Identifier: Apache-2.0
// The kernels as functions. src/copy/CMakeLists.txt decides which exist, src/copy/copy.cpp which
// may run; a kernel that the processor lacks is an illegal instruction.
#pragma once

#include <cstddef>
#include <cstdint>

#include "headrace/copy/fill_compare.hpp"

namespace headrace::copy::detail {

/// Moves `byte_count` bytes, as memmove does: any length (0 only with non-null pointers), any
/// alignment, any overlap.
///
/// Threading: shared. A kernel's stores, non-temporal ones included, are visible to a thread that
/// sees a later release store of this thread.
using Move = void (*)(std::byte* target, const std::byte* source, std::size_t byte_count);

void move_libc(std::byte* target, const std::byte* source, std::size_t byte_count);
void move_rep_movsb(std::byte* target, const std::byte* source, std::size_t byte_count);
void move_avx2_temporal(std::byte* target, const std::byte* source, std::size_t byte_count);
void move_avx2_nontemporal(std::byte* target, const std::byte* source, std::size_t byte_count);
void move_avx512_temporal(std::byte* target, const std::byte* source, std::size_t byte_count);
void move_avx512_nontemporal(std::byte* target, const std::byte* source, std::size_t byte_count);

/// Repeats a pattern, as fill_bytes does; `byte_count` is at least one register.
using PatternFill = void (*)(std::byte* target, std::size_t byte_count, std::uint64_t low,
                             std::uint64_t high);

void fill_avx2(std::byte* target, std::size_t byte_count, std::uint64_t low, std::uint64_t high);
void fill_avx512(std::byte* target, std::size_t byte_count, std::uint64_t low, std::uint64_t high);

/// Kernels of one family of registers. Constant data, so callable before main.
struct FillKernels {
  Fill plain;
  Fill prefetched;
  Fill touching;
  Fill nontemporal;
};
struct CompareKernels {
  FirstDifference plain;
  FirstDifference prefetched;
};
extern const FillKernels kFillAvx2;
extern const FillKernels kFillAvx512;
extern const CompareKernels kCompareAvx2;
extern const CompareKernels kCompareAvx512;

void* set_rep_stosb(void* target, int value, std::size_t byte_count) noexcept;

}  // namespace headrace::copy::detail
