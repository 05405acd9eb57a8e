// SPDX-License-Identifier: Apache-2.0
// Every operation carried out by the calling thread, with the bytes and the result that a device
// would give. Not for: choosing the mover, or memory that is not mapped, which ends the process.
#pragma once

#include <cstddef>

#include "headrace/engine/request.hpp"

namespace headrace::engine::software {

/// Between two pieces of this length a request is asked whether it is to stop.
inline constexpr std::size_t kPieceBytes = 256U << 10U;

/// All of a valid `operation`. Bytes are done in ascending order, so that what is said of a part
/// that failed is what a device says.
[[nodiscard]] Completion execute(const Operation& operation) noexcept;

/// As execute(), until a stop of `request` is asked for.
[[nodiscard]] Completion execute_in_pieces(const Operation& operation,
                                           const Request& request) noexcept;

/// All operations of a valid batch, one after the other, until a stop is asked for. Writes the
/// completions of the batch, if it has some. `check_memory`: as in EngineOptions.
[[nodiscard]] Completion execute_batch(const Request& request, bool check_memory) noexcept;

// The families.
[[nodiscard]] Completion compare(const Operation& operation) noexcept;
[[nodiscard]] Completion compare_pattern(const Operation& operation) noexcept;
[[nodiscard]] Completion create_delta(const Operation& operation) noexcept;
[[nodiscard]] Completion apply_delta(const Operation& operation) noexcept;
[[nodiscard]] Completion crc(const Operation& operation) noexcept;
[[nodiscard]] Completion dif(const Operation& operation) noexcept;
void fill(const Operation& operation) noexcept;

}  // namespace headrace::engine::software
