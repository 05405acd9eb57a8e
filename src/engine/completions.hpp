// SPDX-License-Identifier: Apache-2.0
// How the ends of parts make the end of a whole. Pure functions. Until it is given out by ended(),
// a Completion says `stopped` or nothing as its state.
#pragma once

#include <cstddef>

#include "headrace/engine/request.hpp"

namespace headrace::engine::detail {

/// Of what was left because of a stop.
inline constexpr Completion kStopped{.state = JobState::stopped};

[[nodiscard]] inline bool is_stopped(const Completion& part) noexcept {
  return part.state == JobState::stopped;
}

/// Sets the state that follows from the cause.
inline void settle(Completion& whole) noexcept {
  if (whole.cause != Cause::none) {
    whole.state = JobState::failed;
  } else if (whole.state != JobState::stopped) {
    whole.state = JobState::done;
  }
}
[[nodiscard]] inline Completion ended(Completion whole) noexcept {
  settle(whole);
  return whole;
}

/// Adds to `whole` the end of the part that begins `offset_bytes` into it, behind all that is in
/// `whole` already.
void append(Completion& whole, const Completion& part, std::size_t offset_bytes) noexcept;

/// As append(), for parts that end in any order: of several differences the first counts, of
/// several causes the one that came first.
void merge(Completion& whole, const Completion& part, std::size_t offset_bytes) noexcept;

/// Adds what an operation of a batch counts; not its cause and its result.
void add_counts(Completion& whole, const Completion& one) noexcept;

/// Writes the completion of operation `index` of `batch`, if it has completions.
inline void note(const Batch& batch, std::size_t index, const Completion& one) noexcept {
  if (!batch.completions.empty()) batch.completions[index] = ended(one);
}

/// As note(), for operation `index` and all behind it.
inline void note_rest(const Batch& batch, std::size_t index, const Completion& one) noexcept {
  for (; index < batch.completions.size(); ++index) note(batch, index, one);
}

}  // namespace headrace::engine::detail
