// SPDX-License-Identifier: Apache-2.0
// What is done at once: Engine::run, by the calling thread or by a device that it waits for, and
// small jobs by the thread that submits them; and what a thread that waits drives.
#include "engine_state.hpp"
#include "headrace/base/check.hpp"
#include "headrace/copy/dispatch.hpp"
#include "headrace/platform/cpu.hpp"
#include "headrace/platform/ticks.hpp"
#include "job_word.hpp"
#include "mapped.hpp"
#include "outcome.hpp"
#include "software/software.hpp"

namespace headrace::engine {
namespace {

/// How often run() asks full queues before it does without them.
constexpr int kTriesMax = 1000;

/// What run() does itself is timed from so many bytes on, and below one of so many: two looks at
/// the clock take as long as copying some KiB (bench/engine/meter/software.cpp).
constexpr std::size_t kTimedBytesMin = std::size_t{256} << 10U;
constexpr std::uint64_t kTimedOneOf = 16;
static_assert(kTimedBytesMin <= detail::kAskedBytesMin, "what is not timed is not asked about");

/// True while this thread ends a job that it did at once. What its callback and `then` submit goes
/// to others: each of a chain of them would need a stack of its own.
constinit thread_local bool ends_at_once = false;

/// As software::execute, or a named error where that would end the process.
ShareOutcome execute_if_accessible(const Operation& operation, bool check_memory) noexcept {
  if (const auto bad = detail::inaccessible(operation, check_memory)) {
    return {.cause = Cause::page_fault, .fault_address = *bad};
  }
  return software::execute(operation);
}

}  // namespace

inline void EngineState::count_run(std::size_t kind_index, const Completion& completion) noexcept {
  // Counts of their own.
  if (completion.state == JobState::done && !completion.fell_back) [[likely]] {
    kinds_[kind_index].runs_done.fetch_add_relaxed(1);
    kinds_[kind_index].bytes.fetch_add_relaxed(completion.bytes_done);
  } else {
    jobs_submitted_.fetch_add_relaxed(1);
    count_end(kind_index, completion);
  }
}

Submit EngineState::run(const Operation& operation, Completion& completion,
                        const SubmitOptions& options) {
  const Submit valid = operation.validate();
  if (valid != Submit::accepted) return valid;
  if (is_forked()) return Submit::forked;
  if (!options.after.empty()) return run_after(operation, completion, options);
  const std::size_t byte_count = operation.byte_count();
  const Path asked = options.path.value_or(settings_.path);
  const bool has_hardware = software_count_ < movers_.size();
  const bool wants_hardware = prefers_hardware(asked, byte_count, settings_.thresholds.synchronous);
  if (has_hardware && wants_hardware) {
    const Submit answer = run_by_device(operation, completion, options);
    if (answer != Submit::full) return answer;
  }
  if (!enter(1)) return Submit::closed;
  const auto kind_index = static_cast<std::size_t>(operation.kind());
  const bool fell_back = wants_hardware && (has_hardware || asked == Path::hardware);
  if (byte_count >= kTimedBytesMin || fell_back || settings_.check_memory ||
      kinds_[kind_index].runs_done.load_relaxed() % kTimedOneOf == 0) {  // Roughly is enough.
    run_timed(operation, completion, fell_back);
  } else {
    if (operation.is_plain_copy()) {  // Most are, and there is nothing to be told of them.
      copy::move_bytes(operation.target().data(), operation.source().data(), byte_count);
      completion = {.state = JobState::done, .bytes_done = byte_count};
    } else {
      completion = detail::to_completion(software::execute(operation));
    }
    count_run(kind_index, completion);
  }
  leave();
  // From here on they may stop the engine, or end it.
  if (options.callback != nullptr) options.callback(options.callback_context, completion);
  if (options.then != nullptr) options.then(options.then_context);
  return Submit::accepted;
}

void EngineState::run_timed(const Operation& operation, Completion& completion, bool fell_back) {
  const std::uint64_t begun_ticks = platform::ticks();
  ShareOutcome outcome = execute_if_accessible(operation, settings_.check_memory);
  outcome.fell_back = fell_back;
  completion = detail::to_completion(outcome);
  const auto kind_index = static_cast<std::size_t>(operation.kind());
  count_time(kind_index, begun_ticks);
  count_run(kind_index, completion);
}

/// Returns: `full` if no device took it for as long as it is tried; nothing was begun then.
Submit EngineState::run_by_device(const Operation& operation, Completion& completion,
                                  const SubmitOptions& options) {
  SubmitOptions by_device = options;
  by_device.path = Path::hardware;
  // The end of the job is seen before whoever ends it has called this: it would come too late.
  by_device.then = nullptr;
  Job job;
  for (int tries = 0; tries < kTriesMax; ++tries) {
    // However often it is tried, it is one call that had to wait.
    if (tries == 1) kinds_[static_cast<std::size_t>(operation.kind())].retries.fetch_add_relaxed(1);
    const Submit answer = try_start(job, operation, {}, operation.byte_count(), by_device);
    if (answer == Submit::accepted) {
      completion = job.wait();
      // From here on they may stop the engine, or end it.
      if (tries != 0) ++completion.retries;
      if (options.then != nullptr) options.then(options.then_context);
    } else if (answer == Submit::closed) {
      submissions_refused_.fetch_add_relaxed(1);  // A count of its own.
    }
    if (answer != Submit::full) return answer;
    poll();
    platform::pause();
  }
  return Submit::full;
}

bool EngineState::is_ending_one_done_at_once() noexcept {
  return ends_at_once;
}

/// By the calling thread: the job has ended when this returns.
Submit EngineState::do_at_once(Job& job, const Operation& operation, const Batch& batch,
                               const SubmitOptions& options) noexcept {
  HEADRACE_CHECK(!detail::is_running(job.word_.load_acquire()),  // edge: job-ended (acquire)
                 "a running job cannot be submitted");
  if (is_forked()) return Submit::forked;
  if (!enter(1)) {
    submissions_refused_.fetch_add_relaxed(1);  // A count of its own.
    return Submit::closed;
  }
  prepare(job, operation, options);
  job.batch_ = batch;
  job.engine_ = this;
  job.fork_count_ = fork_count_;
  job.polled_ = false;
  job.share_count_ = 0;
  jobs_submitted_.fetch_add_relaxed(1);                         // A count of its own.
  job.word_.store_release(detail::word_of(JobState::running));  // edge: job-submitted (release)
  job.completion_ = detail::to_completion(
      batch.operations.empty() ? execute_if_accessible(operation, settings_.check_memory)
                               : software::execute_batch(batch, job, settings_.check_memory));
  ends_at_once = true;
  end_job(job);
  ends_at_once = false;
  return Submit::accepted;
}

void EngineState::poll_for(const Job& job) noexcept {
  if (job.held_back_) return poll();  // It may wait for any other.
  // The job is visited, so its shares are those of its submission.
  const auto poll_share = [](const Share& share) {
    // Relaxed: a hint; who is seen too early has nothing of the job yet.
    if (Mover* const mover = share.mover.load_relaxed()) mover->poll_share(share);
  };
  if (job.share_count_ == 1) [[likely]]  // Without a loop around the call.
    return poll_share(job.shares_[0]);
  for (std::uint32_t i = 0; i < job.share_count_; ++i) poll_share(job.shares_[i]);
}

bool EngineState::rest_for(const Job& job) noexcept {
  // One share is what most jobs have; of several, any may be the next to end.
  if (job.share_count_ != 1) return false;
  const Share& share = job.shares_[0];
  Mover* const mover = share.mover.load_relaxed();  // As in poll_for.
  return mover != nullptr && mover->rest(share);
}

}  // namespace headrace::engine
