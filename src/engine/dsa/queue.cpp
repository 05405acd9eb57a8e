// SPDX-License-Identifier: Apache-2.0
#include "queue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <thread>

#include "../completions.hpp"
#include "../memory_access.hpp"
#include "../software/software.hpp"
#include "codec.hpp"
#include "headrace/base/check.hpp"
#include "headrace/platform/cpu.hpp"
#include "headrace/platform/ticks.hpp"
#include "headrace/platform/wait.hpp"
#include "slot.hpp"

namespace headrace::engine {

using detail::add_flags;
using detail::kUnsent;
using detail::set_status;
using detail::status_of;

namespace {

/// Slots given up in a row after which the queue is given up, if it has so many.
constexpr std::uint32_t kSilentMax = 3;
constexpr std::size_t kPageBytes = 4096;

}  // namespace

Result<std::unique_ptr<DsaQueue>> DsaQueue::make(std::unique_ptr<dsa::Portal> portal,
                                                 const DsaQueueOptions& options) {
  dsa::Portal& reference = *portal;
  if (reference.info().entry_count == 0 || reference.info().transfer_bytes_max == 0) {
    return fail(Code::invalid_argument, fmt::format("use {}", reference.info().name),
                "it has no entries", "configure it: 'headrace dsa configure'");
  }
  return std::unique_ptr<DsaQueue>(new DsaQueue(reference, std::move(portal), options));
}

Result<std::unique_ptr<DsaQueue>> DsaQueue::make(dsa::Portal& portal,
                                                 const DsaQueueOptions& options) {
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

DsaQueue::DsaQueue(dsa::Portal& portal, std::unique_ptr<dsa::Portal> owned,
                   const DsaQueueOptions& options)
    : owned_(std::move(owned)),
      portal_(portal),
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

DsaQueue::~DsaQueue() {
  HEADRACE_CHECK(!words_.has_reserved(), "a channel ends before its engine");
  stop();
  // No other thread is here.
  if (words_.lost() == 0 && probe_ticks_.load_relaxed() == 0) return;
  // The device may still write to these records.
  keep_for_ever(std::move(slots_));
}

std::size_t DsaQueue::load() const noexcept {
  return words_.count();
}

DeviceStatistics DsaQueue::statistics() const noexcept {
  // Together they are not one instant, so no order between them is needed.
  return {.descriptors = descriptors_.load_relaxed(),
          .retries = retries_.load_relaxed(),
          .page_faults = page_faults_.load_relaxed(),
          .errors = errors_.load_relaxed(),
          .lost = lost_count_.load_relaxed(),
          .bytes_on_cpu = cpu_bytes_.load_relaxed()};
}

// --- Slots ---------------------------------------------------------------------------------------

bool DsaQueue::is_due(const Slot& slot, std::uint64_t now) const noexcept {
  const std::uint64_t posted = slot.posted_ticks.load_relaxed();  // Looked at again after a claim.
  return now > posted && now - posted > answer_ticks_;
}

inline void DsaQueue::look_at(std::uint32_t index) noexcept {
  Slot& slot = slots_[index];
  std::uint8_t status = 0;
  const auto is_ready = [&] {
    status = status_of(slot.record);
    return status != 0 || is_due(slot, platform::ticks());
  };
  if (!words_.claim(index, is_ready)) return;
  if (status != DSA_COMP_SUCCESS || !slot.simple) return take(index, status);
  Request& request = *slot.request;
  words_.free(index);
  note_answer();
  request.complete_by_device();
}

/// What does not simply end.
void DsaQueue::take(std::uint32_t index, std::uint8_t status) noexcept {
  Slot& slot = slots_[index];
  if (slot.simple) {
    Request& request = *slot.request;
    begin_stripe(slot, request, 0, request.byte_count());
    slot.piece = slot.end;
    slot.outcome = {};
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
    end_stripe(index);
  }
}

void DsaQueue::reap() noexcept {
  // Relaxed: a slot that is posted meanwhile is the next poll's.
  for (std::uint64_t posted = words_.posted(); posted != 0; posted &= posted - 1) {
    look_at(static_cast<std::uint32_t>(std::countr_zero(posted)));
  }
  if (const std::uint64_t lost = words_.lost(); lost != 0) look_at_lost(lost);
}

void DsaQueue::reap(const Request& request) noexcept {
  const std::uint32_t index = request.slot_index.load_relaxed();  // A hint.
  if (index >= slot_count_) return reap();
  if ((words_.posted() >> index & 1U) != 0) look_at(index);
}

bool DsaQueue::rest(const Request& request) noexcept {
  const std::uint32_t index = request.slot_index.load_relaxed();  // A hint.
  return index < slot_count_ && rest_at(slots_[index].record);
}

bool DsaQueue::rest_at(const dsa::CompletionRecord& record) const noexcept {
  if (!platform::has_line_wait()) return false;
  platform::watch_line(&record);
  if (status_of(record) == 0) platform::wait_for_line(platform::ticks() + rest_ticks_);
  return true;
}

// --- Submission ----------------------------------------------------------------------------------

/// All of the descriptor of a copy but its operands.
void DsaQueue::prepare_copy(Slot& slot, std::uint32_t hint) noexcept {
  detail::write_descriptor(detail::head_word(dsa::Opcode::move, copy_flags_ | hint), slot.record,
                           nullptr, nullptr, 0, slot.descriptor);
  slot.prepared = hint == 0;
}

Submit DsaQueue::post(Request& request) noexcept {
  // Another mover takes the request, or the processor.
  if (is_silent()) [[unlikely]] {
    probe();
    return Submit::closed;
  }
  const std::uint32_t index = words_.take();
  // A thread that waits for a lost slot may wait for ever, also where the queue has
  // answered since: another mover takes the request.
  if (index == SlotWords::kNoSlot) [[unlikely]] {
    return words_.is_closed() || words_.is_all_lost() ? Submit::closed : Submit::full;
  }
  const Operation& copy = request.operation();
  const bool fits = copy.source().size() <= short_copy_bytes_max_.load_relaxed();  // A hint.
  if (copy.kind() != OperationKind::copy || !fits || copy.is_durable()) [[unlikely]] {
    return post_stripe(request, index);
  }
  Slot& slot = slots_[std::size_t{index}];
  const std::uint32_t hint = copy.is_into_cache() ? cache_flag_ : 0U;
  if (!slot.prepared || hint != 0) [[unlikely]]
    prepare_copy(slot, hint);
  slot.request = &request;
  slot.simple = true;
  detail::write_operands(copy.source().data(), copy.target().data(), copy.source().size(),
                         slot.descriptor);
  set_status(slot.record, 0);
  if (!hand_over(slot)) [[unlikely]] {
    words_.free(index);
    return refuse();
  }
  request.slot_index.store_relaxed(index);  // A hint for pollers.
  words_.post(index);                       // From here on the request may be gone.
  return Submit::accepted;
}

/// What is no copy of one descriptor, in the slot `index`.
Submit DsaQueue::post_stripe(Request& request, std::uint32_t index) noexcept {
  const Operation& operation = request.operation();
  const bool batch = request.is_batch();
  if (!batch && is_beyond(operation)) {
    words_.free(index);
    return Submit::closed;
  }
  const std::size_t end = batch ? request.batch().operations.size() : request.byte_count();
  if (!batch && end > piece_bytes_max_ && operation.has_independent_parts()) {
    return post_stripes(request, index);
  }
  Slot& slot = slots_[index];
  begin_stripe(slot, request, 0, end);
  slot.outcome = {};
  Next next = Next::posted;
  if (batch) {
    slot.batch = true;
    next = issue_batch(slot);
  } else {
    next = send(slot) ? Next::posted : Next::ended;
  }
  if (batch ? is_refused(slot) : next == Next::ended) {
    words_.free(index);
    return refuse();
  }
  request.slot_index.store_relaxed(index);  // A hint for pollers.
  // From here on the request may be gone.
  if (next == Next::posted) {
    words_.post(index);
  } else {
    end_stripe(index);
  }
  return Submit::accepted;
}

/// As many stripes as there is work and room for, each with the next part of the request.
Submit DsaQueue::post_stripes(Request& request, std::uint32_t first) noexcept {
  const std::size_t byte_count = request.byte_count();
  std::array<std::uint32_t, kStripeMax> stripes{first};
  std::size_t stripe_count = 1;
  const std::size_t wanted = std::min(kStripeMax, byte_count / piece_bytes_max_);
  while (stripe_count < wanted) {
    const std::uint32_t index = words_.take();
    if (index == SlotWords::kNoSlot) break;
    stripes[stripe_count++] = index;
  }
  request.stripes_left = static_cast<std::uint32_t>(stripe_count);
  request.slot_index.store_relaxed(Request::kNoSlot);  // A hint for pollers.
  // A stripe is at least as long as a piece, so none is empty.
  const std::size_t unit = std::min(kPageBytes, piece_bytes(request.operation().cut_bytes()));
  std::size_t begin = 0;
  for (std::size_t i = 0; i < stripe_count; ++i) {
    const std::size_t even = byte_count / stripe_count * (i + 1) / unit * unit;
    const std::size_t end = i + 1 == stripe_count ? byte_count : even;
    Slot& slot = slots_[stripes[i]];
    begin_stripe(slot, request, begin, end);
    slot.outcome = {};
    slot.single = stripe_count == 1;
    begin = end;
  }
  if (!send(slots_[first])) {
    for (std::size_t i = 0; i < stripe_count; ++i) words_.free(stripes[i]);
    return refuse();
  }
  request.outcome = {};
  // The request lives until its last stripe has ended, and that one is not begun before the others.
  for (std::size_t i = 1; i < stripe_count; ++i) {
    if (issue(slots_[stripes[i]]) == Next::posted) {
      words_.post(stripes[i]);
    } else {
      end_stripe(stripes[i]);
    }
  }
  words_.post(first);
  return Submit::accepted;
}

/// What the queue may not do is done elsewhere. What cannot be cut, or not into pieces so small,
/// has to fit one descriptor; and version 1 of the device has no patterns of 16 bytes, but those of
/// 8 twice.
bool DsaQueue::is_beyond(const Operation& operation) const noexcept {
  const auto kind = static_cast<unsigned>(operation.kind());
  if ((refused_kinds_.load_relaxed() >> kind & 1U) != 0) return true;  // A hint.
  if (operation.kind() == OperationKind::fill && operation.pattern_bytes() == 16) return true;
  const std::size_t cut = operation.cut_bytes();
  if (cut != 0) return cut > piece_bytes_max_ && operation.byte_count() > piece_bytes_max_;
  return std::max(operation.byte_count(), operation.target().size()) > piece_bytes_max_;
}

/// What one descriptor takes of an operation that may be cut at multiples of `cut`.
std::size_t DsaQueue::piece_bytes(std::size_t cut) const noexcept {
  return piece_bytes_max_ / cut * cut;
}

void DsaQueue::begin_stripe(Slot& slot, Request& request, std::size_t begin,
                            std::size_t end) noexcept {
  slot.request = &request;
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
  slot.simple = false;
  slot.copies = false;
  slot.durable = false;
  slot.lost = false;
}

DsaQueue::Next DsaQueue::issue(Slot& slot) noexcept {
  // Advice; carries no data.
  if (words_.is_closed() || slot.request->stop_requested()) {
    slot.outcome.state = JobState::stopped;
    if (slot.batch && !slot.large) stop_batch(slot);
    return Next::ended;
  }
  if (slot.batch && !slot.large) return issue_batch(slot);
  return send(slot) ? Next::posted : carry_on(slot);
}

bool DsaQueue::send(Slot& slot) noexcept {
  const Operation& whole = slot.whole();
  slot.piece = slot.end - slot.at;
  if (slot.piece > piece_bytes_max_) slot.piece = piece_bytes(whole.cut_bytes());
  const Operation part = slot.part(slot.at, slot.piece);
  slot.durable = slot.durable || whole.is_durable();
  slot.prepared = false;
  detail::to_descriptor(part, slot.descriptor);
  add_flags(slot.descriptor, detail::hints(whole, portal_.info(), device_.page_faults));
  slot.descriptor.completion_addr = reinterpret_cast<std::uintptr_t>(&slot.record);
  set_status(slot.record, 0);
  if (!hand_over(slot)) return false;
  slot.full_ticks = 0;
  return true;
}

// --- Completion ----------------------------------------------------------------------------------

DsaQueue::Next DsaQueue::take_record(Slot& slot) noexcept {
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

/// What the device wrote may lie in a cache, whatever the descriptor asked for: where writes of
/// devices go is a matter of the platform. What a processor did in its place is brought to memory
/// twice, which is rare and harmless.
void DsaQueue::settle(const Slot& slot) noexcept {
  if (!slot.durable) return;
  const Request& request = *slot.request;
  for (const Operation& operation : request.batch().operations) {
    if (operation.is_durable()) detail::make_durable(operation);
  }
  const Operation& whole = request.operation();
  if (!slot.batch && whole.is_durable()) {
    detail::make_durable(whole.part(slot.begin, slot.end - slot.begin));
  }
}

void DsaQueue::end_stripe(std::uint32_t index) noexcept {
  const Slot& slot = slots_[index];
  Request& request = *slot.request;
  settle(slot);
  const Completion outcome = slot.outcome;
  const std::size_t begin = slot.begin;
  const bool single = slot.single;
  // Room for another request before the job ends: a thread that waited for it may submit at once.
  if (slot.lost) {
    words_.lose(index);
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
  if (whole.bytes_done == request.byte_count()) whole.state = JobState::idle;  // Nothing was left.
  request.complete(whole);
}

void DsaQueue::stop() noexcept {
  words_.close();
  // What has begun is finished; by the processor, if the device does not answer in time.
  while (!words_.is_idle()) {
    reap();
    std::this_thread::yield();
  }
}

}  // namespace headrace::engine
