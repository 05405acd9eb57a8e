// SPDX-License-Identifier: Apache-2.0
#include "dsa_mover.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <thread>

#include "dsa_descriptor.hpp"
#include "dsa_slot.hpp"
#include "headrace/base/check.hpp"
#include "headrace/platform/cpu.hpp"
#include "headrace/platform/ticks.hpp"
#include "headrace/platform/wait.hpp"
#include "operands.hpp"
#include "outcome.hpp"
#include "software/software.hpp"

namespace headrace::engine {

using detail::add_flags;
using detail::set_status;
using detail::status_of;

namespace {

/// Stands in a record whose descriptor the queue has not taken yet, so that pollers see to it. No
/// device writes it.
constexpr std::uint8_t kUnsent = 0xfe;
/// Slots given up in a row after which the queue is given up, if it has so many.
constexpr std::uint32_t kSilentMax = 3;
constexpr std::size_t kPageBytes = 4096;

/// True if an operation of `kind` that has succeeded has nothing more to say.
bool is_quiet(OperationKind kind) noexcept {
  constexpr auto kQuiet = OperationSet()
                              .with(OperationKind::no_op)
                              .with(OperationKind::drain)
                              .with(OperationKind::copy)
                              .with(OperationKind::fill)
                              .with(OperationKind::apply_delta)
                              .with(OperationKind::dualcast)
                              .with(OperationKind::cache_flush);
  return kQuiet.has(kind);
}

}  // namespace

Result<std::unique_ptr<DsaMover>> DsaMover::make(std::unique_ptr<dsa::Portal> portal,
                                                 const DsaMoverOptions& options) {
  dsa::Portal& reference = *portal;
  if (reference.info().entry_count == 0 || reference.info().transfer_bytes_max == 0) {
    return fail(Code::invalid_argument, fmt::format("use {}", reference.info().name),
                "it has no entries", "configure it: 'headrace dsa configure'");
  }
  return std::unique_ptr<DsaMover>(new DsaMover(reference, std::move(portal), options));
}

Result<std::unique_ptr<DsaMover>> DsaMover::make(dsa::Portal& portal,
                                                 const DsaMoverOptions& options) {
  /// Lends a portal.
  class Lent final : public dsa::Portal {
   public:
    explicit Lent(dsa::Portal& lent) : lent_(lent) {}
    [[nodiscard]] const dsa::QueueInfo& info() const override { return lent_.info(); }
    [[nodiscard]] bool submit(const dsa::Descriptor& descriptor) noexcept override {
      return lent_.submit(descriptor);
    }

   private:
    dsa::Portal& lent_;
  };
  return make(std::make_unique<Lent>(portal), options);
}

DsaMover::DsaMover(dsa::Portal& portal, std::unique_ptr<dsa::Portal> owned,
                   const DsaMoverOptions& options)
    : owned_(std::move(owned)),
      portal_(portal),
      info_{.name = portal.info().name,
            .node = options.node,
            .hardware = true,
            .polled = true,
            .operations = detail::dsa_operations(portal.info().opcodes),
            .batches = true,
            .queue_rank = options.queue_rank,
            .note = options.note},
      device_(options.device),
      piece_bytes_max_(std::min<std::uint64_t>(portal.info().transfer_bytes_max, 1U << 31U)),
      batch_max_(options.batches && detail::takes_batches(portal.info().opcodes)
                     ? std::min<std::size_t>(portal.info().batch_max, kBatchMax)
                     : 1),
      slot_count_(std::min<std::uint32_t>(portal.info().entry_count, SlotWords::kSlotMax)),
      silent_max_(std::min(kSilentMax, slot_count_)),
      answer_ticks_(platform::to_ticks(options.device.answer_max)),
      rest_ticks_(platform::to_ticks(std::chrono::microseconds(5))),
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
    note("it does not block on page faults, which are touched and resubmitted");
  }
  if (cache_flag_ == 0) note("into_cache() is not told to the device, which has no cache control");
  for (unsigned kind = 0; kind < kOperationKindCount; ++kind) {
    if (info_.operations.has(static_cast<OperationKind>(kind))) continue;
    refuse_kind(static_cast<OperationKind>(kind));
  }
  for (std::uint32_t i = 0; i < slot_count_ && batch_max_ > 1; ++i) {
    slots_[i].room = {std::make_unique<dsa::Descriptor[]>(batch_max_),
                      std::make_unique<dsa::CompletionRecord[]>(batch_max_)};
  }
}

DsaMover::~DsaMover() {
  HEADRACE_CHECK(!words_.has_reserved(), "a channel ends before its engine");
  stop();
  // Nobody else is here.
  if (words_.lost() == 0 && probe_ticks_.load_relaxed() == 0) return;
  // The device may still write to these records.
  keep_for_ever(std::move(slots_));
}

/// In a list and not merely let go, so that who looks for lost memory finds it in use. It needs no
/// allocation and nothing ends it: a device goes on when main() has returned.
void DsaMover::keep_for_ever(std::unique_ptr<Slot[]> slots) noexcept {
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

std::size_t DsaMover::load() const noexcept {
  return words_.count();
}

DeviceStatistics DsaMover::statistics() const noexcept {
  // Together they are not one instant, so no order between them is needed.
  return {.descriptors = descriptors_.load_relaxed(),
          .retries = retries_.load_relaxed(),
          .page_faults = page_faults_.load_relaxed(),
          .errors = errors_.load_relaxed(),
          .lost = lost_count_.load_relaxed(),
          .bytes_on_cpu = cpu_bytes_.load_relaxed()};
}

// --- Slots ---------------------------------------------------------------------------------------

bool DsaMover::is_due(const Slot& slot, std::uint64_t now) const noexcept {
  const std::uint64_t posted = slot.posted_ticks.load_relaxed();  // Looked at again after a claim.
  return now > posted && now - posted > answer_ticks_;
}

void DsaMover::look_at(std::uint32_t index, std::uint64_t now) noexcept {
  Slot& slot = slots_[index];
  const auto is_ready = [&] { return status_of(slot.record) != 0 || is_due(slot, now); };
  if (!words_.claim(index, is_ready)) return;
  const std::uint8_t status = status_of(slot.record);
  if (status == DSA_COMP_SUCCESS && slot.fresh && slot.piece == slot.end && slot.quiet) {
    // All of it, and nothing found out: the way of most.
    Share& share = *slot.share;
    words_.free(index);
    note_answer();
    return finish_done_by_device(share);
  }
  if (slot.fresh) {
    slot.outcome = {};
    slot.fresh = false;
  }
  Next next = Next::posted;
  if (status != 0) {
    next = take_record(slot);
  } else {
    give_up(index);
    next = Next::ended;
  }
  if (next == Next::posted) {
    words_.post(index);
  } else {
    end_lane(index);
  }
}

void DsaMover::poll() noexcept {
  // Relaxed: a slot that is posted meanwhile is the next poll's.
  std::uint64_t posted = words_.posted();
  if (posted != 0) {
    const std::uint64_t now = platform::ticks();
    for (; posted != 0; posted &= posted - 1) {
      look_at(static_cast<std::uint32_t>(std::countr_zero(posted)), now);
    }
  }
  if (const std::uint64_t lost = words_.lost(); lost != 0) look_at_lost(lost);
}

void DsaMover::poll_share(const Share& share) noexcept {
  const std::uint32_t index = share.slot_index.load_relaxed();  // A hint.
  if (index >= slot_count_) return poll();
  if ((words_.posted() >> index & 1U) != 0) look_at(index, platform::ticks());
}

bool DsaMover::rest(const Share& share) noexcept {
  const std::uint32_t index = share.slot_index.load_relaxed();  // A hint.
  return index < slot_count_ && rest_at(slots_[index].record);
}

bool DsaMover::rest_at(const dsa::CompletionRecord& record) const noexcept {
  if (!platform::has_line_wait()) return false;
  platform::watch_line(&record);
  if (status_of(record) == 0) platform::wait_for_line(platform::ticks() + rest_ticks_);
  return true;
}

void DsaMover::look_at_lost(std::uint64_t lost) noexcept {
  for (; lost != 0; lost &= lost - 1) {
    const auto index = static_cast<std::uint32_t>(std::countr_zero(lost));
    if (dsa::load_status(slots_[index].record) == 0 || !words_.find(index)) continue;
    // The device has answered after all: it lives, and is done with the slot.
    silent_count_.store_relaxed(0);  // A count of its own.
  }
}

/// Of a device that has been given up: sends it a no-op, unless one is on its way that may still be
/// answered, and looks for the answer. What was lost may never be answered: a device that was reset
/// or mended meanwhile would be left alone for ever. `has_room`: the caller has an entry of the
/// queue that is free, which nobody sees in words_.
void DsaMover::probe(bool has_room) noexcept {
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

// --- Submission ----------------------------------------------------------------------------------

Submit DsaMover::submit(Share& share) noexcept {
  // Another mover takes the share, or the processor.
  if (is_silent()) {
    probe();
    return Submit::closed;
  }
  const std::uint32_t first = words_.take();
  // Who waits for a slot of those that are lost may wait for ever, also where the queue has
  // answered since: somebody else takes the share.
  if (first == SlotWords::kNoSlot) {
    return words_.is_closed() || words_.is_all_lost() ? Submit::closed : Submit::full;
  }
  const Operation& operation = share.job->operation();
  const bool batch = !share.batch().operations.empty();
  // (A copy can be cut anywhere.)
  const bool copies = operation.kind() == OperationKind::copy && !refuses_copies();
  if (!batch && !copies && is_beyond(operation)) {
    words_.free(first);
    return Submit::closed;
  }
  const std::size_t lane_end = batch ? share.batch().operations.size() : share.byte_count;
  if (batch || lane_end <= piece_bytes_max_ || !operation.has_independent_parts()) {
    Slot& slot = slots_[first];
    begin_lane(slot, share, 0, lane_end);
    slot.batch = batch;
    slot.quiet = !batch && is_quiet(operation.kind()) && !operation.is_durable();
    if (batch) {
      slot.outcome = {};
    } else {
      slot.fresh = true;
    }
    const Next next = batch ? issue_batch(slot) : (send(slot) ? Next::posted : Next::ended);
    if (batch ? is_refused(slot) : next == Next::ended) {
      words_.free(first);
      return refuse();
    }
    share.slot_index.store_relaxed(first);  // A hint for pollers.
    // From here on the share may be gone.
    if (next == Next::posted) {
      words_.post(first);
    } else {
      end_lane(first);
    }
    return Submit::accepted;
  }

  // As many lanes as there is work and room for, each with the next part of the share.
  std::array<std::uint32_t, kLaneMax> lanes{first};
  std::size_t lane_count = 1;
  const std::size_t wanted = std::min(kLaneMax, lane_end / piece_bytes_max_);
  while (lane_count < wanted) {
    const std::uint32_t index = words_.take();
    if (index == SlotWords::kNoSlot) break;
    lanes[lane_count++] = index;
  }
  share.lanes_left = static_cast<std::uint32_t>(lane_count);
  share.outcome = {};
  // A lane is at least as long as a piece, so none is empty.
  const std::size_t unit = std::min(kPageBytes, piece_bytes(operation.cut_bytes()));
  std::size_t begin = 0;
  for (std::size_t i = 0; i < lane_count; ++i) {
    const std::size_t even = lane_end / lane_count * (i + 1) / unit * unit;
    const std::size_t end = i + 1 == lane_count ? lane_end : even;
    Slot& slot = slots_[lanes[i]];
    begin_lane(slot, share, begin, end);
    slot.outcome = {};
    slot.single = lane_count == 1;
    begin = end;
  }
  if (!send(slots_[first])) {
    for (std::size_t i = 0; i < lane_count; ++i) words_.free(lanes[i]);
    return refuse();
  }
  // The share lives until its last lane has ended, and that one is not begun before the others.
  for (std::size_t i = 1; i < lane_count; ++i) {
    if (issue(slots_[lanes[i]]) == Next::posted) {
      words_.post(lanes[i]);
    } else {
      end_lane(lanes[i]);
    }
  }
  words_.post(first);
  return Submit::accepted;
}

/// The queue gets no operation of `kind` from now on.
void DsaMover::refuse_kind(OperationKind kind) noexcept {
  refused_kinds_.fetch_or_relaxed(1U << static_cast<unsigned>(kind));       // A hint.
  if (kind == OperationKind::copy) short_copy_bytes_max_.store_relaxed(0);  // A hint.
}

/// Of a queue that does not say what it may do: its device has said so of an operation like this.
void DsaMover::note_error(const Operation& operation, std::uint8_t status) noexcept {
  errors_.fetch_add_relaxed(1);  // A count of its own.
  if (portal_.info().opcodes || dsa::status_of(status) != dsa::Status::bad_opcode) return;
  refuse_kind(operation.kind());
}

/// What the queue may not do is done elsewhere. What cannot be cut, or not into pieces so small,
/// has to fit one descriptor; and version 1 of the device has no patterns of 16 bytes, but those of
/// 8 twice.
bool DsaMover::is_beyond(const Operation& operation) const noexcept {
  const auto kind = static_cast<unsigned>(operation.kind());
  if ((refused_kinds_.load_relaxed() >> kind & 1U) != 0) return true;  // A hint.
  if (operation.kind() == OperationKind::fill && operation.pattern_bytes() == 16) return true;
  const std::size_t cut = operation.cut_bytes();
  if (cut != 0) return cut > piece_bytes_max_ && operation.byte_count() > piece_bytes_max_;
  return std::max(operation.byte_count(), operation.target().size()) > piece_bytes_max_;
}

/// What one descriptor takes of an operation that may be cut at multiples of `cut`.
std::size_t DsaMover::piece_bytes(std::size_t cut) const noexcept {
  return piece_bytes_max_ / cut * cut;
}

void DsaMover::begin_lane(Slot& slot, Share& share, std::size_t begin, std::size_t end) noexcept {
  slot.share = &share;
  slot.begin = begin;
  slot.end = end;
  slot.at = begin;
  slot.done = 0;
  slot.failed_at = ~std::size_t{0};
  slot.full_ticks = 0;
  slot.tries = 0;
  slot.single = true;
  slot.batch = false;
  slot.large = false;
  slot.quiet = false;
  slot.lost = false;
  slot.fresh = false;
}

DsaMover::Next DsaMover::issue(Slot& slot) noexcept {
  // Advice; carries no data.
  if (words_.is_closed() || slot.share->job->stop_requested()) {
    slot.outcome.stopped = true;
    if (slot.batch && !slot.large) stop_batch(slot);
    return Next::ended;
  }
  if (slot.batch && !slot.large) return issue_batch(slot);
  return send(slot) ? Next::posted : carry_on(slot);
}

/// The queue is full: the next poll tries again, for as long as a device may take to answer.
DsaMover::Next DsaMover::carry_on(Slot& slot) noexcept {
  const std::uint64_t now = platform::ticks();
  if (slot.full_ticks == 0) slot.full_ticks = now;
  if (now - slot.full_ticks > answer_ticks_) return finish_on_cpu(slot);
  ++slot.outcome.retries;
  set_status(slot.record, kUnsent);
  return Next::posted;
}

bool DsaMover::send(Slot& slot) noexcept {
  const Operation& whole = slot.whole();
  slot.piece = slot.end - slot.at;
  if (slot.piece > piece_bytes_max_) slot.piece = piece_bytes(whole.cut_bytes());
  dsa::Descriptor& descriptor = slot.descriptor;
  set_status(slot.record, 0);
  if (slot.piece == whole.byte_count()) {
    if (whole.kind() == OperationKind::copy) {
      const std::uint32_t hint = whole.is_into_cache() ? cache_flag_ : 0U;
      detail::write_descriptor(detail::head_word(dsa::Opcode::move, copy_flags_ | hint),
                               slot.record, whole.source().data(), whole.target().data(),
                               slot.piece, descriptor);
      return hand_over(slot);
    }
    detail::to_descriptor(whole, descriptor);
  } else {
    detail::to_descriptor(slot.part(slot.at, slot.piece), descriptor);
  }
  add_flags(descriptor, detail::hints(whole, portal_.info(), device_.page_faults));
  descriptor.completion_addr = reinterpret_cast<std::uintptr_t>(&slot.record);
  return hand_over(slot);
}

bool DsaMover::hand_over(Slot& slot) noexcept {
  const std::uint64_t now = platform::ticks();
  slot.posted_ticks.store_relaxed(now);  // Looked at again after a claim.
  if (!portal_.submit(slot.descriptor)) {
    note_refused(now);
    return false;
  }
  note_taken();
  slot.full_ticks = 0;
  descriptors_.fetch_add_relaxed(1);  // A count of its own.
  return true;
}

Submit DsaMover::refuse() const noexcept {
  // A queue that takes nothing for so long belongs to a device that is not there any more, and is
  // asked all the same each time.
  const std::uint64_t since = refusing_ticks_.load_relaxed();  // A hint of its own.
  return since != 0 && platform::ticks() - since > answer_ticks_ ? Submit::closed : Submit::full;
}

// --- Completion ----------------------------------------------------------------------------------

DsaMover::Next DsaMover::take_record(Slot& slot) noexcept {
  const std::uint8_t status = slot.record.status;
  Next next = Next::posted;
  if (status == kUnsent) {
    next = issue(slot);
  } else {
    note_answer();
    if (!slot.batch || slot.large) {
      next = take_piece(slot, status);
    } else {
      take_batch(slot, status);
      next = slot.at == slot.end ? Next::ended : issue(slot);
    }
  }
  while (next == Next::ended && slot.large) next = end_large(slot);
  return next;
}

DsaMover::Next DsaMover::take_piece(Slot& slot, std::uint8_t status) noexcept {
  const Operation& whole = slot.whole();
  ShareOutcome piece = detail::to_outcome(whole, slot.piece, slot.record);
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

DsaMover::Next DsaMover::resolve_fault(Slot& slot, const ShareOutcome& piece) noexcept {
  const bool write = dsa::is_write_fault(piece.device_status);
  ShareOutcome progress = piece;
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

DsaMover::Next DsaMover::finish_on_cpu(Slot& slot) noexcept {
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
  ShareOutcome outcome = software::execute_in_pieces(rest, *slot.share->job);
  outcome.fell_back = true;
  cpu_bytes_.fetch_add_relaxed(outcome.bytes_done);  // A count of its own.
  detail::append(slot.outcome, outcome, slot.at - slot.begin);
  return Next::ended;
}

void DsaMover::give_up(std::uint32_t index) noexcept {
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
  slot.outcome.late_write_possible =
      slot.batch || detail::writes(slot.share->job->operation().kind());
}

/// What the device wrote may lie in a cache, whatever the descriptor asked for: where writes of
/// devices go is a matter of the platform. What a processor did in its place is brought to memory
/// twice, which is rare and harmless.
void DsaMover::settle(const Slot& slot) noexcept {
  const Share& share = *slot.share;
  for (const Operation& operation : share.batch().operations) {
    if (operation.is_durable()) detail::make_durable(operation);
  }
  const Operation& whole = share.job->operation();
  if (!slot.batch && whole.is_durable()) {
    detail::make_durable(whole.part(share.offset_bytes + slot.begin, slot.end - slot.begin));
  }
}

void DsaMover::end_lane(std::uint32_t index) noexcept {
  const Slot& slot = slots_[index];
  Share& share = *slot.share;
  settle(slot);
  const ShareOutcome outcome = slot.outcome;
  const std::size_t begin = slot.begin;
  const bool single = slot.single;
  // Room for another share before the job ends: whoever waited for it may submit at once.
  if (slot.lost) {
    words_.lose(index);
  } else {
    words_.free(index);
  }
  if (single) return finish(share, outcome);
  ShareOutcome whole;
  {
    const Lock lock(lanes_mutex_);
    detail::merge(share.outcome, outcome, begin);
    if (--share.lanes_left > 0) return;
    whole = share.outcome;
  }
  whole.stopped = whole.stopped && whole.bytes_done < share.byte_count;
  finish(share, whole);
}

void DsaMover::stop() noexcept {
  words_.close();
  // What has begun is finished; by the processor, if the device does not answer in time.
  while (!words_.is_idle()) {
    poll();
    std::this_thread::yield();
  }
}

}  // namespace headrace::engine
