// SPDX-License-Identifier: Apache-2.0
// Executes every operation on the calling thread, with the same bytes and results as a device.
// Unmapped memory crashes the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "headrace/engine/request.hpp"

namespace headrace::engine::software {

/// A stop request is checked between pieces of this length.
inline constexpr std::size_t kPieceBytes = 256U << 10U;

/// Executes a valid `operation`, in ascending order of addresses, so that a partial failure is
/// reported as by a device.
[[nodiscard]] Completion execute(const Operation& operation) noexcept;

/// execute() that ends early if `request` is stopped.
[[nodiscard]] Completion execute_in_pieces(const Operation& operation,
                                           const Request& request) noexcept;

/// Executes a valid batch sequentially until it is stopped, and writes its completions if it has
/// any. `check_memory`: as in EngineOptions.
[[nodiscard]] Completion execute_batch(const Request& request, bool check_memory) noexcept;

// The kinds of operations.
[[nodiscard]] Completion compare(const Operation& operation) noexcept;
[[nodiscard]] Completion compare_pattern(const Operation& operation) noexcept;
[[nodiscard]] Completion create_delta(const Operation& operation) noexcept;
[[nodiscard]] Completion apply_delta(const Operation& operation) noexcept;
[[nodiscard]] Completion crc(const Operation& operation) noexcept;
inline constexpr std::size_t kFoldBytes = 256;
/// Adds `source`, a multiple of kFoldBytes but not empty, to the register of a reflected CRC-32C,
/// and copies it to `target` unless that is null. For CpuFeatures::vpclmulqdq.
[[nodiscard]] std::uint32_t sum_avx512(std::uint32_t state, std::byte* target,
                                       std::span<const std::byte> source) noexcept;
[[nodiscard]] Completion dif(const Operation& operation) noexcept;
void fill(const Operation& operation) noexcept;

}  // namespace headrace::engine::software
