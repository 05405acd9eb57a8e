// SPDX-License-Identifier: Apache-2.0
// Whether the memory of an operation is there, before a processor is sent to it. Decision 9 says
// for which operations that is asked, and why not for all.
#pragma once

#include <cstdint>
#include <optional>

#include "headrace/engine/operation.hpp"

namespace headrace::engine::detail {

/// From here on the question costs less than a fiftieth of the copy (docs/decisions/0009).
inline constexpr std::size_t kAskedBytesMin = std::size_t{2} << 20U;

/// The first address of an operand of `operation` that is not mapped; nothing if all are, or if the
/// operation is too short to be asked about. Whether they may be accessed is another question.
[[nodiscard]] std::optional<std::uintptr_t> unmapped(const Operation& operation) noexcept;

}  // namespace headrace::engine::detail
