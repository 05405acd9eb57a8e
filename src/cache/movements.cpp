// SPDX-License-Identifier: Apache-2.0
#include "movements.hpp"

#include "ledger.hpp"

namespace headrace::cache::detail {

Movements::Movement& Movements::announce(EntryState& entry) {
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
  movement->job.wait();
  let_go(*movement);
}

void Movements::poll(EntryState& entry) {
  Movement* const movement = hold(entry);
  if (movement == nullptr) return;
  static_cast<void>(movement->job.poll());
  let_go(*movement);
}

void Movements::stop(EntryState& entry) {
  Movement* const movement = hold(entry);
  if (movement == nullptr) return;
  movement->job.stop();
  let_go(*movement);
}

void Movements::finish(EntryState& entry) {
  Movement* const movement = hold(entry);
  if (movement == nullptr) return;
  movement->job.stop();
  movement->job.wait();
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
    movement->job.stop();
    movement->job.wait();
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
  return movement.user_count == 0 && movement.job.state() != engine::JobState::running;
}

bool Movements::reads(const Movement& movement, const Region& region) {
  if (movement.entry == nullptr) return false;
  if (!movement.announced && movement.job.state() != engine::JobState::running) return false;
  return movement.entry->region().overlaps(region);
}

void Movements::retire(Movement& movement) {
  if (movement.entry != nullptr) movement.entry->moving = 0;
  movement.entry = nullptr;
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
  const Movement& movement = *static_cast<Movement*>(context);
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
