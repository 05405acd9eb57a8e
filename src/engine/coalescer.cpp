// SPDX-License-Identifier: Apache-2.0
#include "coalescer.hpp"

#include "headrace/platform/ticks.hpp"
#include "operands.hpp"
#include "outcome.hpp"
#include "software/software.hpp"

namespace headrace::engine {

void Coalescer::List::push_back(Group& group) noexcept {
  group.next = nullptr;
  (last == nullptr ? first : last->next) = &group;
  last = &group;
}

void Coalescer::List::push_front(Group& group) noexcept {
  group.next = first;
  first = &group;
  if (last == nullptr) last = &group;
}

Coalescer::Group* Coalescer::List::pop() noexcept {
  Group* const group = first;
  if (group == nullptr) return nullptr;
  first = group->next;
  if (first == nullptr) last = nullptr;
  return group;
}

Coalescer::Coalescer(Mover& mover, const CoalescingOptions& options)
    : mover_(mover),
      bytes_max_(options.bytes_max.count()),
      operations_max_(options.operations_max),
      wait_ticks_(platform::to_ticks(options.wait_max)),
      groups_(std::make_unique<Group[]>(kGroupCount)) {
  const Lock lock(mutex_);
  for (std::size_t i = 0; i < kGroupCount; ++i) {
    groups_[i].owner = this;
    free_.push_back(groups_[i]);
  }
}

void Coalescer::note_due() noexcept {
  // Relaxed: a hint. Who polls too early or too late by it polls again.
  due_ticks_.store_relaxed(ready_.first != nullptr ? 0
                           : open_ != nullptr      ? open_due_ticks_
                                                   : kNever);
}

void Coalescer::make_ready() noexcept {
  ready_.push_back(*open_);
  open_ = nullptr;
}

Submit Coalescer::submit(Share& share) noexcept {
  {
    const Lock lock(mutex_);
    if (closed_) return Submit::closed;
    if (open_ == nullptr) {
      open_ = free_.pop();
      if (open_ == nullptr) return Submit::full;
      open_->count = 0;
      open_due_ticks_ = platform::ticks() + wait_ticks_;
    }
    open_->operations[open_->count] = share.job->operation();  // The only share of its job.
    open_->shares[open_->count++] = &share;
    const bool enough = open_->count == operations_max_;
    if (enough) make_ready();
    note_due();
    if (!enough) return Submit::accepted;
  }
  // From here on the share may be gone.
  send_ready();
  return Submit::accepted;
}

void Coalescer::poll() noexcept {
  const std::uint64_t due = due_ticks_.load_relaxed();  // A hint, as note_due says.
  if (due == kNever || (due != 0 && platform::ticks() < due)) return;
  {
    const Lock lock(mutex_);
    if (open_ != nullptr && platform::ticks() >= open_due_ticks_) make_ready();
    note_due();
  }
  send_ready();
}

void Coalescer::poll_share(const Share& share) noexcept {
  poll();
  // It may have gone there alone; else all are looked at.
  mover_.poll_share(share);
}

void Coalescer::send_ready() noexcept {
  while (true) {
    Group* group = nullptr;
    {
      const Lock lock(mutex_);
      group = ready_.pop();
      note_due();
    }
    if (group == nullptr) return;
    if (hand_over(*group) != Submit::full) continue;
    {
      const Lock lock(mutex_);
      if (!closed_) {
        ready_.push_front(*group);
        return note_due();
      }
    }
    finish_stopped(*group);
  }
}

/// Returns: `full` if the group is still ours.
Submit Coalescer::hand_over(Group& group) noexcept {
  drop_stopped(group);
  if (group.count == 0) {
    free_group(group);
    return Submit::accepted;
  }
  Submit answer = Submit::closed;
  if (group.count == 1) {
    answer = mover_.submit(*group.shares[0]);
    if (answer == Submit::accepted) free_group(group);
  } else {
    Job& job = group.carrier;
    std::size_t byte_count = 0;
    for (std::size_t i = 0; i < group.count; ++i) byte_count += group.operations[i].byte_count();
    job.batch_ = {.operations = std::span(group.operations).first(group.count),
                  .completions = std::span(group.completions).first(group.count)};
    job.callback_context_ = &group;
    job.callback_ = [](void* context, const Completion& whole) noexcept {
      auto& ended = *static_cast<Group*>(context);
      ended.owner->distribute(ended, whole);
    };
    job.share_count_ = 1;
    Share& share = job.shares_[0];
    share.job = &job;
    share.byte_count = byte_count;
    answer = mover_.submit(share);
  }
  if (answer == Submit::accepted || answer == Submit::full) return answer;
  // The device is gone: here and now.
  for (std::size_t i = 0; i < group.count; ++i) {
    const auto bad = detail::untouchable(group.operations[i]);
    ShareOutcome outcome = bad ? ShareOutcome{.cause = Cause::page_fault, .fault_address = *bad}
                               : software::execute(group.operations[i]);
    outcome.fell_back = true;
    group.completions[i] = detail::to_completion(outcome);
  }
  distribute(group, {});
  return Submit::accepted;
}

void Coalescer::free_group(Group& group) noexcept {
  const Lock lock(mutex_);
  free_.push_back(group);
}

void Coalescer::drop_stopped(Group& group) noexcept {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < group.count; ++i) {
    Share& share = *group.shares[i];
    if (share.job->stop_requested()) {
      finish(share, {.stopped = true});
      continue;
    }
    group.shares[kept] = group.shares[i];
    if (kept != i) group.operations[kept] = group.operations[i];
    ++kept;
  }
  group.count = kept;
}

/// Only while the engine is being stopped, which waits for all of them.
void Coalescer::finish_stopped(Group& group) noexcept {
  const std::size_t count = group.count;
  const std::array<Share*, kOperationsMax> shares = group.shares;
  free_group(group);
  for (std::size_t i = 0; i < count; ++i) finish(*shares[i], {.stopped = true});
}

/// Ends the shares of a group as the operations of its batch ended. With the last of them the
/// engine may be gone, so the group is free before that.
void Coalescer::distribute(Group& group, const Completion& whole) noexcept {
  const auto outcome_of = [&](std::size_t index) {
    const Completion& end = group.completions[index];
    return ShareOutcome{
        .bytes_done = end.bytes_done,
        .cause = end.cause,
        .stopped = end.state == JobState::stopped,
        .fell_back = end.fell_back,
        .device_status = end.device_status != 0 ? end.device_status : whole.device_status,
        .late_write_possible = end.late_write_possible || whole.late_write_possible,
        .bytes_by_device = end.bytes_by_device,
        .page_faults = end.page_faults,
        .retries = end.retries,
        .fault_address = end.fault_address,
        .result = end.result};
  };
  const auto is_plain = [&](std::size_t index) {
    const Completion& end = group.completions[index];
    return end.state == JobState::done && !end.fell_back && whole.device_status == 0 &&
           end.bytes_by_device == group.shares[index]->byte_count &&
           end.result == OperationResult{};
  };
  const std::size_t last = group.count - 1;
  for (std::size_t i = 0; i < last; ++i) {
    if (is_plain(i)) {
      finish_done_by_device(*group.shares[i]);
    } else {
      finish(*group.shares[i], outcome_of(i));
    }
  }
  Share& share = *group.shares[last];
  const ShareOutcome outcome = outcome_of(last);
  free_group(group);
  finish(share, outcome);
}

void Coalescer::stop() noexcept {
  List left;
  {
    const Lock lock(mutex_);
    closed_ = true;
    if (open_ != nullptr) make_ready();
    left = ready_;
    ready_ = {};
    note_due();
  }
  while (Group* const group = left.pop()) finish_stopped(*group);
}

}  // namespace headrace::engine
