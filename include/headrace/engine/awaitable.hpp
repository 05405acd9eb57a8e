// SPDX-License-Identifier: Apache-2.0
// Awaits an operation in a C++20 coroutine: `co_await start(engine, operation)`.
// Not here: a task type or a scheduler; any coroutine can await this.
#pragma once

#include "headrace/base/export.hpp"  // First: its error names C++20 if <coroutine> is missing.

#include <coroutine>
#include <cstdint>
#include <type_traits>

#include "headrace/base/atomic.hpp"
#include "headrace/base/check.hpp"
#include "headrace/engine/engine.hpp"

namespace headrace::engine {

/// Result of an awaited operation.
struct Ended {
  /// Unless `accepted`, nothing was started and `completion` is empty.
  Submit submit = Submit::accepted;
  Completion completion = {};
  [[nodiscard]] bool is_done() const {
    return submit == Submit::accepted && completion.state == JobState::done;
  }
};

/// Returned by start(), to be awaited once, immediately. `Work` is an Operation or a Batch; `Held`
/// a Job, or a reference to one of the caller.
///
/// Ownership: holds or borrows the job; is in the coroutine frame, so nothing is allocated.
/// Threading: confined.
template <typename Work, typename Held>
class [[nodiscard]] Awaitable final {
 public:
  /// `lent`: the job, if the caller owns it.
  template <typename... Lent>
  Awaitable(Engine& engine, const Work& work, const SubmitOptions& options, Lent&... lent)
      : engine_(engine), work_(work), options_(options), job_(lent...) {
    HEADRACE_CHECK(options.then == nullptr, "what follows an awaited job is its coroutine");
    options_.then = go_on;
    options_.then_context = this;
  }
  Awaitable& operator=(Awaitable&&) = delete;
  ~Awaitable() = default;

  [[nodiscard]] static constexpr bool await_ready() noexcept { return false; }
  /// Returns false if the job has ended or was refused: the coroutine resumes immediately. A job
  /// that ends inside its submission must not resume it there: a loop of such jobs would overflow
  /// the stack.
  [[nodiscard]] bool await_suspend(std::coroutine_handle<> waiting) {
    waiting_ = waiting;
    if constexpr (std::is_same_v<Work, Batch>) {
      submit_ = engine_.submit_batch(job_, work_, options_);
    } else {
      submit_ = engine_.submit(job_, work_, options_);
    }
    if (submit_ != Submit::accepted) return false;
    // edge: coroutine-suspended (acq_rel)
    return stage_.exchange_acq_rel(kSuspended) != kEnded;
    // If suspended, `this` may be destroyed by now.
  }
  [[nodiscard]] Ended await_resume() const {
    if (submit_ != Submit::accepted) return {.submit = submit_};
    return {.completion = job_.completion()};
  }

 private:
  static constexpr std::uint32_t kSubmitting = 0;  // Published to go_on() with the job.
  static constexpr std::uint32_t kSuspended = 1;
  static constexpr std::uint32_t kEnded = 2;

  static void go_on(void* context) noexcept {
    auto* const self = static_cast<Awaitable*>(context);
    const std::coroutine_handle<> waiting = self->waiting_;
    // edge: coroutine-suspended (acq_rel)
    if (self->stage_.exchange_acq_rel(kEnded) == kSuspended) waiting.resume();
    // The second of the two exchanges resumes; after the first, `self` may be destroyed.
  }

  Engine& engine_;
  Work work_;
  SubmitOptions options_;
  Held job_;
  Submit submit_ = Submit::accepted;
  std::coroutine_handle<> waiting_;
  Atomic<std::uint32_t> stage_{kSubmitting};
};

/// `co_await start(engine, operation)` submits `operation` and suspends the coroutine until it has
/// ended.
///
/// Ownership: borrows the engine, and the bytes that the operation names, until the coroutine
///            resumes. The coroutine must not be destroyed before.
/// Returns:   the completion, or a refusal (`full`: try again later) without suspending.
/// Completes: exactly once, on the thread that ended the job: a worker, a thread that polls a mover
///            without a thread, or the awaiting thread if the job ended during its submission. No
///            lock is held: the coroutine may start other operations, but until it suspends or
///            returns it occupies the worker or poller.
/// Cost:      as Engine::submit; no allocation, one atomic exchange on either side.
[[nodiscard]] inline Awaitable<Operation, Job> start(Engine& engine, const Operation& operation,
                                                     const SubmitOptions& options = {}) {
  return {engine, operation, options};
}
/// As above, for all operations of `batch`.
[[nodiscard]] inline Awaitable<Batch, Job> start(Engine& engine, const Batch& batch,
                                                 const SubmitOptions& options = {}) {
  return {engine, batch, options};
}
/// As above, with a job that other threads may stop(); it must outlive their calls. The coroutine
/// then resumes with JobState::stopped, or done if nothing was left.
[[nodiscard]] inline Awaitable<Operation, Job&> start(Engine& engine, Job& job,
                                                      const Operation& operation,
                                                      const SubmitOptions& options = {}) {
  return {engine, operation, options, job};
}

}  // namespace headrace::engine
