// SPDX-License-Identifier: Apache-2.0
#include "movements.hpp"

#include "ledger.hpp"

namespace headrace::cache::detail {

bool Movements::start(EntryState& entry, engine::Engine& engine, const engine::CopyPlan& plan,
                      engine::SubmitOptions options) {
  Movement* movement = nullptr;
  {
    const Lock lock(mutex_);
    if (free_ == 0) sweep();
    std::uint32_t number = free_;
    if (number != 0) {
      movement = &movements_[number - 1];
      free_ = movement->next_free;
    } else {
      movement = &movements_.emplace_back();
      number = static_cast<std::uint32_t>(movements_.size());
    }
    ++in_use_count_;
    movement->owner = this;
    movement->entry = &entry;
    movement->user_count = 1;
    entry.moving = number;
  }
  options.callback = &move_ended;
  options.callback_context = movement;
  bool accepted = false;
  try {
    accepted = engine.submit_copy(movement->job, plan, options) == engine::Submit::accepted;
  } catch (...) {
    let_go(*movement);
    throw;
  }
  if (accepted) entry.progress.announce_submission();
  let_go(*movement);
  return accepted;
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
  let_go(*movement);
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

bool Movements::over(const Movement& movement) const {
  // The job ends after its callback, with the engine's last touch of it. An idle one was refused.
  return movement.user_count == 0 && movement.job.state() != engine::JobState::running;
}

void Movements::retire(Movement& movement) {
  const std::uint32_t number = movement.entry->moving;
  movement.entry->moving = 0;
  movement.entry = nullptr;
  movement.next_free = free_;
  free_ = number;
  --in_use_count_;
}

void Movements::sweep() {
  // As many again may be added before the next one, so that a sweep costs each a constant.
  if (in_use_count_ < 8 || !std::has_single_bit(in_use_count_)) return;
  for (Movement& movement : movements_) {
    if (movement.entry != nullptr && over(movement)) retire(movement);
  }
}

void Movements::move_ended(void* context, const engine::Completion& completion) noexcept {
  Movement& movement = *static_cast<Movement*>(context);
  Ledger& ledger = movement.owner->ledger_;
  EntryState& entry = *movement.entry;
  const bool done = completion.state == engine::JobState::done;
  // Counted first, so that who has waited finds it counted.
  if (done) {
    ledger.bytes_moved.add(entry.region().byte_count);
  } else {
    ledger.moves_failed.add(1);
  }
  ledger.tell(done ? EventKind::moved : EventKind::move_failed, entry);
  entry.progress.end(done ? Phase::copied : Phase::left);
}

}  // namespace headrace::cache::detail
