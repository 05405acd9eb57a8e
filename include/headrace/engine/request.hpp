// SPDX-License-Identifier: Apache-2.0
// Request: one operation, or one batch, that a mover carries out. How it ended is its Completion.
// Not for: waiting for the end, and the order of several (job.hpp).
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

/// The state of a job: idle -> running -> {done, failed, stopped}; a job that has ended may be
/// submitted again.
enum class JobState : std::uint32_t { idle, running, done, failed, stopped };

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
/// What it means and what to do about it, one sentence for a person.
[[nodiscard]] HEADRACE_API std::string_view explain(Cause cause);

/// How an operation, a batch or a job ended.
struct Completion {
  JobState state = JobState::idle;
  Cause cause = Cause::none;
  /// True if another mover than the one asked for, or a processor in the place of a device, moved
  /// some of the bytes.
  bool fell_back = false;
  /// Status byte of the first completion record that reported trouble, 0 if none did:
  /// dsa::explain says what it means. The job may be done all the same.
  std::uint8_t device_status = 0;
  /// True if a device was given up that may still write to the target: do not use that memory
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

/// Several operations in one job. It goes to one mover whole: of worker threads one does all of it,
/// and what is behind it on that one waits; stop() takes effect between two operations.
struct Batch {
  std::span<const Operation> operations;
  /// As long as `operations`, or empty if the caller does not want to know how each of them ended.
  /// Written before the job ends.
  std::span<Completion> completions;
};

class Mover;

/// What a mover takes. A Job is one; a job that is split has one for each of its parts.
///
/// Ownership: belongs to the mover from Mover::post until complete(), and only then may the memory
///            be used for anything else.
/// Threading: confined, but for stop_requested().
class HEADRACE_API Request {
 public:
  /// Called by complete(), once: the last touch of the request by its mover. `plain`: by
  /// complete_by_device().
  using OnDone = void (*)(Request& request, bool plain) noexcept;
  static constexpr std::uint32_t kNoSlot = ~0U;

  Request() = default;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  /// What is to be done; of a batch, no_op.
  [[nodiscard]] const Operation& operation() const { return operation_; }
  /// The operations, if it is a batch.
  [[nodiscard]] const Batch& batch() const { return batch_; }
  [[nodiscard]] bool is_batch() const { return !batch_.operations.empty(); }
  /// Operation::byte_count(); of a batch, the sum.
  [[nodiscard]] std::size_t byte_count() const { return byte_count_; }
  [[nodiscard]] std::span<std::byte> target() const { return operation_.target(); }
  [[nodiscard]] std::span<const std::byte> source() const { return operation_.source(); }
  /// True if an early end was asked for: movers look between two pieces.
  [[nodiscard]] bool stop_requested() const noexcept;
  /// True if its job was accepted before it could begin: a mover that could take more than it may
  /// takes it all the same.
  [[nodiscard]] bool is_overdue() const { return overdue_; }

  /// Sets what is to be done. Only while no mover has the request.
  void assign(const Operation& operation, const Batch& batch, std::size_t byte_count) noexcept {
    operation_ = operation;
    batch_ = batch;
    byte_count_ = byte_count;
  }

  /// As assign(), of a batch; operation() is not changed.
  void assign_batch(const Batch& batch, std::size_t byte_count) noexcept {
    batch_ = batch;
    byte_count_ = byte_count;
  }

  /// Ends the request, which may be gone when this returns; hold no lock. The state of `end` is
  /// `stopped` if the rest was left because of a stop; what else it says does not matter, because
  /// it follows from the cause. Fewer bytes than there are without a stop, a cause or a difference
  /// are a broken contract (checked).
  void complete(const Completion& end) noexcept;
  /// As complete(), if a device has done all of it and nothing was found out.
  void complete_by_device() noexcept {
    outcome = {.state = JobState::done, .bytes_done = byte_count_, .bytes_by_device = byte_count_};
    std::exchange(on_done_, nullptr)(*this, true);
  }

  // Room for the notes of the mover that has the request, under whatever lock it has. A mover that
  // refuses a request leaves `outcome` alone.
  Completion outcome;  ///< In the end, how it ended.
  Request* next = nullptr;
  std::size_t bytes_taken = 0;     ///< Given to some worker; never less than bytes_finished.
  std::size_t bytes_finished = 0;  ///< In place.
  std::uint32_t stripes_left = 0;  ///< Of a device: parts that have not ended.
  bool queued = false;             ///< True while bytes are left that no worker has.
  Atomic<std::uint32_t> slot_index{kNoSlot};  ///< Of a device: where to look first; a hint.

 private:
  friend class EngineState;
  friend class Job;

  bool overdue_ = false;
  /// Of a job: a JobState, flags and a count (src/engine/job_word.hpp). Else 0.
  Atomic<std::uint32_t> word_{static_cast<std::uint32_t>(JobState::idle)};
  Operation operation_;
  Batch batch_;
  std::size_t byte_count_ = 0;
  OnDone on_done_ = nullptr;
  /// Of a part: its job, which says whether to stop.
  const Request* whole_ = nullptr;
  Atomic<Mover*> mover_{nullptr};  ///< Who was asked last; a hint for pollers.
};

}  // namespace headrace::engine
