// SPDX-License-Identifier: Apache-2.0
// Awaiting the end of an operation in a C++20 coroutine: `co_await start(engine, operation)`.
// Not for: a task type or a scheduler; any coroutine can await this.
#pragma once

#include "headrace/base/export.hpp"

#include <coroutine>
#include <cstdint>

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

namespace detail {

/// Submits when it is awaited. What is common to those that bring a job and those that are lent
/// one.
///
/// Threading: confined.
class AwaitableBase {
 public:
  AwaitableBase(const AwaitableBase&) = delete;
  AwaitableBase& operator=(const AwaitableBase&) = delete;

  [[nodiscard]] static constexpr bool await_ready() noexcept { return false; }

 protected:
  AwaitableBase(Engine& engine, const Operation& operation, const Batch& batch, bool is_batch,
                const SubmitOptions& options)
      : engine_(&engine),
        operation_(operation),
        batch_(batch),
        is_batch_(is_batch),
        options_(options) {
    HEADRACE_CHECK(options.then == nullptr, "what follows an awaited job is its coroutine");
    options_.then = go_on;
    options_.then_context = this;
  }
  ~AwaitableBase() = default;

  /// False: it has ended or was refused, and the coroutine goes on at once. A job that ends inside
  /// its submission must not resume from in there: a loop of such jobs would fill the stack.
  [[nodiscard]] bool suspend(Job& job, std::coroutine_handle<> waiting) {
    waiting_ = waiting;
    stage_.store_relaxed(kSubmitting);  // Reaches go_on() with the job.
    submit_ = is_batch_ ? engine_->submit_batch(job, batch_, options_)
                        : engine_->submit(job, operation_, options_);
    if (submit_ != Submit::accepted) return false;
    // edge: coroutine-suspended (acq_rel)
    return stage_.exchange_acq_rel(kSuspended) != kEnded;
    // If it was not, this may be gone by now.
  }
  [[nodiscard]] Ended ended(const Job& job) const {
    if (submit_ != Submit::accepted) return {.submit = submit_};
    return {.completion = job.completion()};
  }

 private:
  static constexpr std::uint32_t kSubmitting = 0;
  static constexpr std::uint32_t kSuspended = 1;
  static constexpr std::uint32_t kEnded = 2;

  static void go_on(void* context) noexcept {
    auto* const self = static_cast<AwaitableBase*>(context);
    const std::coroutine_handle<> waiting = self->waiting_;
    // edge: coroutine-suspended (acq_rel)
    if (self->stage_.exchange_acq_rel(kEnded) == kSuspended) waiting.resume();
    // Whichever comes second goes on; the first must not touch this any more.
  }

  Engine* engine_;
  Operation operation_;
  Batch batch_;
  bool is_batch_;
  SubmitOptions options_;
  Submit submit_ = Submit::accepted;
  std::coroutine_handle<> waiting_;
  Atomic<std::uint32_t> stage_{kSubmitting};
};

}  // namespace detail

/// What start() gives: to be awaited once, at once.
///
/// Ownership: holds the job; lies in the frame of the coroutine, so that nothing is allocated.
/// Threading: confined.
class [[nodiscard]] Awaitable final : public detail::AwaitableBase {
 public:
  Awaitable(Engine& engine, const Operation& operation, const SubmitOptions& options)
      : AwaitableBase(engine, operation, {}, false, options) {}
  Awaitable(Engine& engine, const Batch& batch, const SubmitOptions& options)
      : AwaitableBase(engine, {}, batch, true, options) {}

  [[nodiscard]] bool await_suspend(std::coroutine_handle<> waiting) {
    return suspend(job_, waiting);
  }
  [[nodiscard]] Ended await_resume() const { return ended(job_); }

 private:
  Job job_;
};

/// As Awaitable, with a job of the caller, who can stop it.
///
/// Ownership: borrows the job.
/// Threading: confined.
class [[nodiscard]] AwaitableJob final : public detail::AwaitableBase {
 public:
  AwaitableJob(Engine& engine, Job& job, const Operation& operation, const SubmitOptions& options)
      : AwaitableBase(engine, operation, {}, false, options), job_(job) {}

  [[nodiscard]] bool await_suspend(std::coroutine_handle<> waiting) {
    return suspend(job_, waiting);
  }
  [[nodiscard]] Ended await_resume() const { return ended(job_); }

 private:
  Job& job_;
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
[[nodiscard]] inline Awaitable start(Engine& engine, const Operation& operation,
                                     const SubmitOptions& options = {}) {
  return {engine, operation, options};
}
/// As above, for all operations of `batch`.
[[nodiscard]] inline Awaitable start(Engine& engine, const Batch& batch,
                                     const SubmitOptions& options = {}) {
  return {engine, batch, options};
}
/// As above, with a job that others may stop() as long as it exists: it has to outlive the calls
/// that they make. The coroutine goes on with JobState::stopped, or done if nothing was left.
[[nodiscard]] inline AwaitableJob start(Engine& engine, Job& job, const Operation& operation,
                                        const SubmitOptions& options = {}) {
  return {engine, job, operation, options};
}

}  // namespace headrace::engine
