// SPDX-License-Identifier: Apache-2.0
// Request: one operation or batch that a mover executes. Completion: its result.
// Not for: waiting, and the order of jobs (job.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "headrace/base/atomic.hpp"
#include "headrace/base/export.hpp"
#include "headrace/engine/operation.hpp"

namespace headrace::engine {

/// State of a job: idle -> running -> {done, failed, stopped} -> running ...
enum class JobState : std::uint32_t { idle, running, done, failed, stopped };

/// Why a job failed.
enum class Cause : std::uint8_t {
  none,
  page_fault,          ///< Memory at `fault_address` is not accessible.
  device_error,        ///< The mover reported an error.
  device_dead,         ///< The mover timed out.
  mover_refused,       ///< The policy chose no mover, or an invalid one.
  integrity_error,     ///< An integrity field is wrong: see OperationResult::dif_errors.
  bad_record,          ///< Offsets of a delta record do not increase, or are beyond the target.
  batch_failed,        ///< An operation of the batch failed; its completion has the cause.
  forked,              ///< The job belongs to the parent of this process and runs there.
  fence_broken,        ///< In a batch: an operation before the fence failed. Nothing was done.
  predecessor_failed,  ///< A predecessor failed or was stopped. Nothing was done.
};
/// Meaning and remedy for a person.
[[nodiscard]] HEADRACE_API std::string_view explain(Cause cause);

/// How an operation, a batch or a job ended.
struct Completion {
  JobState state = JobState::idle;
  Cause cause = Cause::none;
  /// Some bytes were not processed by the requested mover or path.
  bool fell_back = false;
  /// Status byte of the first completion record with an error (see dsa::explain), else 0. The job
  /// may be done all the same.
  std::uint8_t device_status = 0;
  /// A device that timed out may still write to the target: do not reuse that memory until the
  /// device has been reset.
  bool late_write_possible = false;
  /// Bytes of Operation::byte_count() processed, not necessarily a prefix. If done, all, except for
  /// a comparison that found a difference (its difference_offset) and a delta that did not fit.
  std::size_t bytes_done = 0;
  /// Of bytes_done; processors did the others.
  std::size_t bytes_by_device = 0;
  std::uint32_t page_faults = 0;  ///< On devices.
  std::uint32_t retries = 0;      ///< Times that started work found a queue full.
  /// The inaccessible address; 0 unless cause is page_fault.
  std::uintptr_t fault_address = 0;
  OperationResult result = {};
};

/// Several operations in one job, executed by one mover. A worker thread executes all of it before
/// it turns to other jobs; stop() takes effect between two operations.
struct Batch {
  std::span<const Operation> operations;
  /// One for each of `operations`, written before the job ends, also if it never begins; may be
  /// empty.
  std::span<Completion> completions;
};

class Mover;

/// What a mover accepts: a Job, or each part of a job that is split.
///
/// Ownership: belongs to the mover from Mover::post until complete().
/// Threading: confined, except for stop_requested().
class HEADRACE_API Request {
 public:
  /// Called once by complete(): the last access of the request by its mover. `plain`: called by
  /// complete_by_device().
  using OnDone = void (*)(Request& request, bool plain) noexcept;
  static constexpr std::uint32_t kNoSlot = ~0U;

  Request() = default;
  Request& operator=(Request&&) = delete;

  /// The operation; of a batch, no_op.
  [[nodiscard]] const Operation& operation() const { return operation_; }
  /// Empty unless it is a batch.
  [[nodiscard]] const Batch& batch() const { return batch_; }
  [[nodiscard]] bool is_batch() const { return !batch_.operations.empty(); }
  /// Operation::byte_count(); of a batch, the sum.
  [[nodiscard]] std::size_t byte_count() const { return byte_count_; }
  [[nodiscard]] std::span<std::byte> target() const { return operation_.target(); }
  [[nodiscard]] std::span<const std::byte> source() const { return operation_.source(); }
  /// Whether cancellation was requested; movers check it between two pieces.
  [[nodiscard]] bool stop_requested() const noexcept;
  /// True if its job had to wait for predecessors: a mover may exceed its queue depth for it.
  [[nodiscard]] bool is_overdue() const { return overdue_; }

  /// Sets the operation and batch. Only while no mover has the request.
  void assign(const Operation& operation, const Batch& batch, std::size_t byte_count) noexcept {
    operation_ = operation;
    batch_ = batch;
    byte_count_ = byte_count;
  }

  /// As assign(), for a batch; does not change operation().
  void assign_batch(const Batch& batch, std::size_t byte_count) noexcept {
    batch_ = batch;
    byte_count_ = byte_count;
  }

  /// Ends the request, which may be destroyed before this returns. Hold no lock. Set the state of
  /// `end` only to `stopped`, after a cancellation; otherwise it follows from the cause. Without a
  /// stop, a cause or a difference, bytes_done must be all bytes (checked).
  void complete(const Completion& end) noexcept;
  /// As complete(), if a device has done all of it and there is no result.
  void complete_by_device() noexcept {
    outcome = {.state = JobState::done, .bytes_done = byte_count_, .bytes_by_device = byte_count_};
    std::exchange(on_done_, nullptr)(*this, true);
  }

  // Scratch fields of the mover that has the request, under the mover's lock. A mover that refuses
  // a request must not change `outcome`.
  Completion outcome;  ///< Final after complete().
  Request* next = nullptr;
  std::size_t bytes_taken = 0;                ///< Taken by workers; >= bytes_finished.
  std::size_t bytes_finished = 0;             ///< In place.
  std::uint32_t stripes_left = 0;             ///< Device: stripes that have not ended.
  bool queued = false;                        ///< Some bytes are not taken by a worker yet.
  Atomic<std::uint32_t> slot_index{kNoSlot};  ///< Device: slot to check first; a hint.

 private:
  friend class EngineState;
  friend class Job;

  bool overdue_ = false;
  /// Of a job: a JobState, flags and a visitor count (src/engine/job_word.hpp). Else 0.
  Atomic<std::uint32_t> word_{static_cast<std::uint32_t>(JobState::idle)};
  Operation operation_;
  Batch batch_;
  std::size_t byte_count_ = 0;
  OnDone on_done_ = nullptr;
  /// Of a part: its job, which has the stop flag.
  const Request* whole_ = nullptr;
  Atomic<Mover*> mover_{nullptr};  ///< The mover asked last; a hint for pollers.
};

}  // namespace headrace::engine
