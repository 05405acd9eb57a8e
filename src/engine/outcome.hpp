// SPDX-License-Identifier: Apache-2.0
// How the ends of parts make the end of a whole. Pure functions.
#pragma once

#include <cstddef>

#include "headrace/engine/job.hpp"

namespace headrace::engine::detail {

/// Adds to `whole` the end of the part that begins `offset_bytes` into it, behind all that is in
/// `whole` already.
void append(ShareOutcome& whole, const ShareOutcome& part, std::size_t offset_bytes) noexcept;

/// As append(), for parts that end in any order: of several differences the first counts, of
/// several causes the one that came first.
void merge(ShareOutcome& whole, const ShareOutcome& part, std::size_t offset_bytes) noexcept;

/// The completion of an operation that ended so.
[[nodiscard]] Completion to_completion(const ShareOutcome& outcome) noexcept;

/// Writes the completion of operation `index` of `batch`, if anybody wants it.
inline void note(const Batch& batch, std::size_t index, const ShareOutcome& outcome) noexcept {
  if (!batch.completions.empty()) batch.completions[index] = to_completion(outcome);
}

/// As note(), for operation `index` and all behind it.
inline void note_rest(const Batch& batch, std::size_t index, const ShareOutcome& outcome) noexcept {
  for (; index < batch.completions.size(); ++index) note(batch, index, outcome);
}

}  // namespace headrace::engine::detail
