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
  while (slot.at < slot.end &&
         (operations[slot.at].byte_count() > piece_bytes_max_ || is_beyond(operations[slot.at]))) {
    do_next_in_batch(slot);
  }
  if (slot.at < slot.end && slot.outcome.cause != Cause::none && operations[slot.at].is_fenced()) {
    break_fence(slot);
  }
  if (slot.at == slot.end) return Next::ended;
  return send_batch(slot) ? Next::posted : carry_on(slot);
}

bool DsaMover::send_batch(Slot& slot) noexcept {
  const std::span<const Operation> operations = slot.share->batch().operations;
  const std::size_t count_max = std::min(slot.end - slot.at, batch_max_);
  dsa::Descriptor* const list = slot.room.descriptors.get();
  std::size_t count = 0;
  slot.quiet = true;
  for (; count < count_max; ++count) {
    const Operation& operation = operations[slot.at + count];
    if (operation.is_plain_copy() && count_max > 1 && operation.byte_count() <= piece_bytes_max_) {
      // What most batches are made of.
      dsa::CompletionRecord& record = slot.room.records[count];
      detail::write_descriptor(detail::head_word(dsa::Opcode::move, copy_flags_), record,
                               operation.source().data(), operation.target().data(),
                               operation.byte_count(), list[count]);
      set_status(record, 0);
      continue;
    }
    slot.quiet = false;
    const bool alone = operation.kind() == OperationKind::drain;  // Not allowed in a list.
    // The device does not know what failed before this list.
    const bool broken = operation.is_fenced() && slot.outcome.cause != Cause::none;
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
    if (alone) {
      count = 1;
      break;
    }
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
  const std::size_t end = slot.at + slot.piece;
  const bool list = slot.piece > 1;
  if (list && status != DSA_COMP_SUCCESS && slot.outcome.device_status == 0) {
    slot.outcome.device_status = status;
  }
  if (list && slot.quiet && status == DSA_COMP_SUCCESS && batch.completions.empty()) {
    // Of all of them, which are copies.
    std::size_t byte_count = 0;
    for (; slot.at < end; ++slot.at) byte_count += batch.operations[slot.at].byte_count();
    slot.outcome.bytes_done += byte_count;
    slot.outcome.bytes_by_device += byte_count;
    return;
  }
  for (std::size_t i = slot.at; i < end; ++i) {
    if (batch.operations[i].is_fenced() && slot.outcome.cause != Cause::none) {
      slot.at = i;
      return break_fence(slot);
    }
    const dsa::CompletionRecord& record = list ? slot.room.records[i - slot.at] : slot.record;
    take_answer(slot, i, record);
  }
  slot.at = end;
}

void DsaMover::take_answer(Slot& slot, std::size_t index,
                           const dsa::CompletionRecord& record) noexcept {
  const Batch& batch = slot.share->batch();
  const Operation& operation = batch.operations[index];
  ShareOutcome one;
  // No status: the device did not come to it, because of a fence or of its own trouble.
  if (dsa::load_status(record) == 0) {
    one.cause = Cause::device_error;
  } else {
    one = detail::to_outcome(operation, operation.byte_count(), record);
  }
  if (one.cause == Cause::page_fault || one.cause == Cause::device_error) {
    Atomic<std::uint64_t>& counter = one.cause == Cause::page_fault ? page_faults_ : errors_;
    counter.fetch_add_relaxed(1);  // A count of its own.
    slot.outcome.page_faults += one.cause == Cause::page_fault ? 1U : 0U;
    return do_in_batch(slot, index);
  }
  slot.outcome.bytes_done += one.bytes_done;
  slot.outcome.bytes_by_device += one.bytes_done;
  if (one.cause != Cause::none) slot.outcome.cause = Cause::batch_failed;
  if (!batch.completions.empty()) {
    one.bytes_by_device = one.bytes_done;
    detail::note(batch, index, one);
  }
}

/// The end of a batch that was not answered in time. What has a record of its own is as that says.
/// The device may have done the rest, or may do it yet, so a processor repeats it only where that
/// changes nothing: not if something behind a fence, once begun, writes to what it reads or writes.
void DsaMover::finish_unanswered(Slot& slot) noexcept {
  const Batch& batch = slot.share->batch();
  const std::size_t begin = slot.at;
  const std::size_t sent_end = begin + slot.piece;
  const bool list = slot.piece > 1;
  const auto is_answered = [&](std::size_t index) {
    return list && dsa::load_status(slot.room.records[index - begin]) != 0;
  };
  bool missing = false;
  bool fenced = false;
  bool repeatable = true;
  for (std::size_t i = begin; i < slot.end; ++i) {
    fenced = fenced || (missing && batch.operations[i].is_fenced());
    if (fenced && detail::writes(batch.operations[i].kind())) repeatable = false;
    missing = missing || (i < sent_end && !is_answered(i));
  }
  while (slot.at < sent_end) {
    if (is_answered(slot.at)) {
      take_answer(slot, slot.at, slot.room.records[slot.at - begin]);
      ++slot.at;
    } else if (repeatable) {
      do_next_in_batch(slot);
    } else {
      slot.outcome.cause = Cause::batch_failed;
      detail::note(batch, slot.at, {.cause = Cause::device_dead});
      ++slot.at;
    }
  }
  while (slot.at < slot.end) do_next_in_batch(slot);
}

/// The next operation of a batch by the calling thread, unless it lies behind a broken fence: then
/// nothing more of the batch begins.
void DsaMover::do_next_in_batch(Slot& slot) noexcept {
  const Operation& next = slot.share->batch().operations[slot.at];
  if (next.is_fenced() && slot.outcome.cause != Cause::none) return break_fence(slot);
  do_in_batch(slot, slot.at++);
}

/// All of an operation by the calling thread, in the place of the device. Its fence, if it has one,
/// is not broken.
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
  if (one.cause != Cause::none) slot.outcome.cause = Cause::batch_failed;
  detail::note(batch, index, one);
}

void DsaMover::stop_batch(Slot& slot) noexcept {
  detail::note_rest(slot.share->batch(), slot.at, {.stopped = true});
  slot.at = slot.end;
}

/// Nothing behind a broken fence begins.
void DsaMover::break_fence(Slot& slot) noexcept {
  detail::note_rest(slot.share->batch(), slot.at, {.cause = Cause::fence_broken});
  slot.at = slot.end;
}

}  // namespace headrace::engine
