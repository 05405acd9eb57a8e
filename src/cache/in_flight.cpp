// SPDX-License-Identifier: Apache-2.0
#include "in_flight.hpp"

#include "core.hpp"
#include "headrace/base/trace.hpp"

namespace headrace::cache::detail {

inline bool InFlightMoves::over(const Move& move) {
  // The job ends after its callback, with the engine's last access to it. An idle job was refused.
  // edge: move-decided (acquire)
  return move.user_count == 0 && move.undecided.load_acquire() == 0 &&
         job_of(move).state() != engine::JobState::running;
}

inline void InFlightMoves::retire(Move& move) {
  if (move.entry != nullptr) move.entry->moving = 0;
  move.entry = nullptr;
  if (move.is_gathered) {
    // The leader is retired at the next look, because the caller may be iterating over its
    // neighbours.
    if (move.leader != nullptr) --move.leader->user_count;
    move.leader = nullptr;
    move.group.reset();
  }
  List& list = *move.list;
  (move.previous != nullptr ? move.previous->next : list.newest) = move.next;
  (move.next != nullptr ? move.next->previous : list.oldest) = move.previous;
  move.next = list.free;
  list.free = &move;
  --list.in_use_count;
}

void InFlightMoves::reserve_one(std::uint32_t thread) {
  List& list = lists_[thread % lists_.size()];
  if (list.free != nullptr) return;
  // Moves mostly end in the order in which they began.
  if (list.oldest != nullptr && over(*list.oldest)) return retire(*list.oldest);
  sweep(list);
  if (list.free != nullptr) return;
  Move& move = moves_.emplace_back();
  move.number = static_cast<std::uint32_t>(moves_.size());
  move.owner = this;
  move.list = &list;
  list.free = &move;
}

InFlightMoves::Move& InFlightMoves::begin_move(EntryState& entry, bool is_gathered,
                                               std::uint32_t thread) {
  List& list = lists_[thread % lists_.size()];
  Move& move = *list.free;
  list.free = move.next;
  ++list.in_use_count;
  move.next = list.newest;
  move.previous = nullptr;
  (list.newest != nullptr ? list.newest->previous : list.oldest) = &move;
  list.newest = &move;
  move.entry = &entry;
  move.undecided.store_relaxed(1);  // relaxed: the mutex publishes it.
  move.is_gathered = is_gathered;
  entry.moving = move.number;
  return move;
}

void InFlightMoves::decide(Move& move) noexcept {
  move.undecided.store_release(0);  // edge: move-decided (release)
  move.undecided.notify_all();
}

namespace {

void record_move(const EntryState& entry, const engine::Job& job) {
  trace::record(
      {.id = trace::id_of(&entry), .other = trace::id_of(&job), .kind = trace::Kind::cached});
}

}  // namespace

bool InFlightMoves::RegisteredMove::submit(engine::Engine& engine, engine::SubmitOptions& options) {
  options.callback = &move_ended;
  options.callback_context = move_;
  EntryState& entry = *move_->entry;
  if (move_->owner->core_.submit_copy(engine, move_->job, entry, options) !=
      engine::Submit::accepted) {
    return false;
  }
  record_move(entry, move_->job);
  entry.progress.notify_submission();
  return true;
}

void InFlightMoves::Gathering::end() noexcept {
  for (Move* const member : members_) decide(*member);
  members_.clear();
}

void InFlightMoves::Gathering::add(RegisteredMove& registered_move) {
  members_.push_back(registered_move.move_);
  registered_move.move_ = nullptr;
}

bool InFlightMoves::Gathering::submit(engine::Engine& engine, engine::SubmitOptions options) {
  auto made = std::make_unique<Group>();
  made->completions.resize(members_.size());
  made->operations.reserve(members_.size());
  made->members = members_;
  for (const Move* const member : members_) {
    made->operations.push_back(moves_.core_.copy_operation(*member->entry));
  }
  Move& leader = *members_.front();
  Group& group = *made;
  {
    const Lock lock(moves_.mutex);
    leader.group = std::move(made);
    leader.user_count += static_cast<std::uint32_t>(members_.size() - 1);
    for (Move* const member : members_) {
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
    is_accepted = false;  // As if it was refused.
  }
  if (!is_accepted) {
    moves_.disband(members_);
    return false;
  }
  for (const Move* const member : members_) {
    record_move(*member->entry, leader.job);
    member->entry->progress.notify_submission();
  }
  return true;
}

void InFlightMoves::disband(std::span<Move* const> members) noexcept {
  const Lock lock(mutex);
  Move& leader = *members.front();
  leader.user_count -= static_cast<std::uint32_t>(members.size() - 1);
  leader.group.reset();
  for (Move* const member : members) member->leader = nullptr;
}

template <typename Use>
void InFlightMoves::with_move(const EntryState& entry, Use use) {
  Move* move = nullptr;
  {
    const Lock lock(mutex);
    if (entry.moving == 0) return;
    move = &moves_[entry.moving - 1];
    ++move->user_count;
  }
  use(*move);
  let_go(*move);
}

bool InFlightMoves::wait(EntryState& entry, std::chrono::nanoseconds time_max) {
  bool has_ended = true;
  with_move(entry, [&](Move& move) { has_ended = job_of(move).wait_for(time_max); });
  return has_ended;
}

void InFlightMoves::poll(EntryState& entry) {
  with_move(entry, [](Move& move) { static_cast<void>(job_of(move).poll()); });
}

void InFlightMoves::stop(EntryState& entry) {
  with_move(entry, [](Move& move) { stop(move); });
}

void InFlightMoves::stop(Move& move) {
  if (!move.is_gathered) move.job.stop();
}

void InFlightMoves::stop_and_wait(Move& move) {
  stop(move);
  engine::Job& job = job_of(move);
  // Idle if the engine refused its first submission.
  if (job.state() != engine::JobState::idle) job.wait();
}

bool InFlightMoves::try_finish(EntryState& entry) {
  if (entry.moving == 0) return true;
  Move& move = moves_[entry.moving - 1];
  if (!over(move)) return false;
  retire(move);
  return true;
}

void InFlightMoves::finish(EntryState& entry) {
  Move* move = nullptr;
  {
    const Lock lock(mutex);
    if (try_finish(entry)) return;
    move = &moves_[entry.moving - 1];
    ++move->user_count;
  }
  stop_and_wait(*move);
  const Lock lock(mutex);
  entry.moving = 0;  // A thread that stops the move may still use it.
  move->entry = nullptr;
  --move->user_count;
  if (over(*move)) retire(*move);
}

void InFlightMoves::stop_overlapping(const Region& region) {
  for (;;) {
    Move* move = nullptr;
    {
      const Lock lock(mutex);
      move = find(region);
      if (move == nullptr) return;
      ++move->user_count;
    }
    if (move->undecided.load_acquire() != 0) {  // edge: move-decided (acquire)
      move->undecided.wait_acquire(1);          // edge: move-decided (acquire)
    } else {
      stop_and_wait(*move);
    }
    let_go(*move);
  }
}

InFlightMoves::Move* InFlightMoves::find(const Region& region) {
  for (const List& list : lists_) {
    for (Move* move = list.newest; move != nullptr;) {
      Move* const next = move->next;
      if (reads(*move, region)) return move;
      if (over(*move)) retire(*move);
      move = next;
    }
  }
  return nullptr;
}

void InFlightMoves::let_go(Move& move) {
  const Lock lock(mutex);
  --move.user_count;
  if (over(move)) retire(move);
}

bool InFlightMoves::reads(const Move& move, const Region& region) {
  if (move.entry == nullptr) return false;
  // edge: move-decided (acquire)
  if (move.undecided.load_acquire() == 0 && job_of(move).state() != engine::JobState::running) {
    return false;
  }
  return move.entry->region().overlaps(region);
}

void InFlightMoves::sweep(const List& list) {
  // Sweep only at powers of two, so that the amortized cost per move is constant.
  if (list.in_use_count < 8 || !std::has_single_bit(list.in_use_count)) return;
  for (Move* move = list.newest; move != nullptr;) {
    Move* const next = move->next;
    if (over(*move)) retire(*move);
    move = next;
  }
}

void InFlightMoves::move_ended(void* context, const engine::Completion& completion) noexcept {
  end(*static_cast<Move*>(context), completion);
}

void InFlightMoves::batch_ended(void* context, const engine::Completion& completion) noexcept {
  const Group& group = *static_cast<Move*>(context)->group;
  for (std::size_t i = 0; i < group.members.size(); ++i) {
    engine::Completion own = group.completions[i];
    // The engine does not report which copy an abandoned device may still write to.
    own.late_write_possible = own.late_write_possible || completion.late_write_possible;
    end(*group.members[i], own);
  }
}

void InFlightMoves::end(const Move& move, const engine::Completion& completion) noexcept {
  Core& core = move.owner->core_;
  EntryState& entry = *move.entry;
  bool done = completion.state == engine::JobState::done;
  if (completion.late_write_possible) {
    // The copy is correct now, but may be overwritten later with other contents of the source.
    core.late_writes.add(1);
    entry.keep_memory();
    done = false;
  }
  if (done) {  // Count first, so that a thread that has waited finds the move counted.
    move.owner->bytes_moved.add(entry.region().byte_count);
  } else {
    move.owner->moves_failed.add(1);
  }
  core.tell_ended(done ? EventKind::moved : EventKind::move_failed, entry, completion);
  entry.progress.end(done ? Phase::copied : Phase::left);
}

}  // namespace headrace::cache::detail
