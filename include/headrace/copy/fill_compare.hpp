// SPDX-License-Identifier: Apache-2.0
// Filling with one byte and finding the first difference: the C library's memset and memcmp, and
// kernels that a profile may name instead. Not for longer patterns (fill.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "headrace/base/export.hpp"
#include "headrace/base/names.hpp"

namespace headrace::copy {

using headrace::name;

/// As memset: fills with the lowest byte of `value` and returns `target`.
using Fill = void* (*)(void* target, int value, std::size_t byte_count) noexcept;
/// Offset of the first byte that differs, or `byte_count`. As memcmp, it may read bytes after a
/// difference.
using FirstDifference = std::size_t (*)(const void* left, const void* right,
                                        std::size_t byte_count) noexcept;

/// Kernels that fill with one byte; any length and alignment.
enum class FillKernel : std::uint8_t {
  rep_stosb,        ///< Microcode.
  ymm,              ///< Registers of 32 bytes.
  ymm_prefetch,     ///< Prefetches the target's lines for writing.
  ymm_nontemporal,  ///< Non-temporal stores; touches pages as ymm_touch.
  ymm_touch,        ///< Prefetches a line of the next page, for the page's translation.
  zmm,              ///< Registers of 64 bytes.
};
/// Kernels that compare; any length and alignment.
enum class CompareKernel : std::uint8_t { ymm, zmm };
inline constexpr std::size_t kFillKernelCount = 6;
inline constexpr std::size_t kCompareKernelCount = 2;

/// Null if this build lacks the kernel or this processor cannot run it.
///
/// Threading: shared.
[[nodiscard]] HEADRACE_API Fill fill_of(FillKernel kernel);
[[nodiscard]] HEADRACE_API FirstDifference first_difference_of(CompareKernel kernel);

/// Fills `target` with the kernel that the profile in use names for the length; without one, with
/// memset.
///
/// Threading: shared. Callable before main and in a signal handler.
HEADRACE_API void set_bytes(std::span<std::byte> target, std::byte value) noexcept;

/// Offset of the first byte in which the spans differ, or their length. Uses the kernel that the
/// profile in use names for the length; without one, memcmp.
///
/// Threading: shared. Callable before main and in a signal handler.
/// Fails: never; the spans must have the same length (checked).
[[nodiscard]] HEADRACE_API std::size_t first_difference(std::span<const std::byte> left,
                                                        std::span<const std::byte> right) noexcept;

}  // namespace headrace::copy
