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

/// The first address of an operand of `operation` that a processor may not access, as far as it is
/// asked. `all`: of every page; each is brought in. Else of what has kAskedBytesMin or more:
/// whether all is mapped, and whether the first and the last page of a target may be written to.
[[nodiscard]] std::optional<std::uintptr_t> inaccessible(const Operation& operation,
                                                         bool all) noexcept;

}  // namespace headrace::engine::detail
