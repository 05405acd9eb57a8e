// SPDX-License-Identifier: Apache-2.0
#include "queue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <thread>

#include "../completions.hpp"
#include "../memory_access.hpp"
#include "../software/software.hpp"
#include "../waiter.hpp"
#include "codec.hpp"
#include "headrace/base/check.hpp"
#include "headrace/platform/cpu.hpp"
#include "headrace/platform/thread.hpp"
#include "headrace/platform/ticks.hpp"
#include "headrace/platform/wait.hpp"
#include "slot.hpp"

namespace headrace::engine {

using detail::kUnsent;
using detail::set_status;
using detail::status_of;

namespace {

/// Slots lost in a row after which the queue is silent.
constexpr std::uint32_t kSilentMax = 3;
/// Slots between the first ones of two threads: as many jobs a thread may have in flight in slots
/// that are not beside another thread's.
constexpr std::uint32_t kSlotsApart = 4;
constexpr std::size_t kPageBytes = 4096;
/// Longest UMWAIT on one record: others may complete meanwhile.
constexpr std::chrono::nanoseconds kRestMax = std::chrono::microseconds(5);

}  // namespace

Result<std::unique_ptr<DsaQueue>> DsaQueue::make(std::unique_ptr<dsa::Portal> portal,
                                                 const DsaQueueOptions& options) {
  auto made = make(*portal, options);
  if (made) (*made)->owned_ = std::move(portal);
  return made;
}

Result<std::unique_ptr<DsaQueue>> DsaQueue::make(dsa::Portal& portal,
                                                 const DsaQueueOptions& options) {
  if (portal.info().entry_count == 0 || portal.info().transfer_bytes_max == 0) {
    return fail(Code::invalid_argument, fmt::format("use {}", portal.info().name),
                "it has no entries", "configure it: 'headrace dsa configure'");
  }
  return std::unique_ptr<DsaQueue>(new DsaQueue(portal, options));
}

DsaQueue::DsaQueue(dsa::Portal& portal, const DsaQueueOptions& options)
    : portal_(portal),
      info_{.name = portal.info().name,
            .node = options.node,
            .hardware = true,
            .emulated = options.emulated,
            .polled = true,
            .operations = detail::dsa_operations(portal.info().opcodes),
            .batches = true,
            .queue_rank = options.queue_rank,
            .note = options.note},
      device_(options.device),
      piece_bytes_max_(std::min<std::uint64_t>(portal.info().transfer_bytes_max, 1U << 31U)),
      batch_max_(options.batches && detail::takes(portal.info().opcodes, dsa::Opcode::batch)
                     ? std::clamp<std::size_t>(portal.info().batch_max, 1, kBatchMax)
                     : 1),
      slot_count_(std::min<std::uint32_t>(portal.info().entry_count, SlotWords::kSlotMax)),
      silent_max_(std::min(kSilentMax, slot_count_)),
      timeout_ticks_(platform::to_ticks(options.device.timeout)),
      copy_flags_(detail::kRecordFlags | detail::hints(Operation::copy({}, {}), portal.info(),
                                                       options.device.page_faults)),
      cache_flag_(detail::cache_flag(portal.info(), false)),
      slots_(std::make_unique<Slot[]>(slot_count_ + 1)),
      words_(slot_count_),
      short_copy_bytes_max_(piece_bytes_max_) {
  const auto note = [this](std::string_view text) {
    info_.note += fmt::format("{}{}", info_.note.empty() ? "" : "; ", text);
  };
  if (slot_count_ < portal.info().entry_count) {
    note(fmt::format("{} of its {} entries are used", slot_count_, portal.info().entry_count));
  }
  if (device_.page_faults == FaultPolicy::block && !detail::can_block(portal.info())) {
    note("it does not block on page faults: the engine touches the page and resubmits");
  }
  if (cache_flag_ == 0) note("into_cache() has no effect: the device has no cache control");
  for (unsigned kind = 0; kind < kOperationKindCount; ++kind) {
    if (info_.operations.has(static_cast<OperationKind>(kind))) continue;
    refuse_kind(static_cast<OperationKind>(kind));
  }
  for (std::uint32_t i = 0; i < slot_count_; ++i) {
    slots_[i].descriptors = std::make_unique<dsa::Descriptor[]>(batch_max_);
    slots_[i].records = std::make_unique<dsa::CompletionRecord[]>(batch_max_);
  }
}

DsaQueue::~DsaQueue() {
  HEADRACE_CHECK(!words_.has_reserved(), "a channel must be closed before its engine");
  stop();
  // The device may still write to the records of what it has not answered.
  if (words_.lost() != 0 || probe_words_.posted() != 0) keep_for_ever(std::move(slots_));
}

DeviceStatistics DsaQueue::statistics() const noexcept {
  // Relaxed: the counts are not one snapshot.
  std::uint64_t descriptors = 0;
  for (std::uint32_t i = 0; i <= slot_count_; ++i)
    descriptors += slots_[i].descriptor_count.value();
  return {.descriptors = descriptors,
          .retries = retries_.load_relaxed(),
          .page_faults = page_faults_.load_relaxed(),
          .errors = errors_.load_relaxed(),
          .lost = lost_count_.load_relaxed(),
          .bytes_on_cpu = cpu_bytes_.load_relaxed()};
}

// --- Slots ---------------------------------------------------------------------------------------

bool DsaQueue::is_due(const Slot& slot, std::uint64_t now) const noexcept {
  const std::uint64_t posted =
      slot.posted_ticks.load_relaxed();  // A claim fails if it is another's.
  return now > posted && now - posted > timeout_ticks_;
}

inline void DsaQueue::look_at(std::uint32_t index) noexcept {
  const Slot& slot = slots_[index];
  std::uint8_t status = 0;
  if (!claim(words_, index, slot, status)) return;
  if (status != DSA_COMP_SUCCESS || !slot.simple) return take(index, status);
  Request& request = *slot.request;
  words_.free(index);
  note_answer();
  request.complete_by_device();
}

/// Handles everything but a simple copy that succeeded.
void DsaQueue::take(std::uint32_t index, std::uint8_t status) noexcept {
  Slot& slot = slots_[index];
  if (slot.lost) {
    // A late answer: the device is alive and has finished with the slot.
    slot.lost = false;
    words_.free(index);
    return note_answer();
  }
  if (slot.simple) {
    begin_stripe(slot, *slot.request, 0, slot.request->byte_count());
    slot.piece = slot.end;
  }
  Next next = Next::ended;
  if (status != 0) {
    next = take_record(slot);
  } else {
    give_up(slot);
  }
  post_or_end(index, next);
}

void DsaQueue::post_or_end(std::uint32_t index, Next next) noexcept {
  if (next == Next::posted) {
    words_.post(index);
  } else {
    end_stripe(index);
  }
}

void DsaQueue::reap() noexcept {
  // Relaxed: slots posted meanwhile are left to the next poll.
  for (std::uint64_t posted = words_.posted(); posted != 0; posted &= posted - 1) {
    look_at(static_cast<std::uint32_t>(std::countr_zero(posted)));
  }
}

void DsaQueue::reap(const Request& request) noexcept {
  const std::uint32_t index = request.slot_index.load_relaxed();  // A hint.
  if (index >= slot_count_) return reap();
  look_at(index);
}

bool DsaQueue::rest(const Request& request) noexcept {
  const std::uint32_t index = request.slot_index.load_relaxed();  // A hint.
  return index < slot_count_ && rest_at(slots_[index].record);
}

bool DsaQueue::rest_at(const dsa::CompletionRecord& record) noexcept {
  return rest_on_line(&record, kRestMax, [&] { return status_of(record) != 0; });
}

// --- Submission ----------------------------------------------------------------------------------

/// Writes the descriptor of a copy except for its operands.
void DsaQueue::prepare_copy(Slot& slot, std::uint32_t hint) noexcept {
  detail::begin_descriptor(dsa::Opcode::move, copy_flags_ | hint, slot.record, slot.descriptor);
  slot.prepared = hint == 0;
}

Submit DsaQueue::post(Request& request) noexcept {
  // Another mover or the processor takes the request.
  if (is_silent()) [[unlikely]] {
    probe();
    return Submit::closed;
  }
  // A request that has been here before takes its slot again, so that threads keep apart.
  std::uint32_t index = request.slot_index.load_relaxed();  // A hint.
  if (index == Request::kNoSlot) [[unlikely]]
    index = platform::thread_number() * kSlotsApart;
  index = words_.take(index);
  // `closed` if all slots are lost: they may never come back, so another mover takes the request.
  if (index == SlotWords::kNoSlot) [[unlikely]] {
    return words_.is_closed() || words_.is_all_lost() ? Submit::closed : Submit::full;
  }
  const Operation& copy = request.operation();
  const bool fits = copy.source().size() <= short_copy_bytes_max_.load_relaxed();  // A hint.
  const bool plain = copy.is_plain_copy();
  const bool short_copy = plain || (copy.kind() == OperationKind::copy && !copy.is_durable());
  if (!short_copy || !fits) [[unlikely]] {
    return post_stripes(request, index);
  }
  Slot& slot = slots_[std::size_t{index}];
  const std::uint32_t hint = plain || !copy.is_into_cache() ? 0U : cache_flag_;
  if (!slot.prepared || hint != 0) [[unlikely]]
    prepare_copy(slot, hint);
  slot.request = &request;
  slot.simple = true;
  detail::write_operands(copy.source().data(), copy.target().data(), copy.source().size(),
                         slot.descriptor);
  set_status(slot.record, 0);
  if (!submit_slot(slot)) [[unlikely]] {
    words_.free(index);
    return refuse();
  }
  request.slot_index.store_relaxed(index);  // A hint for pollers.
  words_.post(index);                       // From here on the request may be gone.
  return Submit::accepted;
}

/// Posts everything but a simple copy, beginning with slot `first`: a batch, or as many stripes as
/// the size and the free slots allow, each with the next part of the request.
Submit DsaQueue::post_stripes(Request& request, std::uint32_t first) noexcept {
  const Operation& operation = request.operation();
  const bool batch = request.is_batch();
  const Operation& one = batch ? request.batch().operations.front() : operation;
  const std::size_t short_max = short_copy_bytes_max_.load_relaxed();  // A hint.
  if (!one.is_simple_copy(short_max) && is_unsupported(one)) {
    words_.free(first);
    return Submit::closed;
  }
  const std::size_t byte_count = request.byte_count();
  std::array<std::uint32_t, kStripeMax> stripes{first};
  std::size_t count = 1;
  if (!batch && operation.has_independent_parts()) {
    const std::size_t wanted = std::min(kStripeMax, byte_count / piece_bytes_max_);
    while (count < wanted) {
      const std::uint32_t index = words_.take();
      if (index == SlotWords::kNoSlot) break;
      stripes[count++] = index;
    }
  }
  std::size_t begin = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t end = byte_count;
    if (i + 1 < count) {
      // A stripe is at least as long as a piece, so none is empty.
      const std::size_t unit = std::min(kPageBytes, piece_bytes(operation.cut_bytes()));
      end = byte_count / count * (i + 1) / unit * unit;
    }
    Slot& slot = slots_[stripes[i]];
    begin_stripe(slot, request, begin, end);
    begin = end;
  }
  Next next = Next::posted;
  if (!issue_first(slots_[first], next)) {
    for (std::size_t i = 0; i < count; ++i) words_.free(stripes[i]);
    return refuse();
  }
  if (count > 1) {
    request.stripes_left = static_cast<std::uint32_t>(count);
    request.outcome = {};
  }
  request.slot_index.store_relaxed(count == 1 ? first : Request::kNoSlot);  // A hint for pollers.
  // The first stripe is posted last: it keeps the request alive.
  for (std::size_t i = 1; i < count; ++i) post_or_end(stripes[i], issue(slots_[stripes[i]]));
  post_or_end(first, next);  // From here on the request may be gone.
  return Submit::accepted;
}

/// Returns false, with nothing started, if the queue accepts nothing.
bool DsaQueue::issue_first(Slot& slot, Next& next) noexcept {
  if (slot.operation != nullptr) return send(slot);
  next = issue_list(slot);
  return slot.full_ticks == 0 || slot.next != 0;
}

/// True if the device cannot carry out `operation`: it refuses the kind, or the operation exceeds
/// one descriptor and cannot be cut. Version 1 of the device has no 16-byte patterns.
bool DsaQueue::is_unsupported(const Operation& operation) const noexcept {
  const auto kind = static_cast<unsigned>(operation.kind());
  if ((refused_kinds_.load_relaxed() >> kind & 1U) != 0) return true;  // A hint.
  if (operation.kind() == OperationKind::fill && operation.pattern_bytes() == 16) return true;
  const std::size_t cut = operation.cut_bytes();
  if (cut != 0) return cut > piece_bytes_max_ && operation.byte_count() > piece_bytes_max_;
  return std::max(operation.byte_count(), operation.target().size()) > piece_bytes_max_;
}

/// Longest piece of one descriptor for operations that are cut at multiples of `cut`.
std::size_t DsaQueue::piece_bytes(std::size_t cut) const noexcept {
  return piece_bytes_max_ / cut * cut;
}

void DsaQueue::begin_stripe(Slot& slot, Request& request, std::size_t begin,
                            std::size_t end) noexcept {
  slot.request = &request;
  slot.simple = false;
  slot.full_ticks = 0;
  if (!request.is_batch()) return begin_operation(slot, request.operation(), begin, end);
  slot.operation = nullptr;
  slot.next = 0;
  slot.list_end = request.batch().operations.size();
  slot.done = 0;
  slot.tries = 0;
  slot.whole = {};
}

void DsaQueue::begin_operation(Slot& slot, const Operation& operation, std::size_t begin,
                               std::size_t end) noexcept {
  slot.operation = &operation;
  slot.begin = begin;
  slot.at = begin;
  slot.end = end;
  slot.tries = 0;
  slot.one = {};
}

DsaQueue::Next DsaQueue::issue(Slot& slot) noexcept {
  if (slot.operation == nullptr && slot.next == slot.list_end) return Next::ended;
  // A hint.
  if (words_.is_closed() || slot.request->stop_requested()) {
    if (slot.operation == nullptr) return stop_list(slot);
    slot.one.state = JobState::stopped;
    return Next::ended;
  }
  if (slot.operation == nullptr) return issue_list(slot);
  return send(slot) ? Next::posted : retry(slot);
}

bool DsaQueue::send(Slot& slot) noexcept {
  const Operation& whole = *slot.operation;
  slot.piece = slot.end - slot.at;
  if (slot.piece > piece_bytes_max_) slot.piece = piece_bytes(whole.cut_bytes());
  slot.prepared = false;
  write_any(whole.part(slot.at, slot.piece, slot.one.result), 0, slot.descriptor, slot.record);
  if (!submit_slot(slot)) return false;
  slot.full_ticks = 0;
  return true;
}

/// Writes the descriptor and the record of any operation.
void DsaQueue::write_any(const Operation& operation, std::uint32_t flags,
                         dsa::Descriptor& descriptor,
                         dsa::CompletionRecord& record) const noexcept {
  flags |= detail::kRecordFlags | detail::hints(operation, portal_.info(), device_.page_faults);
  detail::to_descriptor(operation, flags, record, descriptor);
  set_status(record, 0);
}

// --- Completion ----------------------------------------------------------------------------------

DsaQueue::Next DsaQueue::take_record(Slot& slot) noexcept {
  const std::uint8_t status = slot.record.status;
  Next next = Next::posted;
  if (status == kUnsent) {
    next = issue(slot);
  } else {
    note_answer();
    next = slot.operation != nullptr ? take_piece(slot, status) : take_list(slot, status);
  }
  while (next == Next::ended && slot.operation != nullptr && slot.request->is_batch()) {
    end_operation(slot);
    next = issue(slot);
  }
  return next;
}

void DsaQueue::end_stripe(std::uint32_t index) noexcept {
  Slot& slot = slots_[index];
  Request& request = *slot.request;
  const Completion outcome = slot.outcome();
  const std::size_t begin = slot.begin;
  const bool single = request.is_batch() || slot.end - begin == request.byte_count();
  // Frees the slot before the job completes: the waiting thread may submit immediately.
  if (slot.lost) {
    lose(index);
  } else {
    words_.free(index);
  }
  if (single) return request.complete(outcome);
  Completion whole;
  {
    const Lock lock(stripes_mutex_);
    detail::merge(request.outcome, outcome, begin);
    if (--request.stripes_left > 0) return;
    whole = request.outcome;
  }
  if (whole.bytes_done == request.byte_count())
    whole.state = JobState::idle;  // Nothing was skipped.
  request.complete(whole);
}

void DsaQueue::stop() noexcept {
  // Again: no thread submits any more, except channels.
  const bool is_used = words_.has_reserved() || words_.lost() != 0 || probe_words_.posted() != 0;
  if (words_.is_closed() && !is_used) owned_.reset();
  words_.close();
  // Completes what has started, on the processor if the device times out.
  while (!words_.is_idle()) {
    reap();
    std::this_thread::yield();
  }
}

}  // namespace headrace::engine
