// SPDX-License-Identifier: Apache-2.0
// What a DSA queue does when a descriptor does not simply succeed: page faults and errors, batches
// with their fences, a full queue, a device that does not answer. Not for: the way of what succeeds
// (queue.cpp).
#include <algorithm>

#include "../completions.hpp"
#include "../memory_access.hpp"
#include "../software/software.hpp"
#include "codec.hpp"
#include "headrace/platform/ticks.hpp"
#include "queue.hpp"
#include "slot.hpp"

namespace headrace::engine {

using detail::add_flags;
using detail::kRecordFlags;
using detail::kUnsent;
using detail::set_status;
using detail::status_of;

// --- A descriptor that failed
// ----------------------------------------------------------------------

DsaQueue::Next DsaQueue::take_piece(Slot& slot, std::uint8_t status) noexcept {
  const Operation& whole = slot.whole();
  Completion piece = detail::to_completion(whole, slot.piece, slot.record);
  piece.bytes_by_device = piece.bytes_done;
  switch (piece.cause) {
    case Cause::page_fault:
      page_faults_.fetch_add_relaxed(1);  // A count of its own.
      return resolve_fault(slot, piece);
    case Cause::device_error:
      note_error(whole, status);
      if (slot.outcome.device_status == 0) slot.outcome.device_status = status;
      // What a reset took away may be done again.
      if (status == dsa::kStatusAborted && ++slot.tries < kTriesMax) return issue(slot);
      return finish_on_cpu(slot);
    default:
      break;
  }
  detail::append(slot.outcome, piece, slot.at - slot.begin);
  slot.at += piece.bytes_done;
  if (slot.at == slot.end || piece.cause != Cause::none || piece.result.different) {
    return Next::ended;
  }
  slot.tries = 0;
  return issue(slot);
}

DsaQueue::Next DsaQueue::resolve_fault(Slot& slot, const Completion& piece) noexcept {
  const bool write = dsa::is_write_fault(piece.device_status);
  Completion progress = piece;
  progress.cause = Cause::none;
  progress.fault_address = 0;
  progress.page_faults = 1;
  detail::append(slot.outcome, progress, slot.at - slot.begin);
  slot.at += piece.bytes_done;
  slot.tries = piece.bytes_done > 0 ? std::uint8_t{1} : static_cast<std::uint8_t>(slot.tries + 1);
  const Operation rest = slot.part(slot.at, slot.end - slot.at);
  const detail::Touched touched = detail::touch(rest, piece.fault_address, write);
  if (touched == detail::Touched::absent) {
    slot.outcome.cause = Cause::page_fault;
    slot.outcome.fault_address = piece.fault_address;
    return Next::ended;
  }
  if (device_.page_faults == FaultPolicy::finish_on_cpu || slot.tries >= kTriesMax ||
      touched == detail::Touched::foreign) {
    return finish_on_cpu(slot);
  }
  return issue(slot);
}

DsaQueue::Next DsaQueue::finish_on_cpu(Slot& slot) noexcept {
  if (slot.batch && !slot.large) {
    while (slot.at < slot.end) do_next_in_batch(slot);
    return Next::ended;
  }
  const Operation rest = slot.part(slot.at, slot.end - slot.at);
  // A processor that meets an unmapped page ends the process; a job only fails.
  if (const auto bad = detail::untouchable(rest)) {
    slot.outcome.cause = Cause::page_fault;
    slot.outcome.fault_address = *bad;
    return Next::ended;
  }
  Completion outcome = software::execute_in_pieces(rest, *slot.request);
  outcome.fell_back = true;
  cpu_bytes_.fetch_add_relaxed(outcome.bytes_done);  // A count of its own.
  detail::append(slot.outcome, outcome, slot.at - slot.begin);
  return Next::ended;
}

/// The queue gets no operation of `kind` from now on.
void DsaQueue::refuse_kind(OperationKind kind) noexcept {
  refused_kinds_.fetch_or_relaxed(1U << static_cast<unsigned>(kind));       // A hint.
  if (kind == OperationKind::copy) short_copy_bytes_max_.store_relaxed(0);  // A hint.
}

/// Of a queue that does not say what it may do: its device has said so of an operation like this.
void DsaQueue::note_error(const Operation& operation, std::uint8_t status) noexcept {
  errors_.fetch_add_relaxed(1);  // A count of its own.
  if (portal_.info().opcodes || dsa::status_of(status) != dsa::Status::bad_opcode) return;
  refuse_kind(operation.kind());
}

// --- A queue that is full
// --------------------------------------------------------------------------

/// The queue is full: the next poll tries again, for as long as a device may take to answer.
DsaQueue::Next DsaQueue::carry_on(Slot& slot) noexcept {
  const std::uint64_t now = platform::ticks();
  if (slot.full_ticks == 0) slot.full_ticks = now;
  if (now - slot.full_ticks > answer_ticks_) return finish_on_cpu(slot);
  ++slot.outcome.retries;
  set_status(slot.record, kUnsent);
  return Next::posted;
}

Submit DsaQueue::refuse() const noexcept {
  // A queue that takes nothing for so long belongs to a device that is not there any more, and is
  // asked all the same each time.
  const std::uint64_t since = refusing_ticks_.load_relaxed();  // A hint of its own.
  return since != 0 && platform::ticks() - since > answer_ticks_ ? Submit::closed : Submit::full;
}

// --- A device that does not answer
// ------------------------------------------------------------------

void DsaQueue::give_up(std::uint32_t index) noexcept {
  Slot& slot = slots_[index];
  lost_count_.fetch_add_relaxed(1);    // A count of its own.
  silent_count_.fetch_add_relaxed(1);  // A count of its own.
  slot.lost = true;
  if (slot.large) {
    // From its beginning by a processor, if at all: what was done of it changes nothing.
    static_cast<void>(leave_large(slot));
    slot.piece = 1;
  }
  slot.outcome.fell_back = true;
  if (slot.batch) {
    finish_unanswered(slot);
  } else {
    static_cast<void>(finish_on_cpu(slot));
  }
  // Unless it is a matter of reading only.
  slot.outcome.late_write_possible = slot.batch || detail::writes(slot.request->operation().kind());
}

void DsaQueue::look_at_lost(std::uint64_t lost) noexcept {
  for (; lost != 0; lost &= lost - 1) {
    const auto index = static_cast<std::uint32_t>(std::countr_zero(lost));
    if (dsa::load_status(slots_[index].record) == 0 || !words_.find(index)) continue;
    // The device has answered after all: it lives, and is done with the slot.
    silent_count_.store_relaxed(0);  // A count of its own.
  }
}

/// Of a device that has been given up: sends it a no-op, unless one is on its way that may still be
/// answered, and looks for the answer. What was lost may never be answered: a device that was reset
/// or repaired meanwhile would never be used again. `has_room`: the caller has an entry of the
/// queue that is free, which words_ does not show.
void DsaQueue::probe(bool has_room) noexcept {
  Slot& slot = slots_[slot_count_];
  std::uint64_t sent = probe_ticks_.load_relaxed();  // The exchange below decides.
  if (sent == kProbeInProgress) return;
  const bool answered = sent != 0 && status_of(slot.record) != 0;
  const std::uint64_t now = platform::ticks();
  // All lost: if it answered, nothing could be submitted, and a dedicated queue may be full of
  // them.
  const bool all_busy = !has_room && words_.count() == slot_count_;  // A hint; it is asked again.
  if (!answered && (all_busy || (sent != 0 && now - sent <= answer_ticks_))) return;
  // The thread that makes the exchange has the slot to itself until it stores the time.
  // edge: probe-sent (acq_rel)
  if (!probe_ticks_.compare_exchange_acq_rel(sent, answered ? 0 : kProbeInProgress)) return;
  if (answered) return note_answer();
  set_status(slot.record, 0);
  detail::to_descriptor(Operation::no_op(), slot.descriptor);
  add_flags(slot.descriptor, 0);
  slot.descriptor.completion_addr = reinterpret_cast<std::uintptr_t>(&slot.record);
  // A queue that refuses it is asked again after as long.
  if (portal_.submit(slot.descriptor)) descriptors_.fetch_add_relaxed(1);  // A count of its own.
  probe_ticks_.store_release(now);  // edge: probe-sent (release)
}

/// In a list and not merely let go, so that leak checkers find it in use. It needs no
/// allocation and nothing ends it: a device goes on when main() has returned.
void DsaQueue::keep_for_ever(std::unique_ptr<Slot[]> slots) noexcept {
  struct Kept {
    Mutex mutex;
    Slot* last HEADRACE_GUARDED_BY(mutex) = nullptr;
  };
  static_assert(std::is_trivially_destructible_v<Kept>);
  static Kept kept;
  const Lock lock(kept.mutex);
  slots[0].kept_before = kept.last;
  kept.last = slots.release();
}

// --- Batches -------------------------------------------------------------------------------------

DsaQueue::Next DsaQueue::issue_batch(Slot& slot) noexcept {
  const std::span<const Operation> operations = slot.request->batch().operations;
  while (slot.at < slot.end && is_beyond(operations[slot.at])) do_next_in_batch(slot);
  if (slot.at < slot.end && is_broken(slot, slot.at)) break_fence(slot, slot.at);
  if (slot.at == slot.end) return Next::ended;
  if (is_large(operations[slot.at])) {
    begin_large(slot);
    return send(slot) ? Next::posted : carry_on(slot);
  }
  return send_batch(slot) ? Next::posted : carry_on(slot);
}

/// Of a batch that was issued the first time: the queue took nothing of it, and nothing has begun.
bool DsaQueue::is_refused(const Slot& slot) noexcept {
  return slot.full_ticks != 0 && slot.at == 0 && (!slot.large || slot.batch_place.at == 0);
}

/// Too large for one descriptor, and not for several.
bool DsaQueue::is_large(const Operation& operation) const noexcept {
  return operation.byte_count() > piece_bytes_max_ && !is_beyond(operation);
}

/// Makes operation `at`, before which all have ended, a stripe of its own: piece after piece. What
/// is behind it comes after it.
void DsaQueue::begin_large(Slot& slot) noexcept {
  slot.batch_place = {slot.at, slot.end, slot.outcome};
  slot.large = true;
  slot.begin = 0;
  slot.at = 0;
  slot.end = slot.whole().byte_count();
  slot.tries = 0;
  slot.outcome = {};
}

/// Goes back to the batch; what it gives says how far the operation is.
Completion DsaQueue::leave_large(Slot& slot) noexcept {
  const Completion one = slot.outcome;
  slot.begin = 0;
  slot.at = slot.batch_place.at;
  slot.end = slot.batch_place.end;
  slot.outcome = slot.batch_place.outcome;
  slot.large = false;
  slot.tries = 0;
  return one;
}

/// The large operation has ended: the batch goes on behind it.
DsaQueue::Next DsaQueue::end_large(Slot& slot) noexcept {
  const Completion one = leave_large(slot);
  detail::add_counts(slot.outcome, one);
  if (detail::is_stopped(one)) slot.outcome.state = JobState::stopped;
  if (one.cause != Cause::none) note_failure(slot, slot.at);
  detail::note(slot.request->batch(), slot.at, one);
  note_done(slot, 1);
  return slot.at == slot.end ? Next::ended : issue(slot);
}

/// The first `count` descriptors of the list: those of copies, but for their operands.
void DsaQueue::prepare_list(detail::BatchRoom& room, std::size_t count) const noexcept {
  const std::uint64_t head = detail::head_word(dsa::Opcode::move, copy_flags_);
  for (std::size_t i = 0; i < count; ++i) {
    detail::write_descriptor(head, room.records[i], nullptr, nullptr, 0, room.descriptors[i]);
  }
  room.prepared_count = count;
}

bool DsaQueue::send_batch(Slot& slot) noexcept {
  // Nothing but copies, which most batches are.
  const std::span<const Operation> operations =
      slot.request->batch().operations.subspan(slot.at, std::min(slot.end - slot.at, batch_max_));
  std::size_t byte_count = 0;
  slot.copies = slot.done == 0 && operations.size() > 1 &&
                write_copies<true>(slot, operations, byte_count) == operations.size();
  if (slot.copies) {
    slot.piece = operations.size();
    write_list(slot, slot.piece);
  } else {
    write_any(slot);
  }
  if (!hand_over(slot)) return false;
  slot.full_ticks = 0;
  return true;
}

/// Writes the next list of operations of every kind, or the descriptor of a single one.
void DsaQueue::write_any(Slot& slot) noexcept {
  const std::span<const Operation> operations = slot.request->batch().operations;
  const std::size_t window = std::min(slot.end - slot.at, kBatchMax);
  const std::size_t count_max = std::min(window, batch_max_);
  dsa::Descriptor* const list = slot.room.descriptors.get();
  slot.room.prepared_count = 0;
  std::size_t count = 0;
  for (std::size_t i = 0; i < window && count < count_max; ++i) {
    if ((slot.done >> i & 1U) != 0) continue;
    const Operation& operation = operations[slot.at + i];
    const bool alone = operation.kind() == OperationKind::drain;  // Not allowed in a list.
    // The device does not know what failed before this list.
    const bool broken = is_broken(slot, slot.at + i);
    if (count > 0 &&
        (alone || broken || operation.byte_count() > piece_bytes_max_ || is_beyond(operation))) {
      break;
    }
    slot.durable = slot.durable || operation.is_durable();
    // The first of a list comes after all before the list anyway.
    dsa::Descriptor& descriptor = count_max == 1 || alone ? slot.descriptor : list[count];
    dsa::CompletionRecord& record =
        count_max == 1 || alone ? slot.record : slot.room.records[count];
    detail::to_descriptor(operation, descriptor);
    add_flags(descriptor, detail::hints(operation, portal_.info(), device_.page_faults) |
                              (count > 0 && operation.is_fenced() ? dsa::flag::fence : 0U));
    descriptor.completion_addr = reinterpret_cast<std::uintptr_t>(&record);
    set_status(record, 0);
    ++count;
    if (alone) break;
  }
  slot.piece = count;
  if (count > 1) return write_list(slot, count);
  slot.prepared = false;
  if (count_max > 1 && operations[slot.at].kind() != OperationKind::drain) {
    slot.descriptor = list[0];
  }
  slot.descriptor.completion_addr = reinterpret_cast<std::uintptr_t>(&slot.record);
  set_status(slot.record, 0);
}

void DsaQueue::take_batch(Slot& slot, std::uint8_t status) noexcept {
  const Batch& batch = slot.request->batch();
  const bool list = slot.piece > 1;
  if (list && status != DSA_COMP_SUCCESS) {
    if (slot.outcome.device_status == 0) slot.outcome.device_status = status;
    const dsa::Status told = dsa::status_of(status);
    const bool usual = told == dsa::Status::batch_failed || told == dsa::Status::batch_page_fault ||
                       status == dsa::kStatusAborted;
    if (!usual) slot.tries = kTriesMax;
  }
  if (slot.copies && slot.done == 0 && status == DSA_COMP_SUCCESS && batch.completions.empty()) {
    // Of all of them.
    std::size_t byte_count = slot.request->byte_count();
    if (slot.piece != batch.operations.size()) {
      byte_count = 0;
      for (std::size_t i = 0; i < slot.piece; ++i) {
        byte_count += batch.operations[slot.at + i].byte_count();
      }
    }
    slot.at += slot.piece;
    slot.outcome.bytes_done += byte_count;
    slot.outcome.bytes_by_device += byte_count;
    return;
  }
  std::uint64_t answered = 0;
  std::size_t position = 0;
  for (std::size_t i = 0; position < slot.piece; ++i) {
    if ((slot.done >> i & 1U) != 0) continue;
    const std::size_t index = slot.at + i;
    if (is_broken(slot, index)) {
      break_fence(slot, index);
      break;
    }
    const dsa::CompletionRecord& record = list ? slot.room.records[position] : slot.record;
    ++position;
    if (take_answer(slot, index, record)) answered |= std::uint64_t{1} << i;
  }
  slot.tries = answered != 0 ? std::uint8_t{0} : static_cast<std::uint8_t>(slot.tries + 1);
  note_done(slot, answered);
}

/// Operations that have ended, as in Slot::done. Those at the front are left behind.
void DsaQueue::note_done(Slot& slot, std::uint64_t more) noexcept {
  slot.done |= more;
  for (; slot.at < slot.end && (slot.done & 1U) != 0; slot.done >>= 1U) ++slot.at;
}

/// True if `record` tells of something that another submission may cure: a page that was not there
/// and is now, a reset, or that the device did not come to the operation, because of a fence or of
/// what happened to another.
bool DsaQueue::may_be_sent_again(const Slot& slot, const Operation& operation,
                                 const dsa::CompletionRecord& record) const noexcept {
  const std::uint8_t status = dsa::load_status(record);
  if (slot.tries >= kTriesMax) return false;
  if (status == 0 || status == dsa::kStatusAborted) return true;
  return dsa::status_of(status) == dsa::Status::page_fault &&
         device_.page_faults != FaultPolicy::finish_on_cpu &&
         detail::touch(operation, record.fault_addr, dsa::is_write_fault(status)) ==
             detail::Touched::present;
}

/// Returns false if the operation is to be submitted again.
bool DsaQueue::take_answer(Slot& slot, std::size_t index,
                           const dsa::CompletionRecord& record) noexcept {
  const Batch& batch = slot.request->batch();
  const Operation& operation = batch.operations[index];
  const std::uint8_t status = dsa::load_status(record);
  Completion one{.cause = Cause::device_error};
  if (status != 0) one = detail::to_completion(operation, operation.byte_count(), record);
  if (one.cause == Cause::page_fault || one.cause == Cause::device_error) {
    if (one.cause == Cause::page_fault) {
      page_faults_.fetch_add_relaxed(1);  // A count of its own.
      ++slot.outcome.page_faults;
    } else if (status != 0) {
      note_error(operation, status);
    }
    if (may_be_sent_again(slot, operation, record)) return false;
    if (is_any_broken(slot, slot.at, index)) {
      // The device had begun it, and since then what is before its fence was given up.
      note_failure(slot, index);
      detail::note(batch, index, {.cause = Cause::device_dead});
    } else {
      do_in_batch(slot, index);
    }
    return true;
  }
  slot.outcome.bytes_done += one.bytes_done;
  slot.outcome.bytes_by_device += one.bytes_done;
  if (one.cause != Cause::none) note_failure(slot, index);
  if (!batch.completions.empty()) {
    one.bytes_by_device = one.bytes_done;
    detail::note(batch, index, one);
  }
  return true;
}

/// The end of a batch that was not answered in time. What has a record of its own is as that says.
/// The device may have done the rest, or may do it yet, so a processor repeats it only where that
/// changes nothing: not if something behind a fence, once begun, writes to what it reads or writes.
/// What is not repeated has failed, so that nothing behind a fence that comes later begins.
void DsaQueue::finish_unanswered(Slot& slot) noexcept {
  const Batch& batch = slot.request->batch();
  const std::size_t begin = slot.at;
  const bool list = slot.piece > 1;
  slot.tries = kTriesMax;  // Nothing is sent again.
  const auto is_done = [&](std::size_t index) {
    return index - begin < kBatchMax && (slot.done >> (index - begin) & 1U) != 0;
  };
  const auto is_answered = [&](std::size_t position) {
    return list && dsa::load_status(slot.room.records[position]) != 0;
  };
  bool missing = false;
  bool fenced = false;
  bool repeatable = true;
  std::size_t position = 0;
  for (std::size_t i = begin; i < slot.end; ++i) {
    if (is_done(i)) continue;
    fenced = fenced || (missing && batch.operations[i].is_fenced());
    if (fenced && detail::writes(batch.operations[i].kind())) repeatable = false;
    missing = missing || (position < slot.piece && !is_answered(position));
    ++position;
  }
  position = 0;
  std::uint64_t ended = 0;
  bool given_up = false;  // One has failed of which it is not known what the device made of it.
  for (std::size_t i = begin; i < slot.end && position < slot.piece; ++i) {
    if (is_done(i)) continue;
    if (is_answered(position)) {
      static_cast<void>(take_answer(slot, i, slot.room.records[position]));
    } else if (!given_up && is_any_broken(slot, begin, i)) {
      break_fence(slot, i);
    } else if (!repeatable) {
      given_up = true;
      note_failure(slot, i);
      detail::note(batch, i, {.cause = Cause::device_dead});
    } else {
      do_in_batch(slot, i);
    }
    ended |= std::uint64_t{1} << (i - begin);
    ++position;
  }
  note_done(slot, ended);
  // The fence itself may have ended above.
  if (slot.at < slot.end && is_any_broken(slot, begin, slot.at)) break_fence(slot, slot.at);
  while (slot.at < slot.end) do_next_in_batch(slot);
}

/// The next operation of a batch by the calling thread, unless it lies behind a broken fence: then
/// nothing more of the batch begins.
void DsaQueue::do_next_in_batch(Slot& slot) noexcept {
  if (is_broken(slot, slot.at)) return break_fence(slot, slot.at);
  do_in_batch(slot, slot.at);
  note_done(slot, 1);
}

/// All of an operation by the calling thread, in the place of the device. It lies behind no broken
/// fence.
void DsaQueue::do_in_batch(Slot& slot, std::size_t index) noexcept {
  const Batch& batch = slot.request->batch();
  const Operation& operation = batch.operations[index];
  Completion one;
  if (const auto bad = detail::untouchable(operation)) {
    one = {.cause = Cause::page_fault, .fault_address = *bad};
  } else {
    one = software::execute(operation);
    one.fell_back = true;
    cpu_bytes_.fetch_add_relaxed(one.bytes_done);  // A count of its own.
    slot.outcome.fell_back = true;
  }
  slot.outcome.bytes_done += one.bytes_done;
  if (one.cause != Cause::none) note_failure(slot, index);
  detail::note(batch, index, one);
}

void DsaQueue::stop_batch(Slot& slot) noexcept {
  while (slot.at < slot.end) {
    detail::note(slot.request->batch(), slot.at, detail::kStopped);
    note_done(slot, 1);
  }
}

/// True if something before the fence of operation `index` failed. What failed behind it says
/// nothing: the operation had begun then, and is to be begun again.
bool DsaQueue::is_broken(const Slot& slot, std::size_t index) noexcept {
  return slot.failed_at < index && slot.request->batch().operations[index].is_fenced();
}

/// True if that is so of one of the operations from `first` to `last`, which then lies behind it.
/// (Nothing is sent while it is so of one before.)
bool DsaQueue::is_any_broken(const Slot& slot, std::size_t first, std::size_t last) noexcept {
  for (; first <= last; ++first) {
    if (is_broken(slot, first)) return true;
  }
  return false;
}

void DsaQueue::note_failure(Slot& slot, std::size_t index) noexcept {
  slot.outcome.cause = Cause::batch_failed;
  slot.failed_at = std::min(slot.failed_at, index);
}

/// Nothing behind a broken fence begins, from operation `index` on: the batch ends before it.
void DsaQueue::break_fence(Slot& slot, std::size_t index) noexcept {
  detail::note_rest(slot.request->batch(), index, {.cause = Cause::fence_broken});
  slot.end = index;
}

}  // namespace headrace::engine
