// SPDX-License-Identifier: Apache-2.0
// Job: one submitted plan, from submission to completion. The caller owns its memory.
// Not for: choosing who moves the bytes (engine.hpp) or how they are moved (mover.hpp).
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "headrace/base/atomic.hpp"
#include "headrace/base/export.hpp"
#include "headrace/engine/operation.hpp"

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
  page_fault,       ///< `fault_address` could not be touched.
  device_error,     ///< The mover reported an error of its own.
  device_dead,      ///< The mover did not answer before its deadline.
  mover_refused,    ///< No mover took the job.
  integrity_error,  ///< An integrity field is wrong: OperationResult::dif_errors says how.
  bad_record,       ///< A delta record has offsets that do not rise, or lie beyond the target.
  batch_failed,     ///< Of a batch: some operation failed; its own completion says why.
  forked,           ///< The job belongs to the parent of this process: here it never ends.
  fence_broken,     ///< Of an operation in a batch: one before its fence failed. Nothing was done.
  predecessor_failed,  ///< A job that this one had to come after failed or was stopped. Nothing was
                       ///< done.
};
[[nodiscard]] HEADRACE_API std::string_view name(Cause cause);
/// What it means and what to do about it, one sentence for a person.
[[nodiscard]] HEADRACE_API std::string_view explain(Cause cause);

/// How a job ended.
struct Completion {
  JobState state = JobState::idle;
  Cause cause = Cause::none;
  /// True if another mover than the one asked for, or a processor in the place of a device, moved
  /// some of the bytes.
  bool fell_back = false;
  /// Status byte of the first completion record that told of trouble, 0 if none did:
  /// dsa::explain says what it means. The job may be done all the same.
  std::uint8_t device_status = 0;
  /// True if a device was given up on that may still write to the target: do not use that memory
  /// for anything else until the device has been reset.
  bool late_write_possible = false;
  /// What was done of Operation::byte_count(), not necessarily a prefix; all of it if done, but for
  /// a comparison that found a difference (its difference_offset) and a delta that did not fit.
  std::size_t bytes_done = 0;
  /// Bytes that a device did; the others are a processor's.
  std::size_t bytes_by_device = 0;
  std::uint32_t page_faults = 0;  ///< That a device met.
  std::uint32_t retries = 0;      ///< Times that a full queue kept what had begun waiting.
  /// Address that could not be touched; 0 unless cause is page_fault.
  std::uintptr_t fault_address = 0;
  OperationResult result = {};
};

/// What a thread does while it waits for a job.
enum class Waiting : std::uint8_t {
  /// Looks for as long as has paid lately, then rests, at last sleeps (docs/concepts/engine.md).
  adaptive,
  spin,    ///< Looks again at once, without end: soonest to see, and takes a whole processor.
  pause,   ///< As spin with a PAUSE in between, which leaves more to the core's other thread.
  umwait,  ///< Rests on the line that will change, by UMONITOR and UMWAIT; else as pause.
  sleep,   ///< Sleeps at once: until it is woken, or for a part of what it has waited.
};
[[nodiscard]] HEADRACE_API std::string_view name(Waiting waiting);

class EngineState;
class Job;
class Mover;

/// How a share ended.
struct ShareOutcome {
  std::size_t bytes_done = 0;
  Cause cause = Cause::none;
  /// True if the rest was left because a stop was asked for.
  bool stopped = false;
  bool fell_back = false;            ///< As in Completion.
  std::uint8_t device_status = 0;    ///< As in Completion.
  bool late_write_possible = false;  ///< As in Completion.
  std::size_t bytes_by_device = 0;
  std::uint32_t page_faults = 0;
  std::uint32_t retries = 0;
  std::uintptr_t fault_address = 0;
  /// A difference_offset counts from the beginning of the share.
  OperationResult result = {};
};

/// Several operations in one job. It goes to one mover whole: of worker threads one does all of it,
/// and what is behind it on that one waits; stop() takes effect between two operations.
struct Batch {
  std::span<const Operation> operations;
  /// As long as `operations`, or empty if nobody asks how each of them ended. Written before the
  /// job ends.
  std::span<Completion> completions;
};

/// The contiguous part of a job that one mover moves. It lies in the job, so that no submission
/// allocates. Everything here belongs to the mover from the moment it takes the share until it
/// calls Mover::finish.
struct HEADRACE_API Share {
  Job* job = nullptr;
  /// The part of the job's operation; of a batch, all of it.
  std::size_t offset_bytes = 0;
  std::size_t byte_count = 0;
  /// Written by Mover::finish.
  ShareOutcome outcome;

  /// What is to be done: the part of the job's operation that this share is. Not of a batch.
  [[nodiscard]] Operation operation() const;
  /// The operations, if the job is a batch; else none.
  [[nodiscard]] const Batch& batch() const;
  // Of operations whose target and source are cut alike.
  [[nodiscard]] std::span<std::byte> target() const { return operation().target(); }
  [[nodiscard]] std::span<const std::byte> source() const { return operation().source(); }

  /// Room for the mover's own bookkeeping, under whatever lock it has, and set by it when it takes
  /// the share.
  Share* next = nullptr;  ///< Link of its queue.
  /// The engine's: its job was accepted before it could begin. A mover that could take more shares
  /// than it may takes it all the same.
  bool overdue = false;
  std::size_t bytes_taken = 0;     ///< Handed out to some worker; never less than bytes_finished.
  std::size_t bytes_finished = 0;  ///< In place.
  bool queued = false;             ///< True while bytes are left to be handed out.
  std::uint32_t lanes_left = 0;    ///< Of a device: parts that have not ended.
  Atomic<std::uint32_t> slot_index{kNoSlot};  ///< Of a device: where to look first; a hint.
  Atomic<Mover*> mover{nullptr};  ///< Who was asked last; a hint for pollers. The engine's.
  static constexpr std::uint32_t kNoSlot = ~0U;
};

/// A job's place in the list of those that begin when another has ended. It lies in the job that
/// waits.
struct DependantLink {
  DependantLink* next = nullptr;
  Job* job = nullptr;
};

/// One unit of asynchronous work. Not movable: movers hold its address while it runs.
///
/// Ownership: the caller owns the job and both buffers and keeps them alive and in place until the
///            job has ended. Destroying a running job stops it and waits for it. The job may be
///            destroyed or submitted again as soon as it has ended and the calls of wait(), poll()
///            and stop() upon it, and submissions that name it (SubmitOptions::after), have
///            returned.
/// Threading: shared - any thread may poll, wait and stop; one at a time may submit.
class HEADRACE_API Job {
 public:
  /// A job is split among at most this many movers (a Xeon Max has 8 devices).
  static constexpr std::size_t kShareMax = 8;
  /// It can wait for at most this many others. More are gathered by jobs that do nothing
  /// (Operation::no_op).
  static constexpr std::size_t kPredecessorMax = 8;

  /// Called once per accepted submission by the thread that finishes the job, before any waiter
  /// returns and before state() leaves `running`. That thread is a mover's, one that polls or
  /// stops, or the submitting one inside its submission: if the plan is empty, movers refused part
  /// of it, or path `automatic` does it at once (PathThresholds). It holds no lock. It must not
  /// block, throw, stop the engine, or submit, wait for or destroy this job; it may submit others.
  using Callback = void (*)(void* context, const Completion& completion) noexcept;

  Job() = default;
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job();

  [[nodiscard]] JobState state() const;
  /// True once the job has ended. Never blocks; drives movers that have no thread of their own.
  [[nodiscard]] bool poll();
  /// Blocks until the job has ended, as EngineOptions::waiting says. An idle job is a broken
  /// contract (checked).
  const Completion& wait();
  /// As wait(), but for at most `time_max`; a century is for ever. Returns whether the job has
  /// ended.
  [[nodiscard]] bool wait_for(std::chrono::nanoseconds time_max);
  /// How the job ended; it must have ended (checked).
  [[nodiscard]] const Completion& completion() const;
  /// Asks for an early end and returns at once. What a mover has begun is finished, the rest never
  /// starts; the job ends as stopped, or as done if nothing was left. A job that is held back
  /// (SubmitOptions::after) ends when those it waits for have, without having begun. No effect on a
  /// job that is not running.
  void stop();
  /// True if stop() was called since the submission: movers ask this between pieces.
  [[nodiscard]] bool stop_requested() const;
  /// What was submitted last; of a batch, no_op.
  [[nodiscard]] const Operation& operation() const { return operation_; }
  [[nodiscard]] const Batch& batch() const { return batch_; }

 private:
  friend class ChannelState;
  friend class Coalescer;
  friend class EngineState;
  class Visit;

  /// True in a child of the process that submitted the job. Does not ask the engine: that may be
  /// destroyed as soon as the job has ended, and only a Visit keeps it.
  [[nodiscard]] bool is_forked() const;
  /// Ends the job in a child of the process that submitted it.
  bool abandon_in_child();
  void wait_until(std::chrono::nanoseconds until);
  /// Sleeps until the job has ended, or perhaps not quite so long.
  void park(std::chrono::nanoseconds until);
  /// Rests on the word, or says that the processor cannot.
  [[nodiscard]] bool rest();

  // Written by the submitter while the job does not run; published by the edges `job-submitted` and
  // those of the movers. fell_back_ is written while a share is still in the submitter's hands.
  Operation operation_;
  Batch batch_;
  std::array<Share, kShareMax> shares_;
  std::uint32_t share_count_ = 0;
  bool fell_back_ = false;
  /// True if a mover of the job has no thread: whoever waits polls instead of sleeping. Of a job
  /// that was held back, if any mover of the engine has none.
  bool polled_ = false;
  Waiting waiting_ = Waiting::adaptive;
  /// It was accepted before it could begin: whoever waits drives all that it may wait for.
  bool held_back_ = false;
  /// What a job that is held back has to remember until it begins.
  struct Held {
    /// In the lists of those it waits for; then the first in that of those that can begin.
    std::array<DependantLink, kPredecessorMax> links;
    /// The movers that were chosen, by index, and whose turn it is.
    std::array<std::uint32_t, kShareMax> movers{};
    std::uint32_t mover_count = 0;
    std::uint32_t turn = 0;
    /// Processors may do it if the devices are full then.
    bool may_turn = false;
  };
  Held held_;
  Callback callback_ = nullptr;
  void* callback_context_ = nullptr;
  /// Called after the last touch of the job.
  void (*then_)(void* context) noexcept = nullptr;
  void* then_context_ = nullptr;
  /// Null while a Coalescer uses the job to carry others: no engine counts or ends it.
  EngineState* engine_ = nullptr;
  std::uint64_t begun_ticks_ = 0;
  /// The engine's: forks of the process until it was made.
  std::uint32_t fork_count_ = 0;
  /// Written by the finishing thread; published by the edge `job-ended`.
  Completion completion_;
  /// A JobState, three flags and a count: see src/engine/job_word.hpp. The change that ends the job
  /// is the last touch of it by the library, but for calls of wait() and poll() that are in
  /// progress.
  Atomic<std::uint32_t> word_{static_cast<std::uint32_t>(JobState::idle)};
  /// Shares that have not ended, among them those that no mover has yet.
  Atomic<std::uint32_t> shares_left_{0};
  /// Of those it waits for, and one for the submission, how many have not ended; and whether one
  /// failed: see src/engine/dependants.hpp, as for the next.
  Atomic<std::uint32_t> predecessors_left_{0};
  /// Those that wait for this job. Empty unless it runs.
  Atomic<DependantLink*> dependants_{nullptr};
};

inline Operation Share::operation() const {
  return job->operation().part(offset_bytes, byte_count);
}

inline const Batch& Share::batch() const {
  return job->batch();
}

}  // namespace headrace::engine
