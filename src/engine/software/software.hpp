// SPDX-License-Identifier: Apache-2.0
// Every operation carried out by the calling thread, with the bytes and the result that a device
// would give. Not for: choosing who does it, or memory that is not mapped, which ends the process.
#pragma once

#include <cstddef>

#include "headrace/engine/job.hpp"

namespace headrace::engine::software {

/// Between two pieces of this length it is asked whether the job is to stop.
inline constexpr std::size_t kPieceBytes = 256U << 10U;

/// All of a valid `operation`. Bytes are done in ascending order, so that what is said of a part
/// that failed is what a device says.
[[nodiscard]] ShareOutcome execute(const Operation& operation) noexcept;

/// As execute(), until somebody asks `job` to stop.
[[nodiscard]] ShareOutcome execute_in_pieces(const Operation& operation, const Job& job) noexcept;

/// All operations of a valid batch, one after the other, until somebody asks `job` to stop. Writes
/// the completions of the batch, if it has some. `check_memory`: as in EngineOptions.
[[nodiscard]] ShareOutcome execute_batch(const Batch& batch, const Job& job,
                                         bool check_memory) noexcept;

// The families.
[[nodiscard]] ShareOutcome compare(const Operation& operation) noexcept;
[[nodiscard]] ShareOutcome compare_pattern(const Operation& operation) noexcept;
[[nodiscard]] ShareOutcome create_delta(const Operation& operation) noexcept;
[[nodiscard]] ShareOutcome apply_delta(const Operation& operation) noexcept;
[[nodiscard]] ShareOutcome crc(const Operation& operation) noexcept;
[[nodiscard]] ShareOutcome dif(const Operation& operation) noexcept;
void fill(const Operation& operation) noexcept;

}  // namespace headrace::engine::software
