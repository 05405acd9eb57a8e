// SPDX-License-Identifier: Apache-2.0
// Job: one submitted plan, from submission to completion. The caller owns its memory.
// Not for: choosing who moves the bytes (engine.hpp) or how they are moved (mover.hpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "headrace/base/atomic.hpp"
#include "headrace/base/export.hpp"

namespace headrace::engine {

/// What to copy. Both spans have the same length; they may be equal but not overlap otherwise.
struct CopyPlan {
  std::span<std::byte> target;
  std::span<const std::byte> source;
};

/// How a job stands: idle -> running -> {done, failed, stopped}; an ended job may be submitted
/// again.
enum class JobState : std::uint32_t { idle, running, done, failed, stopped };
[[nodiscard]] HEADRACE_API std::string_view name(JobState state);

/// Why a job failed.
enum class Cause : std::uint8_t {
  none,
  page_fault,     ///< `fault_address` could not be touched.
  device_error,   ///< The mover reported an error of its own.
  device_dead,    ///< The mover did not answer before its deadline.
  mover_refused,  ///< No mover took the job.
};
[[nodiscard]] HEADRACE_API std::string_view name(Cause cause);

/// How a job ended.
struct Completion {
  JobState state = JobState::idle;
  Cause cause = Cause::none;
  /// True if another mover than the one asked for moved some of the bytes.
  bool fell_back = false;
  /// Bytes of the target that hold their final value, not necessarily a prefix; all of them if
  /// done.
  std::size_t bytes_done = 0;
  /// Address to touch before the job is tried again; 0 unless cause is page_fault.
  std::uintptr_t fault_address = 0;
};

class EngineState;
class Job;

/// How a share ended.
struct ShareOutcome {
  std::size_t bytes_done = 0;
  Cause cause = Cause::none;
  /// True if the rest was left because a stop was asked for.
  bool stopped = false;
  std::uintptr_t fault_address = 0;
};

/// The contiguous part of a job that one mover moves. It lies in the job, so that no submission
/// allocates. Everything here belongs to the mover from the moment it takes the share until it
/// calls Mover::finish.
struct Share {
  Job* job = nullptr;
  std::span<std::byte> target;
  std::span<const std::byte> source;
  /// Written by Mover::finish.
  ShareOutcome outcome;

  /// Room for the mover's own bookkeeping, under whatever lock it has; reset by each submission.
  Share* next = nullptr;           ///< Link of its queue.
  std::size_t bytes_taken = 0;     ///< Handed out to some worker; never less than bytes_finished.
  std::size_t bytes_finished = 0;  ///< In place.
  bool queued = false;             ///< True while bytes are left to be handed out.
};

/// One unit of asynchronous work. Not movable: movers hold its address while it runs.
///
/// Ownership: the caller owns the job and both buffers and keeps them alive and in place until the
///            job has ended. Destroying a running job stops it and waits for it. The job may be
///            destroyed or submitted again as soon as it has ended and the calls of wait(), poll()
///            and stop() upon it have returned.
/// Threading: shared - any thread may poll, wait and stop; one at a time may submit.
class HEADRACE_API Job {
 public:
  /// A job is split among at most this many movers (a Xeon Max has 8 devices).
  static constexpr std::size_t kShareMax = 8;

  /// Called once per accepted submission by the thread that finishes the job, before any waiter
  /// returns and before state() leaves `running`. That thread is a mover's, one that polls or
  /// stops, or, if the plan is empty or movers refused part of it, the submitting one inside
  /// submit_copy. It holds no lock. It must not block, throw, stop the engine, or submit, wait for
  /// or destroy this job; it may submit others.
  using Callback = void (*)(void* context, const Completion& completion) noexcept;

  Job() = default;
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job();

  [[nodiscard]] JobState state() const;
  /// True once the job has ended. Never blocks; drives movers that have no thread of their own.
  [[nodiscard]] bool poll();
  /// Blocks until the job has ended: spins briefly, then sleeps. An idle job is a broken contract
  /// (checked).
  const Completion& wait();
  /// How the job ended; it must have ended (checked).
  [[nodiscard]] const Completion& completion() const;
  /// Asks for an early end and returns at once. What a mover has begun is finished, the rest never
  /// starts; the job ends as stopped, or as done if nothing was left. No effect on a job that is
  /// not running.
  void stop();
  /// True if stop() was called since the submission: movers ask this between pieces.
  [[nodiscard]] bool stop_requested() const;

 private:
  friend class EngineState;

  void wait_sleeping();
  void wait_polling();
  /// Keeps the engine alive, to poll it; nothing if the job has ended.
  [[nodiscard]] EngineState* visit_engine();

  // Written by the submitter while the job does not run; published by the edges `job-submitted` and
  // those of the movers. fell_back_ is written while a share is still in the submitter's hands.
  std::array<Share, kShareMax> shares_;
  std::uint32_t share_count_ = 0;
  bool fell_back_ = false;
  /// True if a mover of the job has no thread: whoever waits polls instead of sleeping.
  bool polled_ = false;
  Callback callback_ = nullptr;
  void* callback_context_ = nullptr;
  EngineState* engine_ = nullptr;
  /// Written by the finishing thread; published by the edge `job-ended`.
  Completion completion_;
  /// A JobState and, while running, two flags: see src/engine/job_word.hpp. The store that ends the
  /// job is the last touch of it by the library.
  Atomic<std::uint32_t> word_{static_cast<std::uint32_t>(JobState::idle)};
  /// Shares that have not ended, among them those that no mover has yet.
  Atomic<std::uint32_t> shares_left_{0};
};

}  // namespace headrace::engine
