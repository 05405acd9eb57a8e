// SPDX-License-Identifier: Apache-2.0
// Combines the completions of parts. Pure functions. Until ended() sets it, the state of a
// Completion is `stopped` or idle.
#pragma once

#include <cstddef>

#include "headrace/engine/request.hpp"

namespace headrace::engine::detail {

/// Completion of an operation that was skipped because of a stop.
inline constexpr Completion kStopped{.state = JobState::stopped};

[[nodiscard]] inline bool is_stopped(const Completion& part) noexcept {
  return part.state == JobState::stopped;
}

/// Derives the state from the cause.
inline void set_state(Completion& whole) noexcept {
  if (whole.cause != Cause::none) {
    whole.state = JobState::failed;
  } else if (whole.state != JobState::stopped) {
    whole.state = JobState::done;
  }
}
[[nodiscard]] inline Completion ended(Completion whole) noexcept {
  set_state(whole);
  return whole;
}

/// Adds the completion of the part at `offset_bytes`, which follows all parts added before.
void append(Completion& whole, const Completion& part, std::size_t offset_bytes) noexcept;

/// append() for parts that complete in any order: keeps the difference with the lowest offset and
/// the cause that was added first.
void merge(Completion& whole, const Completion& part, std::size_t offset_bytes) noexcept;

/// Adds the counters of an operation of a batch, but not its cause and result.
void add_counts(Completion& whole, const Completion& one) noexcept;

/// Writes the completion of operation `index` if the batch has completions.
inline void note(const Batch& batch, std::size_t index, const Completion& one) noexcept {
  if (!batch.completions.empty()) batch.completions[index] = ended(one);
}

/// note() for operation `index` and all after it.
inline void note_rest(const Batch& batch, std::size_t index, const Completion& one) noexcept {
  for (; index < batch.completions.size(); ++index) note(batch, index, one);
}

/// Sets the outcome of `request`, and of each operation of a batch, of which nothing was begun.
inline void note_unbegun(Request& request, const Completion& end) noexcept {
  request.outcome = ended(end);
  note_rest(request.batch(), 0, end);
}

}  // namespace headrace::engine::detail
