// SPDX-License-Identifier: Apache-2.0
#include "movements.hpp"

#include "ledger.hpp"

namespace headrace::cache::detail {

Movements::Movement& Movements::announce(EntryState& entry, bool is_gathered) {
  const Lock lock(mutex_);
  if (free_ == nullptr) sweep();
  Movement* movement = free_;
  if (movement != nullptr) {
    free_ = movement->next;
  } else {
    movement = &movements_.emplace_back();
    movement->number = static_cast<std::uint32_t>(movements_.size());
    movement->owner = this;
  }
  ++in_use_count_;
  movement->next = used_;
  movement->previous = nullptr;
  if (used_ != nullptr) used_->previous = movement;
  used_ = movement;
  movement->entry = &entry;
  movement->user_count = 1;
  movement->announced = true;
  movement->is_gathered = is_gathered;
  entry.moving = movement->number;
  return *movement;
}

bool Movements::Announcement::submit(engine::Engine& engine, const engine::CopyPlan& plan,
                                     engine::SubmitOptions options) {
  options.callback = &move_ended;
  options.callback_context = &movement_;
  if (engine.submit_copy(movement_.job, plan, options) != engine::Submit::accepted) return false;
  movement_.entry->progress.announce_submission();
  return true;
}

void Movements::Gathering::end() noexcept {
  for (Movement* const member : members_) movements_.end_announcement(*member);
  members_.clear();
}

void Movements::Gathering::add(EntryState& entry) {
  members_.push_back(nullptr);
  try {
    members_.back() = &movements_.announce(entry, true);
  } catch (...) {
    members_.pop_back();
    throw;
  }
}

void Movements::Gathering::remove_last() noexcept {
  movements_.end_announcement(*members_.back());
  members_.pop_back();
}

bool Movements::Gathering::submit(engine::Engine& engine, engine::SubmitOptions options) {
  auto made = std::make_unique<Group>();
  made->completions.resize(members_.size());
  made->operations.reserve(members_.size());
  made->members = members_;
  for (const Movement* const member : members_) {
    const EntryState& entry = *member->entry;
    const std::uint64_t byte_count = entry.region().byte_count;
    made->operations.push_back(
        engine::Operation::copy({entry.copy, byte_count}, {entry.source(), byte_count}));
  }
  Movement& leader = *members_.front();
  Group& group = *made;
  {
    const Lock lock(movements_.mutex_);
    leader.group = std::move(made);
    leader.user_count += static_cast<std::uint32_t>(members_.size() - 1);
    for (Movement* const member : members_) {
      if (member != &leader) member->leader = &leader;
    }
  }
  options.callback = &batch_ended;
  options.callback_context = &leader;
  const engine::Batch batch{group.operations, group.completions};
  bool is_accepted = false;
  try {
    is_accepted = engine.submit_batch(leader.job, batch, options) == engine::Submit::accepted;
  } catch (...) {
    movements_.disband(members_);
    throw;
  }
  if (!is_accepted) {
    movements_.disband(members_);
    return false;
  }
  for (const Movement* const member : members_) member->entry->progress.announce_submission();
  return true;
}

void Movements::disband(std::span<Movement* const> members) noexcept {
  const Lock lock(mutex_);
  Movement& leader = *members.front();
  leader.user_count -= static_cast<std::uint32_t>(members.size() - 1);
  leader.group.reset();
  for (Movement* const member : members) member->leader = nullptr;
}

void Movements::end_announcement(Movement& movement) noexcept {
  const Lock lock(mutex_);
  movement.announced = false;
  if (sleeper_count_ != 0) decided_.notify_all();
  --movement.user_count;
  if (over(movement)) retire(movement);
}

void Movements::wait(EntryState& entry) {
  Movement* const movement = hold(entry);
  if (movement == nullptr) return;
  job_of(*movement).wait();
  let_go(*movement);
}

void Movements::poll(EntryState& entry) {
  Movement* const movement = hold(entry);
  if (movement == nullptr) return;
  static_cast<void>(job_of(*movement).poll());
  let_go(*movement);
}

void Movements::stop(EntryState& entry) {
  Movement* const movement = hold(entry);
  if (movement == nullptr) return;
  stop(*movement);
  let_go(*movement);
}

void Movements::stop(Movement& movement) {
  if (!movement.is_gathered) movement.job.stop();
}

void Movements::finish(EntryState& entry) {
  Movement* const movement = hold(entry);
  if (movement == nullptr) return;
  stop(*movement);
  job_of(*movement).wait();
  const Lock lock(mutex_);
  // Somebody who stops it may still be using it.
  entry.moving = 0;
  movement->entry = nullptr;
  --movement->user_count;
  if (over(*movement)) retire(*movement);
}

void Movements::stop_overlapping(const Region& region) {
  for (;;) {
    Movement* movement = nullptr;
    {
      const Lock lock(mutex_);
      movement = find(region);
      if (movement == nullptr) return;
      if (movement->announced) {
        ++sleeper_count_;
        decided_.wait(mutex_);
        --sleeper_count_;
        continue;
      }
      ++movement->user_count;
    }
    stop(*movement);
    job_of(*movement).wait();
    let_go(*movement);
  }
}

Movements::Movement* Movements::find(const Region& region) {
  for (Movement* movement = used_; movement != nullptr;) {
    Movement* const next = movement->next;
    if (reads(*movement, region)) return movement;
    if (over(*movement)) retire(*movement);
    movement = next;
  }
  return nullptr;
}

Movements::Movement* Movements::hold(EntryState& entry) {
  const Lock lock(mutex_);
  if (entry.moving == 0) return nullptr;
  Movement& movement = movements_[entry.moving - 1];
  ++movement.user_count;
  return &movement;
}

void Movements::let_go(Movement& movement) {
  const Lock lock(mutex_);
  --movement.user_count;
  if (over(movement)) retire(movement);
}

bool Movements::over(const Movement& movement) {
  // The job ends after its callback, with the engine's last touch of it. An idle one was refused.
  return movement.user_count == 0 && job_of(movement).state() != engine::JobState::running;
}

bool Movements::reads(const Movement& movement, const Region& region) {
  if (movement.entry == nullptr) return false;
  if (!movement.announced && job_of(movement).state() != engine::JobState::running) return false;
  return movement.entry->region().overlaps(region);
}

void Movements::retire(Movement& movement) {
  if (movement.entry != nullptr) movement.entry->moving = 0;
  movement.entry = nullptr;
  // The first of a batch is retired when it is looked at next: its neighbours may be about to be.
  if (movement.leader != nullptr) --movement.leader->user_count;
  movement.leader = nullptr;
  movement.group.reset();
  (movement.previous != nullptr ? movement.previous->next : used_) = movement.next;
  if (movement.next != nullptr) movement.next->previous = movement.previous;
  movement.next = free_;
  free_ = &movement;
  --in_use_count_;
}

void Movements::sweep() {
  // As many again may be added before the next one, so that a sweep costs each a constant.
  if (in_use_count_ < 8 || !std::has_single_bit(in_use_count_)) return;
  for (Movement* movement = used_; movement != nullptr;) {
    Movement* const next = movement->next;
    if (over(*movement)) retire(*movement);
    movement = next;
  }
}

void Movements::move_ended(void* context, const engine::Completion& completion) noexcept {
  end(*static_cast<Movement*>(context), completion);
}

void Movements::batch_ended(void* context, const engine::Completion& completion) noexcept {
  const Group& group = *static_cast<Movement*>(context)->group;
  for (std::size_t i = 0; i < group.members.size(); ++i) {
    engine::Completion own = group.completions[i];
    // Which of them a device that was given up may still write to is not said.
    own.late_write_possible = own.late_write_possible || completion.late_write_possible;
    end(*group.members[i], own);
  }
}

void Movements::end(const Movement& movement, const engine::Completion& completion) noexcept {
  Ledger& ledger = movement.owner->ledger_;
  EntryState& entry = *movement.entry;
  bool done = completion.state == engine::JobState::done;
  if (completion.late_write_possible) {
    // What is right now may be overwritten later, with what the source was or will be by then.
    ledger.late_writes.add(1);
    entry.keep_memory();
    done = false;
  }
  // Counted first, so that who has waited finds it counted.
  if (done) {
    ledger.bytes_moved.add(entry.region().byte_count);
  } else {
    ledger.moves_failed.add(1);
  }
  ledger.tell(done ? EventKind::moved : EventKind::move_failed, entry, completion);
  entry.progress.end(done ? Phase::copied : Phase::left);
}

}  // namespace headrace::cache::detail
