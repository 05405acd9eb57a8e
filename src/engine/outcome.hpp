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
[[nodiscard]] inline Completion to_completion(const ShareOutcome& outcome) noexcept {
  const JobState state = outcome.cause != Cause::none ? JobState::failed
                         : outcome.stopped            ? JobState::stopped
                                                      : JobState::done;
  return {.state = state,
          .cause = outcome.cause,
          .fell_back = outcome.fell_back,
          .device_status = outcome.device_status,
          .late_write_possible = outcome.late_write_possible,
          .bytes_done = outcome.bytes_done,
          .bytes_by_device = outcome.bytes_by_device,
          .page_faults = outcome.page_faults,
          .retries = outcome.retries,
          .fault_address = outcome.fault_address,
          .result = outcome.result};
}

/// Writes the completion of operation `index` of `batch`, if anybody wants it.
inline void note(const Batch& batch, std::size_t index, const ShareOutcome& outcome) noexcept {
  if (!batch.completions.empty()) batch.completions[index] = to_completion(outcome);
}

/// As note(), for operation `index` and all behind it.
inline void note_rest(const Batch& batch, std::size_t index, const ShareOutcome& outcome) noexcept {
  for (; index < batch.completions.size(); ++index) note(batch, index, outcome);
}

}  // namespace headrace::engine::detail
