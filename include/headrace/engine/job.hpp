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

class Engine;
class Job;

/// The contiguous part of a job that one mover moves. It lies in the job, so that no submission
/// allocates.
struct Share {
  Job* job = nullptr;
  std::span<std::byte> target;
  std::span<const std::byte> source;
  /// For the mover that holds the share: link of its queue.
  Share* next = nullptr;
  /// For the mover that holds the share: how much of it has been handed out and how much is
  /// finished.
  Atomic<std::size_t> bytes_taken{0};
  Atomic<std::size_t> bytes_finished{0};
};

/// One unit of asynchronous work. Not movable: movers hold its address while it runs.
///
/// Ownership: the caller owns the job and both buffers and keeps them alive and in place until the
/// job has
///            ended. Destroying a running job stops it and waits for it.
/// Threading: shared - any thread may poll, wait and stop; one at a time may submit.
class HEADRACE_API Job {
 public:
  /// A job is split among at most this many movers (a Xeon Max has 8 devices).
  static constexpr std::size_t kShareMax = 8;

  /// Called once per submission by the thread that finishes the job, before any waiter returns. It
  /// must not block, throw, or submit, wait for or destroy this job; it may submit others.
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
  friend class Engine;
  friend class Mover;

  std::array<Share, kShareMax> shares_;
  Completion completion_;
  Callback callback_ = nullptr;
  void* callback_context_ = nullptr;
  Engine* engine_ = nullptr;
  Atomic<std::uint32_t> state_{static_cast<std::uint32_t>(JobState::idle)};
  Atomic<std::uint32_t> stop_requested_{0};
  Atomic<std::uint32_t> shares_left_{0};
};

}  // namespace headrace::engine
