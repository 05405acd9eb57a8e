// SPDX-License-Identifier: Apache-2.0
#include "headrace/engine/job.hpp"

#include <thread>

#include "engine_state.hpp"
#include "headrace/base/check.hpp"
#include "headrace/platform/cpu.hpp"
#include "job_word.hpp"
#include "parking_lot.hpp"

namespace headrace::engine {
namespace {

/// Looks at the word before sleeping. A sleep and its wake-up cost several microseconds, a look
/// about 50 ns, and a copy of a few KiB is often done by then.
constexpr int kSpinMax = 100;
/// Rounds of polling before the processor is offered to others each time.
constexpr int kPollBeforeYieldMax = 100;

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
  }
  return "unknown";
}

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
  if (!polled_) return false;
  if (EngineState* const engine = visit_engine()) {
    engine->poll();
    engine->leave();
  }
  return state() != JobState::running;
}

const Completion& Job::wait() {
  // edge: job-ended (acquire)
  // edge: job-submitted (acquire)
  const std::uint32_t word = word_.load_acquire();
  HEADRACE_CHECK(detail::state_of(word) != JobState::idle, "only a submitted job can end");
  if (detail::is_running(word)) {
    if (polled_) {
      wait_polling();
    } else {
      wait_sleeping();
    }
  }
  return completion_;
}

void Job::wait_sleeping() {
  for (int spin = 0; spin < kSpinMax; ++spin) {
    if (state() != JobState::running) return;
    platform::pause();
  }
  detail::ParkingBucket& bucket = detail::parking_bucket(this);
  const Lock lock(bucket.mutex);
  while (detail::set_flag(word_, detail::kSleeperFlag)) bucket.condition.wait(bucket.mutex);
  static_cast<void>(state());  // edge: job-ended (acquire), inside.
}

void Job::wait_polling() {
  EngineState* const engine = visit_engine();
  if (engine == nullptr) return;
  for (int round = 0; state() == JobState::running; ++round) {
    engine->poll();
    if (round < kPollBeforeYieldMax) {
      platform::pause();
    } else {
      std::this_thread::yield();
    }
  }
  engine->leave();
}

EngineState* Job::visit_engine() {
  const Lock lock(detail::parking_bucket(this).mutex);
  if (!detail::set_flag(word_, detail::kSleeperFlag)) {
    static_cast<void>(state());  // edge: job-ended (acquire), inside.
    return nullptr;
  }
  // The job may end now, but whoever ends it sees the flag and needs this bucket before it leaves
  // the engine: until then the engine lives, and by then we have entered.
  EngineState* const engine = engine_;
  engine->visit();
  return engine;
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
