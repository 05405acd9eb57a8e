// SPDX-License-Identifier: Apache-2.0
// Jobs with predecessors, and those submitted inside two calls of users' functions: how they are
// blocked and started. dependants.hpp has the lock-free list between a completing job and its
// dependants.
//
// A blocked job counts in the gate like a running one. It becomes *ready* when its last predecessor
// completes, and the thread that completed that one starts it. If this thread is already starting a
// job, the outer loop starts it, so that a chain of jobs does not recurse. A job that finds the
// device queues full stays ready until a thread polls, as every thread that waits for it does. So
// does a drain that finds jobs from before it.
#include "completions.hpp"
#include "dependants.hpp"
#include "engine_state.hpp"

namespace headrace::engine {
namespace {

/// The engines whose ready jobs this thread is starting.
constinit thread_local const Frame* beginning = nullptr;

}  // namespace

Submit EngineState::check(const Job& job, std::span<Job* const> after, bool& deferred) const {
  if (after.size() > Job::kPredecessorMax) return Submit::too_many_predecessors;
  for (const Job* const predecessor : after) {
    if (predecessor == nullptr) return Submit::null_address;
    const JobState state = predecessor->state();  // edge: job-ended (acquire), inside.
    if (predecessor == &job || state == JobState::idle || predecessor->fields().engine != this) {
      return Submit::bad_predecessor;
    }
    deferred = deferred || state != JobState::done;
  }
  return Submit::accepted;
}

void EngineState::hold_back(Job& job, std::span<Job* const> after) noexcept {
  for (DependantLink& link : job.fields().links) link.job = &job;
  job.fields().held_back = true;
  job.overdue_ = true;
  const bool is_drain = drains(job);
  job.fields().polled.store_relaxed(any_polled_ || is_drain);  // Published by `job-submitted`.
  // Plus one, held until this submission has linked all of them. Published with the links.
  job.fields().predecessors_left.store_relaxed(static_cast<std::uint32_t>(after.size()) + 1);
  count([](Statistics& mine) { mine.count_submitted(); });
  // Counts this call as well: the job may have completed before the last access to the engine
  // below.
  stay();
  if (is_drain) {
    stay();
    drained_set_ = gate_.change();  // Published by the queue's lock.
    leave(std::exchange(job.fields().gate_set, Gate::kStaying));
  }
  job.word_.store_release(running_word(job));  // edge: job-submitted (release)
  std::uint32_t ended_count = 1;
  bool done = true;
  for (std::size_t i = 0; i < after.size(); ++i) {
    Job& predecessor = *after[i];
    if (detail::add_dependant(predecessor.word_, predecessor.fields().dependants,
                              job.fields().links[i]))
      continue;
    ++ended_count;
    done = done && predecessor.outcome.state == JobState::done;
  }
  if (ended_count <= after.size()) count([](Statistics& mine) { mine.count_held_back(); });
  if (detail::note_ended(job.fields().predecessors_left, ended_count, done)) {
    push_due(job);
    begin_due_once();
  }
  leave(Gate::kStaying);
}

void EngineState::end_with_dependants(Job& job) noexcept {
  const bool done = job.outcome.state == JobState::done;
  std::uint32_t seen = 0;
  const void* const address = &job.word_;
  const std::uint64_t gate_set = job.fields().gate_set;
  DependantLink* dependants =
      detail::end_word_and_list(job.word_, job.fields().dependants, job.outcome.state, seen);
  if ((seen & detail::kSleeperFlag) != 0) platform::wake_sleepers_at(address);
  const bool pinned = detail::pin_count(seen) != 0;
  if (dependants == nullptr) {  // The submitter lost the race.
    if (!pinned) leave(gate_set);
    return;
  }
  // The dependants may complete below and release their counts, so this call keeps one. Not the
  // job's: one of them may be a drain.
  stay();
  if (!pinned) leave(gate_set);
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
    // Unless this was its last predecessor, another thread owns the dependant and its link from
    // here on.
    if (detail::note_ended(dependant.fields().predecessors_left, 1, done)) push_due(dependant);
  }
  begin_due_once();
  leave(Gate::kStaying);
}

void EngineState::begin_due_once() noexcept {
  if (!Frame::any_of(beginning, *this)) begin_due();
}

void EngineState::begin_due() noexcept {
  const Frame frame(beginning, *this);
  bool has_met_drain = false;
  while (Job* const job = pop_due()) {
    const bool is_drain = drains(*job);
    if (begin(*job)) continue;
    push_due(*job);
    if (is_drain && !std::exchange(has_met_drain, true)) continue;  // No other job waits for it.
    // A thread that closes the gate takes the lock afterwards: either it finds the job, or this
    // thread sees the closed gate.
    if (!is_closed()) break;
  }
}

void EngineState::push_due(Job& job) noexcept {
  DependantLink& link = job.fields().links[0];
  link.next = nullptr;
  const Lock lock(due_mutex_);
  (due_first_ == nullptr ? due_first_ : due_last_->next) = &link;
  due_last_ = &link;
  due_count_.store_relaxed(due_count_.load_relaxed() + 1);  // The lock orders the writers.
}

Job* EngineState::pop_due() noexcept {
  // A hint: the thread that adds a job starts it, or leaves it to polling threads.
  if (due_count_.load_relaxed() == 0 && !is_closed()) return nullptr;
  const Lock lock(due_mutex_);
  DependantLink* const link = due_first_;
  if (link == nullptr) return nullptr;
  due_first_ = link->next;
  due_count_.store_relaxed(due_count_.load_relaxed() - 1);  // As above.
  return link->job;
}

bool EngineState::is_empty(std::uint64_t first, std::uint64_t last) const noexcept {
  const auto for_each_counts = [this](const auto& visit) {
    for_each_thread([&](const ThreadState& thread) { visit(thread.gate); });
  };
  return Gate::is_empty(for_each_counts, first, last);
}

bool EngineState::begin(Job& job) noexcept {
  const bool failed = (job.fields().predecessors_left.load_relaxed() &
                       detail::kPredecessorFailed) != 0;  // Final: all predecessors have completed.
  const std::span<const std::uint32_t> chosen = job.fields().route.movers.chosen();
  if (drains(job)) {
    // One that is stopped waits as well: the next drain needs the set.
    if (!is_closed() && !is_empty(drained_set_, drained_set_)) return false;
    job.fields().route.by = Route::By::calling_thread;
    job.fields().route.fell_back = false;
    draining_.store_release(false);  // edge: engine-drained (release)
  }
  if (is_closed() || job.stop_requested()) {
    detail::note_unbegun(job, detail::kStopped);
  } else if (failed) {
    detail::note_unbegun(job, {.cause = Cause::predecessor_failed});
  } else if (job.fields().route.by == Route::By::none) {
    detail::note_unbegun(job, {.cause = Cause::mover_refused});
  } else if (chosen.empty() || drains(job)) {
    carry_out_here(job);
    return true;
  } else {
    job.fields().part_count = 1;  // Pollers do not read it while the job is blocked.
    split(job);
    if (issue(job) == Submit::accepted) return true;  // The job may be gone.
    if (!is_closed()) {
      // A mover with its own threads does not report when it has room again.
      if (polls(job.fields().route)) return false;
      job.fields().route.fell_back = true;
      carry_out_here(job);
      return true;
    }
    detail::note_unbegun(job, detail::kStopped);
  }
  end_job(job, false);
  return true;
}

}  // namespace headrace::engine
