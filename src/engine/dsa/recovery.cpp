// SPDX-License-Identifier: Apache-2.0
// The slow paths of a DSA queue: page faults and errors, batches with fences, full queues,
// timeouts. queue.cpp has the path of what succeeds.
#include <algorithm>
#include <bit>

#include "../completions.hpp"
#include "../memory_access.hpp"
#include "../software/software.hpp"
#include "codec.hpp"
#include "headrace/platform/ticks.hpp"
#include "queue.hpp"
#include "slot.hpp"

namespace headrace::engine {

using detail::kUnsent;
using detail::set_status;
using detail::status_of;

// --- A descriptor that ended ---------------------------------------------------------------------

/// The completion of the `byte_count` bytes from `at` of `operation`. Writes back what the record
/// says is done of a durable target: where a device's writes go depends on the platform, so they
/// may be in a cache whatever the descriptor requested. The rest of the target may not be mapped.
Completion DsaQueue::read_record(const Operation& operation, std::size_t at, std::size_t byte_count,
                                 const dsa::CompletionRecord& record) noexcept {
  const Completion made = detail::to_completion(operation, byte_count, record);
  if (!operation.is_durable() || made.bytes_done == 0) [[likely]]
    return made;
  if (operation.cut_bytes() != 0) {
    detail::make_durable(operation.part(at, made.bytes_done));
  } else if (const auto bad = detail::untouchable(operation)) {
    // A delta, which may be shorter than its target.
    return {.cause = Cause::page_fault, .fault_address = *bad};
  } else {
    detail::make_durable(operation);
  }
  return made;
}

DsaQueue::Next DsaQueue::take_piece(Slot& slot, std::uint8_t status) noexcept {
  const Operation& whole = *slot.operation;
  Completion piece = read_record(whole, slot.at, slot.piece, slot.record);
  piece.bytes_by_device = piece.bytes_done;
  switch (piece.cause) {
    case Cause::page_fault:
      page_faults_.fetch_add_relaxed(1);  // A count.
      return resolve_fault(slot, piece);
    case Cause::device_error:
      note_error(whole, status);
      if (slot.one.device_status == 0) slot.one.device_status = status;
      // Aborted by a reset: submit again.
      if (status == dsa::kStatusAborted && ++slot.tries < kTriesMax) return issue(slot);
      return finish_on_cpu(slot);
    default:
      break;
  }
  detail::append(slot.one, piece, slot.at - slot.begin);
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
  detail::append(slot.one, progress, slot.at - slot.begin);
  slot.at += piece.bytes_done;
  slot.tries = piece.bytes_done > 0 ? std::uint8_t{1} : static_cast<std::uint8_t>(slot.tries + 1);
  const Operation rest = slot.operation->part(slot.at, slot.end - slot.at, slot.one.result);
  const detail::Touched touched = detail::touch(rest, piece.fault_address, write);
  if (touched == detail::Touched::absent) {
    slot.one.cause = Cause::page_fault;
    slot.one.fault_address = piece.fault_address;
    return Next::ended;
  }
  if (device_.page_faults == FaultPolicy::finish_on_cpu || slot.tries >= kTriesMax ||
      touched == detail::Touched::foreign) {
    return finish_on_cpu(slot);
  }
  return issue(slot);
}

/// Completes the rest on the calling thread.
DsaQueue::Next DsaQueue::finish_on_cpu(Slot& slot) noexcept {
  if (slot.operation == nullptr) {
    while (slot.next < slot.list_end) do_in_batch(slot, slot.next);
    return Next::ended;
  }
  const Operation rest = slot.operation->part(slot.at, slot.end - slot.at, slot.one.result);
  // An unmapped page would crash the process; instead the job fails.
  if (const auto bad = detail::untouchable(rest)) {
    slot.one.cause = Cause::page_fault;
    slot.one.fault_address = *bad;
    return Next::ended;
  }
  Completion outcome = software::execute_in_pieces(rest, *slot.request);
  outcome.fell_back = true;
  cpu_bytes_.fetch_add_relaxed(outcome.bytes_done);  // A count.
  detail::append(slot.one, outcome, slot.at - slot.begin);
  return Next::ended;
}

/// No operation of `kind` is submitted to the queue from now on.
void DsaQueue::refuse_kind(OperationKind kind) noexcept {
  refused_kinds_.fetch_or_relaxed(1U << static_cast<unsigned>(kind));       // A hint.
  if (kind == OperationKind::copy) short_copy_bytes_max_.store_relaxed(0);  // A hint.
}

/// Counts the error. If the queue does not report its opcodes, remembers a kind that the device
/// refused.
void DsaQueue::note_error(const Operation& operation, std::uint8_t status) noexcept {
  errors_.fetch_add_relaxed(1);  // A count.
  if (portal_.info().opcodes || dsa::status_of(status) != dsa::Status::bad_opcode) return;
  refuse_kind(operation.kind());
}

// --- A queue that is full ------------------------------------------------------------------------

/// The queue is full: the next poll submits again, until the timeout has passed.
DsaQueue::Next DsaQueue::retry(Slot& slot) noexcept {
  const std::uint64_t now = platform::ticks();
  if (slot.full_ticks == 0) slot.full_ticks = now;
  if (now - slot.full_ticks > timeout_ticks_) return finish_on_cpu(slot);
  ++slot.outcome().retries;
  set_status(slot.record, kUnsent);
  return Next::posted;
}

Submit DsaQueue::refuse() const noexcept {
  // A device whose queue accepts nothing for the timeout counts as absent; the queue is still tried
  // each time.
  const std::uint64_t since = refusing_ticks_.load_relaxed();  // A hint.
  return since != 0 && platform::ticks() - since > timeout_ticks_ ? Submit::closed : Submit::full;
}

// --- A device that does not answer ---------------------------------------------------------------

void DsaQueue::give_up(Slot& slot) noexcept {
  lost_count_.fetch_add_relaxed(1);    // A count.
  silent_count_.fetch_add_relaxed(1);  // A count.
  slot.lost = true;
  const bool is_batch = slot.request->is_batch();
  // Unless the operation only reads.
  const bool writes = is_batch || detail::writes(slot.operation->kind());
  const bool fails = writes && device_.late_writes == LateWrites::fail;
  if (is_batch) {
    finish_unanswered(slot);
  } else if (!fails) {
    static_cast<void>(finish_on_cpu(slot));
  }
  Completion& outcome = slot.outcome();
  outcome.fell_back = is_batch || !fails;
  outcome.late_write_possible = writes;
  if (fails && outcome.cause == Cause::none) outcome.cause = Cause::device_dead;
}

void DsaQueue::lose(std::uint32_t index) noexcept {
  slots_[index].posted_ticks.store_relaxed(~std::uint64_t{0});  // Never times out again.
  words_.lose(index);
}

/// Sends a no-op to a silent device, unless one is in flight, and checks for its answer. Without it
/// a device that was reset would never be used again, because lost slots may never be answered.
/// `has_room`: the caller has a free entry of the queue that words_ does not count.
void DsaQueue::probe(bool has_room) noexcept {
  Slot& slot = slots_[slot_count_];
  std::uint8_t status = 0;
  if (claim(probe_words_, 0, slot, status)) {
    probe_words_.free(0);
    if (status != 0) return note_answer();
  }
  if (probe_words_.take() == SlotWords::kNoSlot) return;
  // With all slots lost an answer would not help, and a dedicated queue may be full.
  if (!has_room && words_.count() == slot_count_) return probe_words_.free(0);  // A hint.
  write_any(Operation::no_op(), 0, slot.descriptor, slot.record);
  slot.posted_ticks.store_relaxed(platform::ticks());  // Published by the posting.
  // If refused, the probe times out and is repeated.
  if (portal_.submit(slot.descriptor)) slot.descriptor_count.add_alone(1);
  probe_words_.post(0);
}

/// Linked into a list so that leak checkers find it reachable. Never freed: a device may write
/// after main() has returned.
void DsaQueue::keep_for_ever(std::unique_ptr<Slot[]> slots) noexcept {
  static constinit Atomic<Slot*> last{nullptr};
  Slot* const first = slots.release();
  first->kept_before = last.load_relaxed();  // No thread traverses the list.
  while (!last.compare_exchange_relaxed(first->kept_before, first)) {
  }
}

// --- Batches -------------------------------------------------------------------------------------

DsaQueue::Next DsaQueue::issue_list(Slot& slot) noexcept {
  const std::span<const Operation> operations = slot.request->batch().operations;
  while (slot.next < slot.list_end && is_unsupported(operations[slot.next])) {
    do_in_batch(slot, slot.next);
  }
  if (slot.next == slot.list_end) return Next::ended;
  if (!write_batch(slot)) {
    const Operation& operation = operations[slot.next];
    begin_operation(slot, operation, 0, operation.byte_count());
    return send(slot) ? Next::posted : retry(slot);
  }
  if (!submit_slot(slot)) return retry(slot);
  slot.full_ticks = 0;
  return Next::posted;
}

/// Writes the first `count` descriptors of the list as copies, except for their operands.
void DsaQueue::prepare_list(Slot& slot, std::size_t count) const noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    detail::begin_descriptor(dsa::Opcode::move, copy_flags_, slot.records[i], slot.descriptors[i]);
  }
  slot.prepared_count = count;
}

/// Writes the next list. Returns false if the next operation must be submitted alone: it is the
/// only one, too large for one descriptor, or not allowed in a list.
bool DsaQueue::write_batch(Slot& slot) noexcept {
  const std::span<const Operation> operations = slot.request->batch().operations.subspan(
      slot.next, std::min(slot.list_end - slot.next, batch_max_));
  // The common case: only copies.
  std::size_t byte_count = 0;
  if (slot.done == 0 && operations.size() > 1 &&
      write_copies<true>(slot, operations, byte_count) == operations.size()) {
    slot.send_copies(operations.size());
    write_list(slot, operations.size());
    return true;
  }
  slot.copies = false;
  slot.prepared_count = 0;
  std::size_t count = 0;
  std::uint64_t sent = 0;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    if ((slot.done >> i & 1U) != 0) continue;
    const Operation& operation = operations[i];
    if (operation.kind() == OperationKind::drain || operation.byte_count() > piece_bytes_max_ ||
        is_unsupported(operation)) {
      break;
    }
    // The first operation of a list needs no fence flag: the list starts after all before it.
    const bool fenced = count > 0 && operation.is_fenced();
    write_any(operation, fenced ? dsa::flag::fence : 0U, slot.descriptors[count++],
              slot.records[i]);
    sent |= std::uint64_t{1} << i;
  }
  if (count < 2) return false;
  write_list(slot, count);
  slot.sent = sent;
  return true;
}

DsaQueue::Next DsaQueue::take_list(Slot& slot, std::uint8_t status) noexcept {
  const Batch& batch = slot.request->batch();
  bool again = slot.tries < kTriesMax;
  if (status != DSA_COMP_SUCCESS) {
    if (slot.whole.device_status == 0) slot.whole.device_status = status;
    const dsa::Status told = dsa::status_of(status);
    again = again && (told == dsa::Status::batch_failed || told == dsa::Status::batch_page_fault ||
                      status == dsa::kStatusAborted);
  } else if (slot.copies && batch.completions.empty()) {
    // Of all of them.
    std::size_t byte_count = slot.request->byte_count();
    if (slot.piece != batch.operations.size()) {
      byte_count = 0;
      for (std::size_t i = 0; i < slot.piece; ++i) {
        byte_count += batch.operations[slot.next + i].byte_count();
      }
    }
    slot.next += slot.piece;
    slot.whole.bytes_done += byte_count;
    slot.whole.bytes_by_device += byte_count;
    return issue(slot);
  }
  take_answers(slot, again, ~std::size_t{0});
  return issue(slot);
}

/// Handles the record of each operation of a list: it has completed, or it is submitted `again` if
/// that can help, or a processor does it. From index `doubtful_from` on, operations without an
/// answer may still be carried out by the device and must not be repeated.
void DsaQueue::take_answers(Slot& slot, bool again, std::size_t doubtful_from) noexcept {
  const Batch& batch = slot.request->batch();
  const std::size_t first = slot.next;
  bool any = false;
  for (std::uint64_t sent = slot.sent; sent != 0; sent &= sent - 1) {
    const auto i = static_cast<std::size_t>(std::countr_zero(sent));
    const std::size_t index = first + i;
    if (index >= slot.list_end) break;  // After a broken fence.
    const Operation& operation = batch.operations[index];
    const dsa::CompletionRecord& record = slot.records[i];
    const std::uint8_t status = status_of(record);
    Completion one{.cause = Cause::device_error};
    if (status != 0) one = read_record(operation, 0, operation.byte_count(), record);
    if (one.cause == Cause::page_fault || one.cause == Cause::device_error) {
      if (one.cause == Cause::page_fault) {
        page_faults_.fetch_add_relaxed(1);  // A count.
        ++slot.whole.page_faults;
      } else if (status != 0) {
        note_error(operation, status);
      }
      if (again && may_be_cured(operation, record)) continue;
      any = true;
      if (index < doubtful_from) {
        do_in_batch(slot, index);
        continue;
      }
      detail::note(batch, index, {.cause = Cause::device_dead});
    } else {
      any = true;
      one.bytes_by_device = one.bytes_done;
      slot.whole.bytes_done += one.bytes_done;
      slot.whole.bytes_by_device += one.bytes_done;
      detail::note(batch, index, one);
      if (one.cause != Cause::none) break_fence(slot, index);
    }
    note_done(slot, index);
  }
  slot.tries = any ? std::uint8_t{0} : static_cast<std::uint8_t>(slot.tries + 1);
}

/// True if submitting again can help: the page is mapped now, the device was reset, or it did not
/// reach the operation because of a fence or another operation's error.
bool DsaQueue::may_be_cured(const Operation& operation,
                            const dsa::CompletionRecord& record) const noexcept {
  const std::uint8_t status = status_of(record);
  if (status == 0 || status == dsa::kStatusAborted) return true;
  return dsa::status_of(status) == dsa::Status::page_fault &&
         device_.page_faults != FaultPolicy::finish_on_cpu &&
         detail::touch(operation, record.fault_addr, dsa::is_write_fault(status)) ==
             detail::Touched::present;
}

/// Completes a batch after a timeout. Operations with a record have completed as it says. The
/// device may have done the others or may still do them, so a processor repeats them only if that
/// is idempotent: not if an operation after a later fence, which may have started, writes to their
/// operands, and not with LateWrites::fail. Operations that are not repeated fail, so nothing after
/// a later fence is started.
void DsaQueue::finish_unanswered(Slot& slot) noexcept {
  const std::span<const Operation> operations = slot.request->batch().operations;
  if (slot.operation != nullptr) {
    // Treated as a list of one, from the beginning: repeating it is harmless.
    slot.operation = nullptr;
    slot.sent = 1;
    set_status(slot.records[0], 0);
  }
  std::uint64_t missing = slot.sent;
  while (missing != 0 &&
         status_of(slot.records[static_cast<std::size_t>(std::countr_zero(missing))]) != 0) {
    missing &= missing - 1;
  }
  const std::size_t first = missing == 0
                                ? slot.list_end
                                : slot.next + static_cast<std::size_t>(std::countr_zero(missing));
  bool fenced = false;
  bool repeatable = device_.late_writes == LateWrites::report;
  for (std::size_t i = first + 1; i < slot.list_end; ++i) {
    fenced = fenced || operations[i].is_fenced();
    if (fenced && detail::writes(operations[i].kind())) repeatable = false;
  }
  take_answers(slot, false, repeatable ? slot.list_end : first);
  if (!repeatable) break_fence(slot, first);
  static_cast<void>(finish_on_cpu(slot));
}

/// Executes operation `index` on the calling thread.
void DsaQueue::do_in_batch(Slot& slot, std::size_t index) noexcept {
  const Operation& operation = slot.request->batch().operations[index];
  begin_operation(slot, operation, 0, operation.byte_count());
  static_cast<void>(finish_on_cpu(slot));
  end_operation(slot);
}

/// Records the completion of a single operation of a batch.
void DsaQueue::end_operation(Slot& slot) noexcept {
  const Batch& batch = slot.request->batch();
  const auto index = static_cast<std::size_t>(slot.operation - batch.operations.data());
  slot.operation = nullptr;
  slot.tries = 0;
  detail::add_counts(slot.whole, slot.one);
  if (detail::is_stopped(slot.one)) slot.whole.state = JobState::stopped;
  detail::note(batch, index, slot.one);
  if (slot.one.cause != Cause::none) break_fence(slot, index);
  note_done(slot, index);
}

/// Operation `failed` has failed: no operation from the next fence on is started, except those that
/// the device has already started.
void DsaQueue::break_fence(Slot& slot, std::size_t failed) noexcept {
  const Batch& batch = slot.request->batch();
  slot.whole.cause = Cause::batch_failed;
  std::size_t fence = failed + 1;
  while (fence < slot.list_end && !batch.operations[fence].is_fenced()) ++fence;
  fence = std::max(fence, slot.next);
  if (fence >= slot.list_end) return;
  detail::note_rest(batch, fence, {.cause = Cause::fence_broken});
  slot.list_end = fence;
}

/// Marks operation `index` as completed.
void DsaQueue::note_done(Slot& slot, std::size_t index) noexcept {
  slot.done |= std::uint64_t{1} << (index - slot.next);
  for (; slot.next < slot.list_end && (slot.done & 1U) != 0; slot.done >>= 1U) ++slot.next;
}

DsaQueue::Next DsaQueue::stop_list(Slot& slot) noexcept {
  slot.whole.state = JobState::stopped;
  while (slot.next < slot.list_end) {
    detail::note(slot.request->batch(), slot.next, detail::kStopped);
    note_done(slot, slot.next);
  }
  return Next::ended;
}

}  // namespace headrace::engine
