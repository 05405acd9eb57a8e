// SPDX-License-Identifier: Apache-2.0
// Awaiting the end of an operation in a C++20 coroutine: `co_await start(engine, operation)`.
// Not for: a task type or a scheduler; any coroutine can await this.
#pragma once

#include "headrace/base/export.hpp"  // First: says that <coroutine> needs C++20.

#include <coroutine>
#include <cstdint>
#include <type_traits>

#include "headrace/base/atomic.hpp"
#include "headrace/base/check.hpp"
#include "headrace/engine/engine.hpp"

namespace headrace::engine {

/// What became of an operation that was awaited.
struct Ended {
  /// Unless this is `accepted` nothing was started, and the completion says nothing.
  Submit submit = Submit::accepted;
  Completion completion = {};
  [[nodiscard]] bool is_done() const {
    return submit == Submit::accepted && completion.state == JobState::done;
  }
};

/// What start() gives: to be awaited once, at once. `Work` is an Operation or a Batch; `Held` a
/// Job, or a reference to one of the caller.
///
/// Ownership: holds or borrows the job; lies in the frame of the coroutine, so that nothing is
///            allocated.
/// Threading: confined.
template <typename Work, typename Held>
class [[nodiscard]] Awaitable final {
 public:
  /// `lent`: the job, if it is the caller's.
  template <typename... Lent>
  Awaitable(Engine& engine, const Work& work, const SubmitOptions& options, Lent&... lent)
      : engine_(engine), work_(work), options_(options), job_(lent...) {
    HEADRACE_CHECK(options.then == nullptr, "what follows an awaited job is its coroutine");
    options_.then = go_on;
    options_.then_context = this;
  }
  Awaitable(const Awaitable&) = delete;
  Awaitable& operator=(const Awaitable&) = delete;
  ~Awaitable() = default;

  [[nodiscard]] static constexpr bool await_ready() noexcept { return false; }
  /// False: it has ended or was refused, and the coroutine goes on at once. A job that ends inside
  /// its submission must not resume from in there: a loop of such jobs would fill the stack.
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
    // If it was not, this may be gone by now.
  }
  [[nodiscard]] Ended await_resume() const {
    if (submit_ != Submit::accepted) return {.submit = submit_};
    return {.completion = job_.completion()};
  }

 private:
  static constexpr std::uint32_t kSubmitting = 0;  // Reaches go_on() with the job.
  static constexpr std::uint32_t kSuspended = 1;
  static constexpr std::uint32_t kEnded = 2;

  static void go_on(void* context) noexcept {
    auto* const self = static_cast<Awaitable*>(context);
    const std::coroutine_handle<> waiting = self->waiting_;
    // edge: coroutine-suspended (acq_rel)
    if (self->stage_.exchange_acq_rel(kEnded) == kSuspended) waiting.resume();
    // Whichever comes second goes on; the first must not touch this any more.
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
/// Ownership: borrows the engine, and the bytes that the operation names, until the coroutine goes
///            on. The coroutine must not be destroyed before.
/// Returns:   a refusal, with which the coroutine goes on at once (`full`: try again later), or the
///            completion.
/// Completes: exactly once, on the thread that ended the job: a worker, a thread that polls a mover
///            without a thread, or the awaiting thread itself if the job ended while it was being
///            submitted. No lock is held: the coroutine may start others, but as long as it keeps a
///            worker or poller, that does nothing else.
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
/// As above, with a job that others may stop() as long as it exists: it has to outlive the calls
/// that they make. The coroutine goes on with JobState::stopped, or done if nothing was left.
[[nodiscard]] inline Awaitable<Operation, Job&> start(Engine& engine, Job& job,
                                                      const Operation& operation,
                                                      const SubmitOptions& options = {}) {
  return {engine, operation, options, job};
}

}  // namespace headrace::engine
