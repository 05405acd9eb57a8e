// SPDX-License-Identifier: Apache-2.0
// Jobs that come after others: what holds them back, and what begins them. How a job that ends
// meets those that wait for it is dependants.hpp.
//
// A job that is held back is counted in the gate as any other that runs. When the last of its
// predecessors has ended it is *due*. The thread that ended that one begins it; where that happens
// while the same thread is beginning another (whose mover did it at once), the outer one goes on
// with it, so that a chain of jobs needs no stack. What finds the queues of devices full stays due
// until a thread polls, as every thread that waits for it does.
#include "dependants.hpp"
#include "engine_state.hpp"

namespace headrace::engine {
namespace {

/// The engine whose jobs this thread is beginning.
constinit thread_local const EngineState* beginning = nullptr;

}  // namespace

Submit EngineState::check(const Job& job, std::span<Job* const> after, bool& deferred) const {
  if (after.size() > Job::kPredecessorMax) return Submit::too_many_predecessors;
  for (const Job* const predecessor : after) {
    if (predecessor == nullptr) return Submit::null_address;
    const JobState state = predecessor->state();  // edge: job-ended (acquire), inside.
    if (predecessor == &job || state == JobState::idle || predecessor->engine_ != this) {
      return Submit::bad_predecessor;
    }
    deferred = deferred || state != JobState::done;
  }
  return Submit::accepted;
}

void EngineState::hold_back(Job& job, std::span<Job* const> after) noexcept {
  for (DependantLink& link : job.links_) link.job = &job;
  job.held_back_ = true;
  job.overdue_ = true;
  job.polled_ = any_polled_;
  // One more: until this submission has named them all. Reaches them with the links.
  job.predecessors_left_.store_relaxed(static_cast<std::uint32_t>(after.size()) + 1);
  statistics_.count_submitted();
  statistics_.count_held_back();
  // This call, besides the job: it may have ended when the engine is touched last.
  // edge: engine-gate (acq_rel)
  static_cast<void>(gate_.fetch_add_acq_rel(1));
  job.word_.store_release(detail::word_of(JobState::running));  // edge: job-submitted (release)
  std::uint32_t ended_count = 1;
  bool done = true;
  for (std::size_t i = 0; i < after.size(); ++i) {
    Job& predecessor = *after[i];
    if (detail::add_dependant(predecessor.word_, predecessor.dependants_, job.links_[i])) continue;
    ++ended_count;
    done = done && predecessor.outcome.state == JobState::done;
  }
  if (detail::note_ended(job.predecessors_left_, ended_count, done)) {
    push_due(job);
    if (beginning != this) begin_due();
  }
  leave();
}

void EngineState::end_with_dependants(Job& job) noexcept {
  const bool done = job.outcome.state == JobState::done;
  std::uint32_t seen = 0;
  const void* const address = &job.word_;
  DependantLink* dependants =
      detail::end_word_and_list(job.word_, job.dependants_, job.outcome.state, seen);
  if ((seen & detail::kSleeperFlag) != 0) platform::wake_sleepers_at(address);
  const bool visited = detail::visitor_count(seen) != 0;
  if (dependants == nullptr) {  // It came too late.
    if (!visited) leave();
    return;
  }
  // Each of them is counted until it has ended, then perhaps no job is: so count this call, in the
  // place of the job unless a visitor leaves for that.
  // edge: engine-gate (acq_rel)
  if (visited) static_cast<void>(gate_.fetch_add_acq_rel(1));
  DependantLink* in_order = nullptr;
  while (dependants != nullptr) {
    DependantLink* const link = dependants;
    dependants = link->next;
    link->next = in_order;
    in_order = link;
  }
  while (in_order != nullptr) {
    DependantLink* const link = in_order;
    in_order = link->next;
    Job& dependant = *link->job;
    // Unless it was the last, the job and its link belong to another thread from here on.
    if (detail::note_ended(dependant.predecessors_left_, 1, done)) push_due(dependant);
  }
  if (beginning != this) begin_due();
  leave();
}

void EngineState::begin_due() noexcept {
  const EngineState* const outer = beginning;
  beginning = this;
  while (Job* const job = pop_due()) {
    if (begin(*job)) continue;
    push_due(*job);
    // The thread that closes the gate takes the lock afterwards: it finds the job, or this sees it.
    if (!is_closed()) break;
  }
  beginning = outer;
}

void EngineState::push_due(Job& job) noexcept {
  DependantLink& link = job.links_[0];
  link.next = nullptr;
  const Lock lock(due_mutex_);
  (due_first_ == nullptr ? due_first_ : due_last_->next) = &link;
  due_last_ = &link;
  due_count_.store_relaxed(due_count_.load_relaxed() + 1);  // The lock orders the writers.
}

Job* EngineState::pop_due() noexcept {
  // A hint: who adds one begins it, or leaves it to those who come again and again.
  if (due_count_.load_relaxed() == 0 && !is_closed()) return nullptr;
  const Lock lock(due_mutex_);
  DependantLink* const link = due_first_;
  if (link == nullptr) return nullptr;
  due_first_ = link->next;
  due_count_.store_relaxed(due_count_.load_relaxed() - 1);  // As above.
  return link->job;
}

bool EngineState::begin(Job& job) noexcept {
  const bool failed =
      (job.predecessors_left_.load_relaxed() & detail::kPredecessorFailed) != 0;  // Ours by now.
  const std::span<const std::uint32_t> chosen = job.route_.movers.chosen();
  if (is_closed() || job.stop_requested()) {
    job.outcome = {.state = JobState::stopped};
  } else if (failed) {
    job.outcome = {.state = JobState::failed, .cause = Cause::predecessor_failed};
  } else if (job.route_.by == Route::By::none) {
    job.outcome = {.state = JobState::failed, .cause = Cause::mover_refused};
  } else if (chosen.empty()) {
    carry_out_here(job);
    return true;
  } else {
    job.part_count_ = 1;  // Of a job that is held back no poller reads it.
    split(job);
    if (issue(job) == Submit::accepted) return true;  // From here on the job may be gone.
    if (!is_closed()) {
      // A mover with a thread does not say when it has room again.
      if (polls(job.route_)) return false;
      job.route_.fell_back = true;
      carry_out_here(job);
      return true;
    }
    job.outcome = {.state = JobState::stopped};
  }
  end_job(job, false);
  return true;
}

}  // namespace headrace::engine
