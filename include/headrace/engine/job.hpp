// SPDX-License-Identifier: Apache-2.0
// Job: handle of one submission, in memory that the caller owns.
// Not for: choosing what executes it (engine.hpp) or how (mover.hpp).
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

/// What to copy. The spans must have the same length, and be equal or disjoint.
struct CopyPlan {
  std::span<std::byte> target;
  std::span<const std::byte> source;
};

/// What a thread does while it waits for a job.
enum class Waiting : std::uint8_t {
  /// Spins as long as recently paid off, then rests, then sleeps (docs/concepts/engine.md).
  adaptive,
  spin,    ///< Spins: lowest latency, occupies a processor.
  umwait,  ///< Rests by UMONITOR and UMWAIT; without WAITPKG, spins.
  sleep,   ///< Sleeps until woken by a worker; for a device, for a fraction of the time waited.
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

  /// Adds a mover; ignores duplicates and those beyond kMoverMax.
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

/// What executes a submission; the result of route().
struct Route {
  enum class By : std::uint8_t {
    movers,
    calling_thread,  ///< Before the submission returns.
    none,            ///< The policy chose no mover, or an invalid one.
  };
  By by = By::movers;
  /// Not the requested mover or path.
  bool fell_back = false;
  /// If the mover is full, any other of its kind (device or processor) may take the job.
  bool any = false;
  /// If the devices are full, processors may take the job.
  bool or_processors = false;
  /// Indexes into RouteFacts::movers.
  MoverChoice movers = {};
};

/// Node of a predecessor's list of dependants; a member of the dependant.
struct DependantLink {
  DependantLink* next = nullptr;
  Job* job = nullptr;
};

/// One unit of asynchronous work. Not movable: movers hold its address while it runs.
///
/// Ownership: the caller owns the job and its buffers, and keeps both alive and in place until the
///            job has ended. Destroying a running job stops it and waits for it. The job may be
///            destroyed or submitted again once it has ended and every wait(), poll() and stop() of
///            it, and every submission that names it (SubmitOptions::after), has returned; by its
///            own `then` earlier (SubmitOptions::then).
/// Threading: shared - any thread may poll, wait and stop; one at a time may submit.
class HEADRACE_API Job final : private Request {
 public:
  /// Maximum number of predecessors. To wait for more, chain jobs of Operation::no_op.
  static constexpr std::size_t kPredecessorMax = 8;

  /// Called once per accepted submission, without any lock held, before any waiter returns and
  /// before state() leaves `running`. The calling thread is a mover's, one that polls or stops, or
  /// the submitting one inside its submission: for an empty plan, or a job that it executes itself
  /// (PathThresholds, SubmitOptions::inline_max, an engine without processors). Must not block,
  /// throw, stop the engine, or submit, wait for or destroy this job; may submit others.
  using Callback = void (*)(void* context, const Completion& completion) noexcept;

  Job() = default;
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job();

  [[nodiscard]] JobState state() const;
  /// Whether the job has ended. Never blocks; drives movers without a thread.
  [[nodiscard]] bool poll();
  /// Blocks until the job has ended, in the way of EngineOptions::waiting. The job must have been
  /// submitted (checked).
  ///
  /// Returns: outcome of the job; not to be read if `then` has destroyed or submitted the job.
  const Completion& wait();
  /// As wait(), with a timeout; a century or more: none. Returns whether the job has ended, and
  /// stores how to `end`, also if `then` has destroyed the job.
  [[nodiscard]] bool wait_for(std::chrono::nanoseconds time_max, Completion* end = nullptr);
  /// The job must have ended (checked).
  [[nodiscard]] const Completion& completion() const;
  /// Requests cancellation and returns immediately. Movers finish what they have begun and skip the
  /// rest; the job ends as stopped, or as done if nothing was left. A job that waits for
  /// predecessors ends after them without having begun. No effect on a job that is not running.
  void stop();
  /// True if stop() was called since the submission.
  using Request::stop_requested;
  /// The last submission; operation() of a batch is no_op.
  using Request::batch;
  using Request::operation;

 private:
  friend class EngineState;
  class Visit;
  class Stay;

  /// poll() of a job with `then`, which is pinned.
  [[nodiscard, gnu::noinline]] bool poll_in_stay(EngineState& engine);
  /// In a child of the submitting process, ends the job and returns true. Does not access the
  /// engine, which may be destroyed once the job has ended; only a Visit keeps it alive.
  [[nodiscard]] bool end_in_child();

  // Written by the submitter while the job does not run; published by the edges `job-submitted` and
  // those of the movers.
  Callback callback_ = nullptr;
  void* callback_context_ = nullptr;
  /// Called after the last touch of the job.
  void (*then_)(void* context) noexcept = nullptr;
  void* then_context_ = nullptr;
  EngineState* engine_ = nullptr;
  /// Forks of the process before its engine was made.
  Atomic<std::uint32_t> fork_count_{0};
  std::uint64_t begun_ticks_ = 0;
  /// A mover of the job (of a job with predecessors: of the engine) has no thread: a waiting thread
  /// polls instead of sleeping.
  Atomic<bool> polled_{false};
  /// Had to wait for predecessors when accepted: a waiting thread polls all movers.
  bool held_back_ = false;
  /// `fell_back` is written only while the submitter still holds a part.
  Route route_;
  std::uint32_t turn_ = 0;

  /// 1 if the job is not split.
  std::uint32_t part_count_ = 1;
  PartBlock* parts_ = nullptr;
  /// Parts that have not ended, including those not yet posted.
  Atomic<std::uint32_t> parts_left_{0};

  // Predecessors and dependants: see src/engine/dependants.hpp.
  /// Predecessors that have not ended, plus one for the submission, and a bit if one failed.
  Atomic<std::uint32_t> predecessors_left_{0};
  /// Nodes of the predecessors' lists; then links_[0] is in the queue of jobs ready to begin.
  std::array<DependantLink, kPredecessorMax> links_;
  /// Jobs that wait for this one. Empty unless it runs.
  Atomic<DependantLink*> dependants_{nullptr};
};

}  // namespace headrace::engine
