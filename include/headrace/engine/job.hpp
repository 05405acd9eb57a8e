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
struct Visitor;

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
  /// Chooses this mover alone.
  void set(std::size_t mover_index) {
    count_ = 1;
    chosen_[0] = static_cast<std::uint32_t>(mover_index);
  }
  [[nodiscard]] std::span<const std::uint32_t> chosen() const { return {chosen_.data(), count_}; }
  void clear() { count_ = 0; }

 private:
  std::uint32_t count_ = 0;
  std::array<std::uint32_t, kMoverMax> chosen_{};
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

  Job();
  Job& operator=(Job&&) = delete;
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

  [[nodiscard]] bool poll_usual(Visitor& visitor);
  /// poll() of a job with `then`, which is pinned.
  [[nodiscard, gnu::noinline]] bool poll_in_stay(EngineState& engine);
  /// In a child of the submitting process, ends the job and returns true. Does not access the
  /// engine, which may be destroyed once the job has ended; only a Visit keeps it alive.
  [[nodiscard]] bool end_in_child();

  /// What the engine keeps in a job: src/engine/job_fields.hpp.
  struct Fields;
  [[nodiscard]] Fields& fields() noexcept;
  [[nodiscard]] const Fields& fields() const noexcept;
  alignas(8) std::byte fields_[320];
};

}  // namespace headrace::engine
