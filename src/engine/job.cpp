// SPDX-License-Identifier: Apache-2.0
#include "headrace/engine/job.hpp"

#include <thread>

#include "engine_state.hpp"
#include "headrace/base/check.hpp"
#include "headrace/base/clock.hpp"
#include "headrace/platform/cpu.hpp"
#include "headrace/platform/fork.hpp"
#include "headrace/platform/wait.hpp"
#include "job_word.hpp"
#include "parking_lot.hpp"

namespace headrace::engine {
namespace {

/// Looks at the word before sleeping. A sleep and its wake-up cost several microseconds, a look
/// about 50 ns, and a copy of a few KiB is often done by then.
constexpr int kSpinMax = 100;
constexpr std::chrono::nanoseconds kForever = std::chrono::nanoseconds::max();
/// Rounds of polling before the processor rests or is offered to others each time, and before it
/// sleeps: a device that takes so long is not missed for some microseconds.
constexpr int kPollBeforeRestMax = 100;
constexpr int kPollBeforeSleepMax = 5000;
constexpr std::chrono::nanoseconds kSleep = std::chrono::microseconds(50);

}  // namespace

std::string_view name(JobState state) {
  switch (state) {
    case JobState::idle:
      return "idle";
    case JobState::running:
      return "running";
    case JobState::done:
      return "done";
    case JobState::failed:
      return "failed";
    case JobState::stopped:
      return "stopped";
  }
  return "unknown";
}

std::string_view name(Cause cause) {
  switch (cause) {
    case Cause::none:
      return "none";
    case Cause::page_fault:
      return "page_fault";
    case Cause::device_error:
      return "device_error";
    case Cause::device_dead:
      return "device_dead";
    case Cause::mover_refused:
      return "mover_refused";
    case Cause::integrity_error:
      return "integrity_error";
    case Cause::bad_record:
      return "bad_record";
    case Cause::batch_failed:
      return "batch_failed";
    case Cause::forked:
      return "forked";
    case Cause::fence_broken:
      return "fence_broken";
    case Cause::predecessor_failed:
      return "predecessor_failed";
  }
  return "unknown";
}

/// One call that drives the engine of a running job. While the job runs, its presence in the gate
/// keeps the engine alive; once it has ended, its last visitor leaves the gate in its stead.
///
/// Threading: owned.
class Job::Visit {
 public:
  explicit Visit(Job& job) : job_(job) {
    std::uint32_t seen = job.word_.load_relaxed();  // The exchange below decides.
    while (detail::is_running(seen)) {
      // edge: job-submitted (acq_rel)
      if (!job.word_.compare_exchange_acq_rel(seen, seen + detail::kVisitor)) continue;
      engine_ = job.engine_;
      return;
    }
  }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;
  ~Visit() {
    if (engine_ == nullptr) return;
    // edge: job-visited (acq_rel)
    const std::uint32_t before = job_.word_.fetch_sub_acq_rel(detail::kVisitor);
    if (!detail::is_running(before) && detail::visitor_count(before) == 1) engine_->leave();
  }
  /// Nothing if the job has ended.
  [[nodiscard]] EngineState* engine() const { return engine_; }

 private:
  Job& job_;
  EngineState* engine_ = nullptr;
};

Job::~Job() {
  stop();
  if (state() == JobState::running) wait();
}

JobState Job::state() const {
  return detail::state_of(word_.load_acquire());  // edge: job-ended (acquire)
}

bool Job::poll() {
  // edge: job-ended (acquire)
  // edge: job-submitted (acquire)
  const std::uint32_t word = word_.load_acquire();
  HEADRACE_CHECK(detail::state_of(word) != JobState::idle, "only a submitted job can end");
  if (!detail::is_running(word)) return true;
  if (is_forked()) return abandon_in_child();
  if (!polled_) return false;
  {
    const Visit visit(*this);
    if (visit.engine() != nullptr) visit.engine()->poll_for(*this);
  }
  return state() != JobState::running;
}

const Completion& Job::wait() {
  static_cast<void>(wait_for(kForever));
  return completion_;
}

bool Job::wait_for(std::chrono::nanoseconds time_max) {
  // edge: job-ended (acquire)
  // edge: job-submitted (acquire)
  const std::uint32_t word = word_.load_acquire();
  HEADRACE_CHECK(detail::state_of(word) != JobState::idle, "only a submitted job can end");
  if (!detail::is_running(word)) return true;
  if (is_forked()) return abandon_in_child();
  // A sum with the time of day must not overflow.
  const bool for_ever = time_max >= kForever / 2;
  const std::chrono::nanoseconds until = for_ever ? kForever : steady_clock().now() + time_max;
  if (polled_) {
    wait_polling(until);
  } else {
    wait_sleeping(until);
  }
  return state() != JobState::running;
}

bool Job::is_forked() const {
  return platform::fork_count() != fork_count_;
}

bool Job::abandon_in_child() {
  // What moves the bytes is the parent's, and so is the job; this copy of it never ends by itself.
  completion_ = {.state = JobState::failed, .cause = Cause::forked};
  word_.store_release(detail::word_of(JobState::failed));  // edge: job-ended (release)
  return true;
}

void Job::wait_sleeping(std::chrono::nanoseconds until) {
  for (int spin = 0; spin < kSpinMax; ++spin) {
    if (state() != JobState::running) return;
    platform::pause();
  }
  if (held_back_) {
    // Perhaps this thread is about to begin it: the wait is in a callback of another one's.
    const Visit visit(*this);
    if (visit.engine() != nullptr) visit.engine()->begin_due();
  }
  detail::ParkingBucket& bucket = detail::parking_bucket(this);
  const Lock lock(bucket.mutex);
  while (detail::set_flag(word_, detail::kSleeperFlag)) {
    if (until == kForever) {
      bucket.condition.wait(bucket.mutex);
      continue;
    }
    const std::chrono::nanoseconds left = until - steady_clock().now();
    if (left <= std::chrono::nanoseconds(0)) return;
    static_cast<void>(bucket.condition.wait_for(bucket.mutex, left));
  }
  static_cast<void>(state());  // edge: job-ended (acquire), inside.
}

void Job::wait_polling(std::chrono::nanoseconds until) {
  const Visit visit(*this);
  if (visit.engine() == nullptr) return;
  for (int round = 0; state() == JobState::running; ++round) {
    visit.engine()->poll_for(*this);
    if (round < kPollBeforeRestMax) {
      platform::pause();
      continue;
    }
    if (until != kForever && steady_clock().now() >= until) return;
    if (round < kPollBeforeSleepMax) {
      if (!visit.engine()->rest_for(*this)) std::this_thread::yield();
    } else {
      platform::sleep(kSleep);
    }
  }
}

const Completion& Job::completion() const {
  const JobState now = state();
  HEADRACE_CHECK(now != JobState::idle && now != JobState::running, "the job has ended", now);
  return completion_;
}

void Job::stop() {
  static_cast<void>(detail::set_flag(word_, detail::kStopFlag));
}

bool Job::stop_requested() const {
  return (word_.load_relaxed() & detail::kStopFlag) != 0;  // Advice; carries no data.
}

}  // namespace headrace::engine
