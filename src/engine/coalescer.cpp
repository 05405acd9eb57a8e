// SPDX-License-Identifier: Apache-2.0
#include "coalescer.hpp"

#include "completions.hpp"
#include "headrace/platform/ticks.hpp"
#include "memory_access.hpp"
#include "software/software.hpp"

namespace headrace::engine {

void Coalescer::List::push_back(Group& group) noexcept {
  group.next_group = nullptr;
  (last == nullptr ? first : last->next_group) = &group;
  last = &group;
}

void Coalescer::List::push_front(Group& group) noexcept {
  group.next_group = first;
  first = &group;
  if (last == nullptr) last = &group;
}

Coalescer::Group* Coalescer::List::pop() noexcept {
  Group* const group = first;
  if (group == nullptr) return nullptr;
  first = group->next_group;
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

Submit Coalescer::post(Request& request) noexcept {
  {
    const Lock lock(mutex_);
    if (closed_) return Submit::closed;
    if (open_ == nullptr) {
      open_ = free_.pop();
      if (open_ == nullptr) return Submit::full;
      open_->count = 0;
      open_due_ticks_ = platform::ticks() + wait_ticks_;
    }
    open_->operations[open_->count] = request.operation();
    open_->requests[open_->count++] = &request;
    const bool enough = open_->count == operations_max_;
    if (enough) make_ready();
    note_due();
    if (!enough) return Submit::accepted;
  }
  // From here on the request may be gone.
  send_ready();
  return Submit::accepted;
}

void Coalescer::reap() noexcept {
  const std::uint64_t due = due_ticks_.load_relaxed();  // A hint, as note_due says.
  if (due == kNever || (due != 0 && platform::ticks() < due)) return;
  {
    const Lock lock(mutex_);
    if (open_ != nullptr && platform::ticks() >= open_due_ticks_) make_ready();
    note_due();
  }
  send_ready();
}

void Coalescer::reap(const Request& request) noexcept {
  reap();
  // It may have gone there alone; else all are looked at.
  mover_.reap(request);
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
    answer = mover_.post(*group.requests[0]);
    if (answer == Submit::accepted) free_group(group);
  } else {
    std::size_t byte_count = 0;
    for (std::size_t i = 0; i < group.count; ++i) byte_count += group.operations[i].byte_count();
    group.assign({},
                 {.operations = std::span(group.operations).first(group.count),
                  .completions = std::span(group.completions).first(group.count)},
                 byte_count);
    group.on_done_ = [](Request& request) noexcept {
      auto& ended = static_cast<Group&>(request);
      ended.owner->distribute(ended);
    };
    answer = mover_.post(group);
  }
  if (answer == Submit::accepted || answer == Submit::full) return answer;
  // The device is gone: here and now.
  for (std::size_t i = 0; i < group.count; ++i) {
    const auto bad = detail::untouchable(group.operations[i]);
    Completion& end = group.completions[i];
    end = bad ? Completion{.cause = Cause::page_fault, .fault_address = *bad}
              : software::execute(group.operations[i]);
    end.fell_back = true;
  }
  group.outcome = {};
  distribute(group);
  return Submit::accepted;
}

void Coalescer::free_group(Group& group) noexcept {
  const Lock lock(mutex_);
  free_.push_back(group);
}

void Coalescer::drop_stopped(Group& group) noexcept {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < group.count; ++i) {
    Request& request = *group.requests[i];
    if (request.stop_requested()) {
      request.complete(detail::kStopped);
      continue;
    }
    group.requests[kept] = &request;
    if (kept != i) group.operations[kept] = group.operations[i];
    ++kept;
  }
  group.count = kept;
}

/// Only while the engine is being stopped, which waits for all of them.
void Coalescer::finish_stopped(Group& group) noexcept {
  const std::size_t count = group.count;
  const std::array<Request*, kOperationsMax> requests = group.requests;
  free_group(group);
  for (std::size_t i = 0; i < count; ++i) requests[i]->complete(detail::kStopped);
}

/// Ends the requests of a group as the operations of its batch ended. With the last of them the
/// engine may be gone, so the group is free before that.
void Coalescer::distribute(Group& group) noexcept {
  const auto end = [&whole = group.outcome](Request& request, Completion one) {
    if (one.device_status == 0) one.device_status = whole.device_status;
    one.late_write_possible = one.late_write_possible || whole.late_write_possible;
    request.complete(one);
  };
  const std::size_t last = group.count - 1;
  for (std::size_t i = 0; i < last; ++i) end(*group.requests[i], group.completions[i]);
  Request& request = *group.requests[last];
  Completion one = group.completions[last];
  one.device_status = one.device_status != 0 ? one.device_status : group.outcome.device_status;
  one.late_write_possible = one.late_write_possible || group.outcome.late_write_possible;
  free_group(group);
  request.complete(one);
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
