// SPDX-License-Identifier: Apache-2.0
// The batches of a DSA mover: lists of descriptors, fences, and what a processor does in between.
#include <algorithm>

#include "dsa_descriptor.hpp"
#include "dsa_mover.hpp"
#include "dsa_slot.hpp"
#include "operands.hpp"
#include "outcome.hpp"
#include "software/software.hpp"

namespace headrace::engine {

using detail::add_flags;
using detail::kRecordFlags;
using detail::set_status;

DsaMover::Next DsaMover::issue_batch(Slot& slot) noexcept {
  const std::span<const Operation> operations = slot.share->batch().operations;
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
bool DsaMover::is_refused(const Slot& slot) noexcept {
  return slot.full_ticks != 0 && slot.at == 0 && (!slot.large || slot.batch_place.at == 0);
}

/// Too large for one descriptor, and not for several.
bool DsaMover::is_large(const Operation& operation) const noexcept {
  return operation.byte_count() > piece_bytes_max_ && !is_beyond(operation);
}

/// Makes operation `at`, before which all have ended, a lane of its own: piece after piece. What is
/// behind it comes after it.
void DsaMover::begin_large(Slot& slot) noexcept {
  slot.batch_place = {slot.at, slot.end, slot.outcome};
  slot.large = true;
  slot.begin = 0;
  slot.at = 0;
  slot.end = slot.whole().byte_count();
  slot.tries = 0;
  slot.outcome = {};
}

/// Goes back to the batch; what it gives says how far the operation is.
ShareOutcome DsaMover::leave_large(Slot& slot) noexcept {
  const ShareOutcome one = slot.outcome;
  slot.begin = 0;
  slot.at = slot.batch_place.at;
  slot.end = slot.batch_place.end;
  slot.outcome = slot.batch_place.outcome;
  slot.large = false;
  slot.tries = 0;
  return one;
}

/// The large operation has ended: the batch goes on behind it.
DsaMover::Next DsaMover::end_large(Slot& slot) noexcept {
  const ShareOutcome one = leave_large(slot);
  slot.outcome.bytes_done += one.bytes_done;
  slot.outcome.bytes_by_device += one.bytes_by_device;
  slot.outcome.page_faults += one.page_faults;
  slot.outcome.retries += one.retries;
  slot.outcome.fell_back = slot.outcome.fell_back || one.fell_back;
  slot.outcome.stopped = one.stopped;
  if (slot.outcome.device_status == 0) slot.outcome.device_status = one.device_status;
  if (one.cause != Cause::none) note_failure(slot, slot.at);
  detail::note(slot.share->batch(), slot.at, one);
  note_done(slot, 1);
  return slot.at == slot.end ? Next::ended : issue(slot);
}

bool DsaMover::send_batch(Slot& slot) noexcept {
  const std::span<const Operation> operations = slot.share->batch().operations;
  const std::size_t window = std::min(slot.end - slot.at, kBatchMax);
  const std::size_t count_max = std::min(window, batch_max_);
  const std::size_t copy_bytes_max = short_copy_bytes_max_.load_relaxed();  // A hint.
  dsa::Descriptor* const list = slot.room.descriptors.get();
  std::size_t count = 0;
  slot.quiet = true;
  for (std::size_t i = 0; i < window && count < count_max; ++i) {
    if ((slot.done >> i & 1U) != 0) continue;
    const Operation& operation = operations[slot.at + i];
    if (operation.is_plain_copy() && count_max > 1 && operation.byte_count() <= copy_bytes_max) {
      // What most batches are made of.
      dsa::CompletionRecord& record = slot.room.records[count];
      detail::write_descriptor(detail::head_word(dsa::Opcode::move, copy_flags_), record,
                               operation.source().data(), operation.target().data(),
                               operation.byte_count(), list[count]);
      set_status(record, 0);
      ++count;
      continue;
    }
    slot.quiet = false;
    const bool alone = operation.kind() == OperationKind::drain;  // Not allowed in a list.
    // The device does not know what failed before this list.
    const bool broken = is_broken(slot, slot.at + i);
    if (count > 0 &&
        (alone || broken || operation.byte_count() > piece_bytes_max_ || is_beyond(operation))) {
      break;
    }
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
  if (count > 1) {
    slot.descriptor = {};
    slot.descriptor.opcode = static_cast<std::uint8_t>(dsa::Opcode::batch);
    slot.descriptor.desc_list_addr = reinterpret_cast<std::uintptr_t>(list);
    slot.descriptor.desc_count = static_cast<std::uint32_t>(count);
    slot.descriptor.flags = kRecordFlags;
  } else if (count_max > 1 && operations[slot.at].kind() != OperationKind::drain) {
    slot.descriptor = list[0];
  }
  slot.descriptor.completion_addr = reinterpret_cast<std::uintptr_t>(&slot.record);
  set_status(slot.record, 0);
  return hand_over(slot);
}

void DsaMover::take_batch(Slot& slot, std::uint8_t status) noexcept {
  const Batch& batch = slot.share->batch();
  const bool list = slot.piece > 1;
  if (list && status != DSA_COMP_SUCCESS) {
    if (slot.outcome.device_status == 0) slot.outcome.device_status = status;
    const dsa::Status told = dsa::status_of(status);
    const bool usual = told == dsa::Status::batch_failed || told == dsa::Status::batch_page_fault ||
                       status == dsa::kStatusAborted;
    if (!usual) slot.tries = kTriesMax;
  }
  if (list && slot.quiet && slot.done == 0 && status == DSA_COMP_SUCCESS &&
      batch.completions.empty()) {
    // Of all of them, which are copies.
    std::size_t byte_count = 0;
    const std::size_t end = slot.at + slot.piece;
    for (; slot.at < end; ++slot.at) byte_count += batch.operations[slot.at].byte_count();
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
void DsaMover::note_done(Slot& slot, std::uint64_t more) noexcept {
  slot.done |= more;
  for (; slot.at < slot.end && (slot.done & 1U) != 0; slot.done >>= 1U) ++slot.at;
}

/// True if `record` tells of something that another submission may mend: a page that was not there
/// and is now, a reset, or that the device did not come to the operation, because of a fence or of
/// what happened to another.
bool DsaMover::may_be_sent_again(const Slot& slot, const Operation& operation,
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
bool DsaMover::take_answer(Slot& slot, std::size_t index,
                           const dsa::CompletionRecord& record) noexcept {
  const Batch& batch = slot.share->batch();
  const Operation& operation = batch.operations[index];
  const std::uint8_t status = dsa::load_status(record);
  ShareOutcome one{.cause = Cause::device_error};
  if (status != 0) one = detail::to_outcome(operation, operation.byte_count(), record);
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
void DsaMover::finish_unanswered(Slot& slot) noexcept {
  const Batch& batch = slot.share->batch();
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
void DsaMover::do_next_in_batch(Slot& slot) noexcept {
  if (is_broken(slot, slot.at)) return break_fence(slot, slot.at);
  do_in_batch(slot, slot.at);
  note_done(slot, 1);
}

/// All of an operation by the calling thread, in the place of the device. It lies behind no broken
/// fence.
void DsaMover::do_in_batch(Slot& slot, std::size_t index) noexcept {
  const Batch& batch = slot.share->batch();
  const Operation& operation = batch.operations[index];
  ShareOutcome one;
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

void DsaMover::stop_batch(Slot& slot) noexcept {
  while (slot.at < slot.end) {
    detail::note(slot.share->batch(), slot.at, {.stopped = true});
    note_done(slot, 1);
  }
}

/// True if something before the fence of operation `index` failed. What failed behind it says
/// nothing: the operation had begun then, and is to be begun again.
bool DsaMover::is_broken(const Slot& slot, std::size_t index) noexcept {
  return slot.failed_at < index && slot.share->batch().operations[index].is_fenced();
}

/// True if that is so of one of the operations from `first` to `last`, which then lies behind it.
/// (Nothing is sent while it is so of one before.)
bool DsaMover::is_any_broken(const Slot& slot, std::size_t first, std::size_t last) noexcept {
  for (; first <= last; ++first) {
    if (is_broken(slot, first)) return true;
  }
  return false;
}

void DsaMover::note_failure(Slot& slot, std::size_t index) noexcept {
  slot.outcome.cause = Cause::batch_failed;
  slot.failed_at = std::min(slot.failed_at, index);
}

/// Nothing behind a broken fence begins, from operation `index` on: the batch ends before it.
void DsaMover::break_fence(Slot& slot, std::size_t index) noexcept {
  detail::note_rest(slot.share->batch(), index, {.cause = Cause::fence_broken});
  slot.end = index;
}

}  // namespace headrace::engine
