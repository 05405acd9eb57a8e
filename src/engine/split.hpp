// SPDX-License-Identifier: Apache-2.0
// Splitting an operation among movers. Pure functions; who the movers are is decided elsewhere.
#pragma once

#include <cstddef>
#include <span>

#include "headrace/engine/job.hpp"

namespace headrace::engine::detail {

/// A smaller share costs more to hand over and to wait for than a second mover gains.
inline constexpr std::size_t kShareBytesMin = 64U << 10U;
/// Shares meet at addresses of the target (of the source, where there is none) that are multiples
/// of this: no two movers write one line, or touch one page for the first time.
inline constexpr std::size_t kShareAlignment = 4096;

/// Among how many of `mover_count` movers (at least one) to split `byte_count` bytes.
///
/// Returns: 1 <= count <= min(mover_count, Job::kShareMax).
[[nodiscard]] std::size_t share_count(std::size_t byte_count, std::size_t mover_count);

/// Cuts `operation`, which has independent parts, into `shares.size()` of them, as share_count()
/// said: in order, none empty, even but for the alignment. Writes offset and length of each share
/// only.
void split(const Operation& operation, std::span<Share> shares);

}  // namespace headrace::engine::detail
