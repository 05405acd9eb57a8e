// SPDX-License-Identifier: Apache-2.0
// Job: one submission, from its start to its end. The caller owns its memory.
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
#include "headrace/engine/request.hpp"

namespace headrace::engine {

/// What to copy. Both spans have the same length; they may be equal but not overlap otherwise.
struct CopyPlan {
  std::span<std::byte> target;
  std::span<const std::byte> source;
};

/// What a thread does while it waits for a job.
enum class Waiting : std::uint8_t {
  /// Looks for as long as has paid lately, then rests, at last sleeps (docs/concepts/engine.md).
  adaptive,
  spin,    ///< Looks again at once, without end: soonest to see, and takes a whole processor.
  umwait,  ///< Rests on the line that will change, by UMONITOR and UMWAIT; else as spin.
  sleep,   ///< Sleeps at once: until it is woken, or for a part of what it has waited.
};

class EngineState;
class Job;
struct PartBlock;

/// Indexes of movers, without duplicates.
///
/// Threading: confined.
class MoverChoice {
 public:
  /// A job is split among at most this many movers (a Xeon Max has 8 devices).
  static constexpr std::size_t kMoverMax = 8;

  /// Adds a mover; ignored beyond kMoverMax and for one that is there already.
  void add(std::size_t mover_index) {
    for (std::size_t i = 0; i < count_; ++i) {
      if (chosen_[i] == mover_index) return;
    }
    if (count_ < kMoverMax) chosen_[count_++] = static_cast<std::uint32_t>(mover_index);
  }
  [[nodiscard]] std::span<const std::uint32_t> chosen() const { return {chosen_.data(), count_}; }
  void clear() { count_ = 0; }

 private:
  std::uint32_t count_ = 0;
  std::array<std::uint32_t, kMoverMax> chosen_{};
};

/// Who carries out a submission: route() decides it.
struct Route {
  enum class By : std::uint8_t {
    movers,
    calling_thread,  ///< Before the submission returns.
    none,            ///< The policy chose no mover, or one that does not exist.
  };
  By by = By::movers;
  /// Another mover, or the calling thread, does it than was asked for.
  bool fell_back = false;
  /// Nothing said which of its kind: any other device, or processor, will do if this one is full.
  bool any = false;
  /// Processors will do if the devices are full.
  bool or_processors = false;
  /// Indexes into RouteFacts::movers.
  MoverChoice movers = {};
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
class HEADRACE_API Job final : private Request {
 public:
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
  /// True if stop() was called since the submission.
  using Request::stop_requested;
  /// What was submitted last; of a batch, no_op.
  using Request::batch;
  using Request::operation;

 private:
  friend class EngineState;
  class Visit;

  /// Ends the job in a child of the process that submitted it. Returns whether this is one. Does
  /// not ask the engine: that may be destroyed as soon as the job has ended, and only a Visit keeps
  /// it.
  [[nodiscard]] bool end_in_child();

  // What a submission says. Written by the submitter while the job does not run; published by the
  // edges `job-submitted` and those of the movers.
  Callback callback_ = nullptr;
  void* callback_context_ = nullptr;
  /// Called after the last touch of the job.
  void (*then_)(void* context) noexcept = nullptr;
  void* then_context_ = nullptr;
  EngineState* engine_ = nullptr;
  /// The engine's: forks of the process until it was made.
  std::uint32_t fork_count_ = 0;
  std::uint64_t begun_ticks_ = 0;
  Waiting waiting_ = Waiting::adaptive;
  /// True if a mover of the job has no thread: a waiting thread polls instead of sleeping. Of a job
  /// that was held back, if any mover of the engine has none.
  bool polled_ = false;
  /// It was accepted before it could begin: a waiting thread polls all movers.
  bool held_back_ = false;
  /// Its `fell_back` is written while a part is still in the submitter's hands.
  Route route_;
  std::uint32_t turn_ = 0;

  /// Parts of a job that is split; 1 if it is not.
  std::uint32_t part_count_ = 1;
  PartBlock* parts_ = nullptr;
  /// Parts that have not ended, among them those that no mover has yet.
  Atomic<std::uint32_t> parts_left_{0};

  // Of a job that is held back until others have ended: see src/engine/dependants.hpp.
  /// Of those it waits for, and one for the submission, how many have not ended; and whether one
  /// failed.
  Atomic<std::uint32_t> predecessors_left_{0};
  /// Its places in their lists; then the first in that of the jobs that can begin.
  std::array<DependantLink, kPredecessorMax> links_;
  /// Those that wait for this job. Empty unless it runs.
  Atomic<DependantLink*> dependants_{nullptr};
};

}  // namespace headrace::engine
