// SPDX-License-Identifier: Apache-2.0
#include "headrace/engine/job.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "completions.hpp"
#include "engine_state.hpp"
#include "headrace/base/check.hpp"
#include "headrace/base/clock.hpp"
#include "headrace/base/names.hpp"
#include "headrace/base/trace.hpp"
#include "headrace/platform/process.hpp"
#include "headrace/platform/ticks.hpp"
#include "headrace/platform/wait.hpp"
#include "job_fields.hpp"
#include "job_word.hpp"
#include "waiter.hpp"

namespace headrace::engine {
namespace {

constexpr std::chrono::nanoseconds kForever = std::chrono::nanoseconds::max();
/// Longest UMWAIT on a line; a waiting thread checks its time limit in between.
constexpr std::chrono::nanoseconds kRestMax = std::chrono::microseconds(20);

constexpr auto kCauseMeanings = make_meanings<Cause>({
    {Cause::none, "Nothing failed."},
    {Cause::page_fault,
     "Memory at the address is not mapped or the access is not allowed: pass memory that is "
     "mapped, writable if it is a target, and within its file."},
    {Cause::device_error,
     "A device refused the operation: its status byte shows why; path cpu needs no device."},
    {Cause::device_dead,
     "A device did not answer in time and may still write to the target: do not use that memory "
     "until the device has been reset, and use path cpu or another queue."},
    {Cause::mover_refused,
     "The policy chose no mover that exists and supports the operation: use another policy, or "
     "none."},
    {Cause::integrity_error,
     "An integrity field does not match: the data, the tags or the requested format is wrong. Read "
     "the data again, or pass the format that it was written with."},
    {Cause::bad_record,
     "The delta record does not belong to such a target: create it again with create_delta."},
    {Cause::batch_failed,
     "An operation of the batch failed: the completion of each shows which and why."},
    {Cause::forked,
     "The job belongs to the parent of this process and continues there: wait for it in the "
     "parent, or make an engine in the child."},
    {Cause::fence_broken,
     "An operation before its fence failed, so this one did not start: fix that one and submit "
     "both again."},
    {Cause::predecessor_failed,
     "A predecessor of the job failed or was stopped, so this job did not start: fix that one and "
     "submit both again."},
});

}  // namespace

std::string_view explain(Cause cause) {
  return meaning(kCauseMeanings, cause, "unknown");
}

/// Keeps the engine of a running job alive while a call drives it: by the thread's Visitor
/// (gate.hpp), or by a pin of the job if that is in use or the job's word asks for it. The count of
/// a running job in the gate keeps the engine alive; once the job has completed, its last pin
/// releases that count.
///
/// Threading: owned.
class Job::Visit {
 public:
  /// `seen` is the word as last read.
  [[gnu::always_inline]] Visit(Job& job, std::uint32_t seen) : job_(job) {
    const std::uint32_t number = platform::thread_number();
    if ((seen & detail::kPinFlag) != 0 || number == platform::kThreadNumberMax ||
        visitors[number].engine.load_relaxed() != 0) [[unlikely]] {  // Its own.
      engine_ = pin(job, seen);
      return;
    }
    EngineState* const engine = job.fields().engine;
    const std::uint32_t fork_count = job.fields().fork_count.load_relaxed();  // As the engine.
    visitors[number].begin(EngineState::key_of(engine, fork_count));
    if (job.state() == JobState::running) [[likely]] {
      engine_ = engine;
      visitor_ = &visitors[number];
    } else {
      visitors[number].end();
    }
  }
  Visit& operator=(Visit&&) = delete;
  [[gnu::always_inline]] ~Visit() {
    if (engine_ != nullptr) static_cast<void>(end());
  }
  /// Null if the job has completed.
  [[nodiscard]] EngineState* engine() const { return engine_; }
  /// The caller unpins the job, which has `then`.
  void release() { engine_ = nullptr; }
  /// Returns whether the job has ended.
  [[gnu::always_inline]] bool end() {
    EngineState& engine = *std::exchange(engine_, nullptr);
    if (visitor_ == nullptr) [[unlikely]]
      return unpin(job_, engine);
    visitor_->end();
    return job_.state() != JobState::running;
  }

  /// Returns whether the job has ended.
  static bool unpin(Job& job, EngineState& engine) {
    const std::uint64_t gate_set = job.fields().gate_set;
    // edge: job-ended (acq_rel)
    // edge: job-visited (acq_rel)
    const std::uint32_t before = job.word_.fetch_sub_acq_rel(detail::kPin);
    if (detail::is_running(before)) return false;
    if (detail::pin_count(before) == 1) engine.leave(gate_set);
    return true;
  }

 private:
  /// Returns the engine; null if the job has completed.
  [[gnu::noinline]] static EngineState* pin(Job& job, std::uint32_t seen) {
    while (detail::is_running(seen)) {
      // edge: job-submitted (acq_rel)
      if (job.word_.compare_exchange_acq_rel(seen, seen + detail::kPin)) {
        return job.fields().engine;
      }
    }
    return nullptr;
  }

  Job& job_;
  EngineState* engine_ = nullptr;
  Visitor* visitor_ = nullptr;  ///< Null if the job is pinned.
};

/// What a visit of a job with `then` becomes, because `then` may submit the job again during it, or
/// destroy it on this thread: a count in the gate, and no pin.
///
/// Threading: owned.
class Job::Stay {
 public:
  /// `end`: as in wait_for().
  Stay(Job& job, EngineState& engine, Completion* end)
      : job_(&job), engine_(engine), end_(end), outer_(std::exchange(innermost_, this)) {
    // The job's other fields may change once it is not pinned.
    if (!job.fields().held_back && job.fields().part_count == 1)
      mover_ = job.mover_.load_relaxed();  // A hint.
    engine.stay();
    static_cast<void>(Visit::unpin(job, engine));
  }
  Stay& operator=(Stay&&) = delete;
  ~Stay() {
    innermost_ = outer_;
    engine_.leave(Gate::kStaying);
  }
  /// `then` has destroyed the job.
  [[nodiscard]] bool is_over() const { return job_ == nullptr; }
  void reap() const { mover_ != nullptr ? mover_->reap(*job_) : engine_.poll(); }
  [[nodiscard]] bool rest() const { return mover_ != nullptr && mover_->rest(*job_); }
  /// `job` is being destroyed.
  static void end_those_of(const Job& job) {
    for (Stay* stay = innermost_; stay != nullptr; stay = stay->outer_) {
      if (stay->job_ != &job) continue;
      stay->job_ = nullptr;
      if (stay->end_ != nullptr) *stay->end_ = job.outcome;
    }
  }

 private:
  /// Those of this thread.
  [[gnu::tls_model("initial-exec")]] static constinit thread_local Stay* innermost_;

  Job* job_;
  EngineState& engine_;
  Completion* const end_;
  Stay* const outer_;
  Mover* mover_ = nullptr;
};

constinit thread_local Job::Stay* Job::Stay::innermost_ = nullptr;

Job::Job() {
  new (fields_) Fields;
}

Job::~Job() {
  stop();
  if (state() == JobState::running) wait();
  Stay::end_those_of(*this);
}

JobState Job::state() const {
  return detail::state_of(word_.load_acquire());  // edge: job-ended (acquire)
}

namespace {

/// A wait for `job` since `begun_ticks`, or now; `count` as in docs/reference/trace.md.
bool record_wait(const Job& job, std::uint64_t begun_ticks, bool has_ended, std::uint32_t count) {
  trace::record({.begin_ticks = begun_ticks,
                 .id = trace::id_of(&job),
                 .kind = trace::Kind::wait,
                 .count = has_ended ? count : 0});
  return has_ended;
}

}  // namespace

/// poll() of a usual copy.
inline bool Job::poll_usual(Visitor& visitor) {
  const std::uint32_t fork_count = fields().fork_count.load_relaxed();  // As the engine.
  visitor.begin(EngineState::key_of(fields().engine, fork_count));
  if (state() == JobState::running) [[likely]] {
    Mover* const mover = mover_.load_relaxed();  // A hint, null while it is submitted.
    if (mover != nullptr) mover->reap(*this);
  }
  visitor.end();
  return state() != JobState::running;
}

bool Job::poll() {
  const auto poll_now = [this] {
    // edge: job-ended (acquire)
    // edge: job-submitted (acquire)
    const std::uint32_t word = word_.load_acquire();
    if (!detail::is_running(word)) [[unlikely]] {
      HEADRACE_CHECK(detail::state_of(word) != JobState::idle, "only a submitted job can end");
      return true;
    }
    if (end_in_child()) return true;
    if (!fields().polled.load_relaxed()) return false;  // Published with the word.
    // In this order: a job with a pin may be submitted again meanwhile.
    if ((word & detail::kPinFlag) == 0 && fields().usual_for != 0) [[likely]] {
      const std::uint32_t number = platform::thread_number();
      if (number != platform::kThreadNumberMax && visitors[number].engine.load_relaxed() == 0)
          [[likely]] {  // Its own.
        return poll_usual(visitors[number]);
      }
    }
    Visit visit(*this, word);
    EngineState* const engine = visit.engine();
    if (engine == nullptr) return true;
    if (fields().then != nullptr) [[unlikely]] {
      visit.release();
      return poll_in_stay(*engine);
    }
    engine->poll_for(*this);
    return visit.end();
  };
  const bool has_ended = poll_now();
  if (has_ended && trace::is_on()) [[unlikely]]
    return record_wait(*this, 0, true, 2);
  return has_ended;
}

bool Job::poll_in_stay(EngineState& engine) {
  const Stay stay(*this, engine, nullptr);
  stay.reap();
  return stay.is_over() || state() != JobState::running;
}

const Completion& Job::wait() {
  static_cast<void>(wait_for(kForever));
  return outcome;
}

bool Job::wait_for(std::chrono::nanoseconds time_max, Completion* end) {
  const auto wait_now = [&] {
    // edge: job-ended (acquire)
    // edge: job-submitted (acquire)
    const std::uint32_t word = word_.load_acquire();
    HEADRACE_CHECK(detail::state_of(word) != JobState::idle, "only a submitted job can end");
    const auto ended = [&] {
      if (end != nullptr) *end = outcome;
      return true;
    };
    if (!detail::is_running(word) || end_in_child()) return ended();
    Visit visit(*this, word);
    EngineState* const engine = visit.engine();
    if (engine == nullptr) return ended();
    std::optional<Stay> stay;
    if (fields().then != nullptr) {
      visit.release();
      stay.emplace(*this, *engine, end);
    }
    // Avoids overflow of the sum with the current time.
    const bool for_ever = time_max >= kForever / 2;
    const std::chrono::nanoseconds until = for_ever ? kForever : steady_clock().now() + time_max;
    Waiter waiter(engine->waiting(), fields().polled.load_relaxed(), engine->wait_history(),
                  platform::ticks());
    // This thread may be the one that has to start it, if it waits inside a callback of another
    // job.
    engine->begin_due();
    while (!stay || !stay->is_over()) {
      const bool polled = fields().polled.load_relaxed();  // Of the current submission.
      if (polled && !stay) {
        engine->poll_for(*this);
      } else if (polled && poll() && stay->is_over()) {
        // `then` may also submit the job to another engine, so that each poll visits it.
        return true;
      }
      const std::uint64_t now = platform::ticks();
      if (state() != JobState::running) {
        waiter.end(now);
        return ended();
      }
      // After the check of the state: a wait of no time is a poll.
      const std::chrono::nanoseconds left = for_ever ? kForever : until - steady_clock().now();
      if (left <= std::chrono::nanoseconds(0)) return false;
      const auto rest = [&] {
        if (polled) return stay ? stay->rest() : engine->rest_for(*this);
        return rest_on_line(&word_, kRestMax, [&] { return state() != JobState::running; });
      };
      waiter.pass(now, rest, [&](std::chrono::nanoseconds time) {
        if (polled) return platform::sleep(std::min(left, time));
        const std::uint32_t seen = detail::set_flag(word_, detail::kSleeperFlag);
        if (seen != 0) platform::sleep_on_word(word_, seen, left);
      });
    }
    return true;
  };
  if (!trace::is_on()) [[likely]]
    return wait_now();
  const std::uint64_t begun_ticks = platform::ticks();
  return record_wait(*this, begun_ticks, wait_now(), 1);
}

bool Job::end_in_child() {
  if (platform::fork_count() == fields().fork_count.load_relaxed())
      [[likely]]  // Published with the word.
    return false;
  // The movers and the job belong to the parent; the child's copy would never complete.
  detail::note_unbegun(*this, {.cause = Cause::forked});
  word_.store_release(detail::word_of(JobState::failed));  // edge: job-ended (release)
  return true;
}

const Completion& Job::completion() const {
  const JobState now = state();
  HEADRACE_CHECK(now != JobState::idle && now != JobState::running, "the job has ended", now);
  return outcome;
}

void Job::stop() {
  static_cast<void>(detail::set_flag(word_, detail::kStopFlag));
}

}  // namespace headrace::engine
