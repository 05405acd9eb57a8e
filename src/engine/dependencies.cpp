// SPDX-License-Identifier: Apache-2.0
// Jobs that come after others: what holds them back, and who begins them. How a job that ends meets
// those that wait for it is dependants.hpp.
//
// A job that is held back is counted in the gate as any other that runs. When the last of its
// predecessors has ended it is *due*. The thread that ended that one begins it; where that happens
// while the same thread is beginning another (whose mover did it at once), the outer one goes on
// with it, so that a chain of jobs needs no stack. What finds the queues of devices full stays due
// until somebody polls, as everybody does who waits for it.
#include <algorithm>
#include <array>

#include "dependants.hpp"
#include "engine_state.hpp"

namespace headrace::engine {
namespace {

/// The engine whose jobs this thread is beginning.
constinit thread_local const EngineState* beginning = nullptr;

}  // namespace

Submit EngineState::check(const Job& job, std::span<Job* const> after) const {
  if (after.size() > Job::kPredecessorMax) return Submit::too_many_predecessors;
  for (const Job* const predecessor : after) {
    if (predecessor == nullptr) return Submit::null_address;
    const bool idle = predecessor->state() == JobState::idle;
    if (predecessor == &job || idle || predecessor->engine_ != this) return Submit::bad_predecessor;
  }
  return Submit::accepted;
}

Submit EngineState::start_after(Job& job, const Operation& operation, const Batch& batch,
                                std::size_t byte_count, const SubmitOptions& options) {
  if (is_forked()) return Submit::forked;
  const Submit valid = check(job, options.after);
  if (valid != Submit::accepted) return valid;
  const bool all_done =
      std::all_of(options.after.begin(), options.after.end(), [](const Job* predecessor) {
        return predecessor->state() == JobState::done;  // edge: job-ended (acquire), inside.
      });
  if (!all_done) return start(job, operation, batch, byte_count, options);
  SubmitOptions at_once = options;
  at_once.after = {};
  if (!batch.operations.empty()) return submit_batch(job, batch, at_once);
  const bool empty = byte_count == 0 && operation.kind() == OperationKind::copy;
  return empty ? start(job, operation, batch, 0, at_once) : start_one(job, operation, at_once);
}

void EngineState::prepare_held(Job& job, const Choice& choice, std::uint64_t turn,
                               const SubmitOptions& options) {
  const std::span<const std::uint32_t> chosen = choice.movers.chosen();
  Job::Held& held = job.held_;
  for (DependantLink& link : held.links) link.job = &job;
  std::copy(chosen.begin(), chosen.end(), held.movers.begin());
  held.mover_count = static_cast<std::uint32_t>(chosen.size());
  held.turn = chosen.empty() ? 0 : static_cast<std::uint32_t>(turn % chosen.size());
  held.may_turn = may_turn_to_processors(options);
  job.held_back_ = true;
  job.polled_ = any_polled_;
  for (std::size_t i = 0; i < job.share_count_; ++i) job.shares_[i].overdue = true;
  // One more: until this submission has named them all. Reaches them with the links.
  job.predecessors_left_.store_relaxed(static_cast<std::uint32_t>(options.after.size()) + 1);
}

void EngineState::hold_back(Job& job, std::span<Job* const> after) noexcept {
  std::uint32_t ended_count = 1;
  bool done = true;
  for (std::size_t i = 0; i < after.size(); ++i) {
    Job& predecessor = *after[i];
    if (detail::add_dependant(predecessor.word_, predecessor.dependants_, job.held_.links[i])) {
      continue;
    }
    ++ended_count;
    done = done && predecessor.completion_.state == JobState::done;
  }
  if (!detail::note_ended(job.predecessors_left_, ended_count, done)) return;
  push_due(job);
  if (beginning != this) begin_due();
}

void EngineState::end_with_dependants(Job& job) noexcept {
  const bool done = job.completion_.state == JobState::done;
  std::uint32_t seen = 0;
  const void* const address = &job;
  DependantLink* dependants =
      detail::end_word_and_list(job.word_, job.dependants_, job.completion_.state, seen);
  if ((seen & detail::kSleeperFlag) != 0) detail::unpark_all(address);
  const bool visited = detail::visitor_count(seen) != 0;
  if (dependants == nullptr) {  // It came too late.
    if (!visited) leave();
    return;
  }
  // Each of them is counted until it has ended, and then perhaps nobody: so this call, too, in the
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
    // Unless it was the last, the job and its link are somebody else's from here on.
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
    // Who closes the gate takes the lock afterwards: either it finds the job or this sees it.
    if (!is_closed()) break;
  }
  beginning = outer;
}

void EngineState::push_due(Job& job) noexcept {
  DependantLink& link = job.held_.links[0];
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
  if (is_closed() || job.stop_requested()) {
    job.completion_ = {.state = JobState::stopped};
  } else if (failed) {
    job.completion_ = {.state = JobState::failed, .cause = Cause::predecessor_failed};
  } else if (job.share_count_ != 0) {
    const std::span chosen = std::span(job.held_.movers).first(job.held_.mover_count);
    Submit answer = hand_out(job, chosen, job.held_.turn);
    if (answer == Submit::accepted) return true;  // From here on the job may be gone.
    if (answer == Submit::full && job.held_.may_turn && chosen[0] >= software_count_) {
      MoverChoice processors;
      for (std::size_t i = 0; i < software_count_; ++i) {
        if (can(*movers_[i], job)) processors.add(i);
      }
      answer = hand_out(job, processors.chosen(), job.held_.turn);
      if (answer == Submit::accepted) return true;
    }
    if (!is_closed()) {
      // Nobody says when a mover with a thread has room again.
      if (std::any_of(chosen.begin(), chosen.end(),
                      [this](std::uint32_t index) { return facts_[index].polled; })) {
        return false;
      }
      job.fell_back_ = true;
      const std::size_t share_count = job.share_count_;
      for (std::size_t i = 0; i < share_count; ++i) move_here(job.shares_[i]);
      return true;
    }
    job.completion_ = {.state = JobState::stopped};
  }
  end_job(job);
  return true;
}

Submit EngineState::run_after(const Operation& operation, Completion& completion,
                              const SubmitOptions& options) {
  // Ends when they have, and touches no mover.
  Job all;
  const Operation nothing = Operation::copy({}, {});
  const Submit answer = start_after(all, nothing, {}, 0, {.after = options.after});
  if (answer != Submit::accepted) return answer;
  const Completion end = all.wait();
  if (end.state == JobState::done) {
    SubmitOptions at_once = options;
    at_once.after = {};
    return run(operation, completion, at_once);
  }
  completion = end;
  if (options.callback != nullptr) options.callback(options.callback_context, completion);
  if (options.then != nullptr) options.then(options.then_context);
  return Submit::accepted;
}

}  // namespace headrace::engine
