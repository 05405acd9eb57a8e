// SPDX-License-Identifier: Apache-2.0
// The word of a job: its state, four flags, and the number of pins (Job::Visit). One word, so that
// each change is one atomic operation: a stop never reaches a later submission, and the operation
// that completes the job learns whether any thread sleeps on or pins the job without accessing it
// again.
//
//   part       who may change it                            when
//   state      the submitter                                idle or ended -> running, and back if
//                                                           nothing was taken
//              the thread that ends the job                 running -> done | failed | stopped
//   sleeper    set by a waiter that is about to sleep       while running
//   stop       set by Job::stop()                           while running
//   dependants set by a submission that names the job       while running
//   pin        the submitter                                with running
//   pins       each visitor that pins adds its own          while running
//              and takes it away                            at any time
//
// A submission clears the flags. There are no pins then, because the contract of Job requires
// that all calls on it have returned. Flags of a completed job are ignored.
#pragma once

#include <cstdint>

#include "headrace/engine/job.hpp"

namespace headrace::engine::detail {

inline constexpr std::uint32_t kStateMask = 0xff;
/// A thread sleeps on this word.
inline constexpr std::uint32_t kSleeperFlag = 1U << 8U;
/// stop() was called since the submission.
inline constexpr std::uint32_t kStopFlag = 1U << 9U;
/// The job has dependants: see dependants.hpp.
inline constexpr std::uint32_t kDependantFlag = 1U << 10U;
/// Visitors pin the job instead of using the Visitor of their thread (gate.hpp): the job has
/// `then`, which may submit it again during a visit, or the kernel has no heavy barrier.
inline constexpr std::uint32_t kPinFlag = 1U << 11U;
/// The lowest bit of the number of pins.
inline constexpr std::uint32_t kPin = 1U << 16U;

[[nodiscard]] constexpr std::uint32_t pin_count(std::uint32_t word) {
  return word / kPin;
}

[[nodiscard]] constexpr JobState state_of(std::uint32_t word) {
  return static_cast<JobState>(word & kStateMask);
}
[[nodiscard]] constexpr bool is_running(std::uint32_t word) {
  return state_of(word) == JobState::running;
}
[[nodiscard]] constexpr std::uint32_t word_of(JobState state) {
  return static_cast<std::uint32_t>(state);
}

/// Sets `flag` if the job is running and returns the new word; otherwise returns 0 and changes
/// nothing.
[[nodiscard]] inline std::uint32_t set_flag(Atomic<std::uint32_t>& word, std::uint32_t flag) {
  std::uint32_t seen = word.load_relaxed();  // The exchange below decides.
  while (is_running(seen)) {
    // Relaxed: the flag carries no data, and a read-modify-write continues the release sequence of
    // `job-submitted`.
    const std::uint32_t flagged = seen | flag;
    if (seen == flagged || word.compare_exchange_relaxed(seen, flagged)) return flagged;
  }
  return 0;
}

}  // namespace headrace::engine::detail
