// SPDX-License-Identifier: Apache-2.0
#include "headrace/engine/channel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "completions.hpp"
#include "dsa/slot.hpp"
#include "engine_state.hpp"
#include "headrace/base/check.hpp"
#include "headrace/base/units.hpp"
#include "headrace/platform/ticks.hpp"
#include "headrace/platform/wait.hpp"
#include "traced.hpp"
#include "waiter.hpp"

namespace headrace::engine {

using detail::set_status;
using detail::status_of;

namespace {

[[gnu::always_inline]] inline void set_done(Completion& completion,
                                            std::size_t byte_count) noexcept {
  completion = {.state = JobState::done, .bytes_done = byte_count, .bytes_by_device = byte_count};
}

}  // namespace

/// A channel reserves slots of a DSA queue. Reserved slots are never posted, so the queue's pollers
/// do not read them: everything in a slot except what the device writes belongs to the channel and
/// needs no atomic operations.
///
/// A copy that fits one descriptor, and a batch of such copies, take a fast path that does not
/// touch the stripe in the slot. On any status but success they are converted to a stripe, and the
/// queue's error handling takes over (DsaQueue::take_record).
///
/// Threading: confined, except the counts, which the engine reads.
class ChannelState final : public Channel {
 public:
  /// The depth is 0 if `queue` has too few free slots.
  ChannelState(EngineState& engine, DsaQueue& queue, const ChannelOptions& options)
      : engine_(engine),
        queue_(queue),
        latencies_(options.latencies),
        places_(std::make_unique<Place[]>(std::min(options.depth, SlotWords::kSlotMax))),
        counts_(engine.begin_channel(queue)) {
    std::uint64_t slots = queue.reserve(options.depth);  // Must not throw from here on.
    for (std::size_t i = 0; slots != 0; slots &= slots - 1, ++i) {
      Place& place = places_[i];
      place.slot_index = static_cast<std::uint32_t>(std::countr_zero(slots));
      place.slot = &queue.slots_[place.slot_index];
      prepare_copy(place);
      owned_ |= std::uint64_t{1} << i;
    }
    free_ = owned_;
  }
  ~ChannelState() override {
    // In a forked child the slots belong to the parent.
    if (engine_.is_forked()) return;
    for (std::uint64_t flying = owned_ & ~free_; flying != 0; flying &= flying - 1) {
      static_cast<void>(wait(static_cast<Ticket>(std::countr_zero(flying))));
    }
    std::uint64_t slots = 0;
    for (std::uint64_t left = owned_; left != 0; left &= left - 1) {
      const auto index = static_cast<std::size_t>(std::countr_zero(left));
      slots |= std::uint64_t{1} << places_[index].slot_index;
    }
    queue_.words_.give_back(slots);
    engine_.end_channel(counts_);
  }

  [[nodiscard]] Submit submit_copy(const CopyPlan& plan, Ticket& ticket) override {
    if (!is_simple(plan) || !is_ready()) [[unlikely]]
      return submit_other_copy(plan, ticket);
    const auto index = static_cast<std::size_t>(std::countr_zero(free_));
    if (places_[index].way != Way::copy) [[unlikely]]
      return submit_other_copy(plan, ticket);
    return send_copy(plan, index, ticket);
  }

  [[nodiscard, gnu::noinline]] Submit submit(const Operation& operation, Ticket& ticket) override {
    const Submit valid = operation.validate();
    return valid == Submit::accepted ? submit_stripe(operation, {}, ticket) : valid;
  }

  [[nodiscard]] Submit submit_batch(const Batch& batch, Ticket& ticket) override {
    if (batch.operations.empty()) return Submit::empty;
    if (!batch.completions.empty() && batch.completions.size() != batch.operations.size()) {
      return Submit::length_differs;
    }
    const auto index = static_cast<std::uint32_t>(std::countr_zero(free_));
    if (is_ready() && write_list(batch, places_[index])) [[likely]] {
      Place& place = places_[index];
      if (!queue_.portal_.submit(place.slot->descriptor)) [[unlikely]]
        return refuse();
      queue_.note_taken();
      place.request.assign_batch(batch, place.byte_count);
      free_ &= ~(std::uint64_t{1} << index);
      ticket = static_cast<Ticket>(index);
      counts_.descriptors.add_alone(1);
      return Submit::accepted;
    }
    for (const Operation& operation : batch.operations) {
      const Submit valid = operation.validate();
      if (valid != Submit::accepted) return valid;
    }
    return submit_stripe(Operation::no_op(), batch, ticket);
  }

  [[nodiscard]] bool poll(Ticket ticket, Completion& completion) override {
    const auto index = static_cast<std::uint32_t>(ticket);
    const std::uint64_t bit = std::uint64_t{1} << (index & 63U);
    HEADRACE_CHECK(index < 64 && (owned_ & ~free_ & bit) != 0, "a ticket must be in flight");
    const Place& place = places_[index];
    if (place.way != Way::copy || status_of(place.slot->record) != DSA_COMP_SUCCESS) [[unlikely]] {
      return poll_other(index, completion);
    }
    const std::size_t byte_count = place.byte_count;
    free_ |= bit;
    set_done(completion, byte_count);
    counts_.copies.jobs_done.add_alone(1);
    counts_.copies.bytes.add_alone(byte_count);
    queue_.note_answer();
    return true;
  }

  [[nodiscard]] Completion wait(Ticket ticket) override {
    Completion completion;
    if (poll(ticket, completion)) return completion;
    Waiter waiter(engine_.waiting(), true, wait_history_, platform::ticks());
    const auto& record = places_[static_cast<std::uint32_t>(ticket)].slot->record;
    while (true) {
      const std::uint64_t now = platform::ticks();
      if (poll(ticket, completion)) {
        waiter.end(now);
        return completion;
      }
      waiter.pass(
          now, [&] { return queue_.rest_at(record); },
          [](std::chrono::nanoseconds time) { platform::sleep(time); });
    }
  }

  [[nodiscard]] std::size_t in_flight() const override {
    return static_cast<std::size_t>(std::popcount(owned_ & ~free_));
  }
  [[nodiscard]] std::size_t depth() const override {
    return static_cast<std::size_t>(std::popcount(owned_));
  }
  [[nodiscard]] const std::string& queue() const override { return queue_.info().name; }

 private:
  /// How the completion of a place is read.
  enum class Way : std::uint8_t {
    copy,        ///< Fast path; the operands are in the descriptor.
    timed_copy,  ///< As `copy`, in a channel that counts latencies.
    list,        ///< Fast path of a batch of copies: the record of the list covers all of them.
    stripe,      ///< Handled by the queue.
    ended,       ///< Completed; the outcome is in the slot.
  };
  struct Place {
    DsaQueue::Slot* slot = nullptr;
    std::size_t byte_count = 0;
    std::uint32_t slot_index = 0;
    Way way = Way::ended;  ///< Of the last operation, if none is in flight.
    std::uint64_t begun_ticks = 0;
    Request request;  ///< Used by a stripe; holds the batch of a list.
  };

  // --- Submission ---

  [[gnu::always_inline, nodiscard]] inline bool is_simple(const CopyPlan& plan) const noexcept {
    return plan.target.size() == plan.source.size() &&
           Operation::is_simple_copy(plan.target.data(), plan.source.data(), plan.source.size(),
                                     queue_.short_copy_bytes_max_.load_relaxed());  // A hint.
  }
  /// Same as obstacle() == accepted, in fewer instructions.
  [[gnu::always_inline, nodiscard]] inline bool is_ready() const noexcept {
    return free_ != 0 && !engine_.is_forked() && !engine_.is_closed() && !queue_.is_silent();
  }
  /// The reason why nothing can be submitted now; `accepted` if there is none.
  [[nodiscard]] Submit obstacle() const noexcept {
    if (engine_.is_forked()) return Submit::forked;
    if (queue_.is_silent()) queue_.probe(free_ != 0);
    if (engine_.is_closed() || queue_.is_silent() || owned_ == 0) return Submit::closed;
    return free_ == 0 ? Submit::full : Submit::accepted;
  }
  Submit note_refusal(Submit answer) noexcept {
    if (answer == Submit::full || answer == Submit::closed) counts_.refused.add_alone(1);
    return answer;
  }
  [[nodiscard, gnu::noinline]] Submit refuse() noexcept {
    queue_.note_refused(platform::ticks());
    return note_refusal(queue_.refuse());
  }

  /// Submission reads no clock; the first poll without an answer records the time.
  [[gnu::always_inline]] static inline void begin(Place& place, DsaQueue::Slot& slot,
                                                  std::size_t byte_count) noexcept {
    place.byte_count = byte_count;
    set_status(slot.record, 0);
    slot.posted_ticks.store_relaxed(0);  // Confined.
  }

  /// Sends a copy from place `index`, whose descriptor is complete except for the operands.
  [[gnu::always_inline, nodiscard]] inline Submit send_copy(const CopyPlan& plan, std::size_t index,
                                                            Ticket& ticket) noexcept {
    Place& place = places_[index];
    DsaQueue::Slot& slot = *place.slot;
    // Has no effect if the device refuses the descriptor.
    begin(place, slot, plan.source.size());
    ticket = static_cast<Ticket>(index);
    detail::write_operands(plan.source.data(), plan.target.data(), plan.source.size(),
                           slot.descriptor);
    if (!queue_.portal_.submit(slot.descriptor)) [[unlikely]]
      return refuse();
    queue_.note_taken();
    free_ ^= std::uint64_t{1} << index;
    counts_.descriptors.add_alone(1);
    return Submit::accepted;
  }

  /// A copy that is not simple, that cannot be sent now, or whose place holds another kind of
  /// descriptor. Out of line to keep register pressure low on the fast path.
  [[nodiscard, gnu::noinline]] Submit submit_other_copy(const CopyPlan& plan, Ticket& ticket) {
    if (!is_simple(plan) || obstacle() != Submit::accepted) {
      return submit(Operation::copy(plan.target, plan.source), ticket);
    }
    const auto index = static_cast<std::size_t>(std::countr_zero(free_));
    prepare_copy(places_[index]);
    return send_copy(plan, index, ticket);
  }

  /// Writes the descriptor of a copy except for its operands. It is reused by the following copies
  /// unless the channel counts latencies.
  [[gnu::noinline]] void prepare_copy(Place& place) noexcept {
    queue_.prepare_copy(*place.slot, 0);
    place.way = latencies_ ? Way::timed_copy : Way::copy;
    if (latencies_) place.begun_ticks = platform::ticks();
  }

  /// Returns: false if `batch` contains anything but simple copies.
  [[gnu::always_inline, nodiscard]] inline bool write_list(const Batch& batch,
                                                           Place& place) noexcept {
    const std::size_t count = batch.operations.size();
    std::size_t byte_count = 0;
    if (count < 2 || count > queue_.batch_max_ ||
        queue_.write_copies<false>(*place.slot, batch.operations, byte_count) != count) {
      return false;
    }
    place.way = Way::list;
    if (latencies_) place.begun_ticks = platform::ticks();
    begin(place, *place.slot, byte_count);
    queue_.write_list(*place.slot, count);
    return true;
  }

  /// Submits a valid operation or batch that does not qualify for the fast path. It is counted as a
  /// job.
  [[nodiscard]] Submit submit_stripe(const Operation& operation, const Batch& batch,
                                     Ticket& ticket) {
    const Submit why_not = obstacle();
    if (why_not != Submit::accepted) return note_refusal(why_not);
    const auto index = static_cast<std::uint32_t>(std::countr_zero(free_));
    Place& place = places_[index];
    place.begun_ticks = platform::ticks();
    begin_stripe(place, operation, batch);
    DsaQueue::Next next = DsaQueue::Next::posted;
    if (batch.operations.empty() && queue_.is_unsupported(operation)) {
      next = queue_.finish_on_cpu(*place.slot);
    } else if (!queue_.issue_first(*place.slot, next)) {
      return note_refusal(queue_.refuse());
    }
    place.way = next == DsaQueue::Next::ended ? Way::ended : Way::stripe;
    free_ &= ~(std::uint64_t{1} << index);
    ticket = static_cast<Ticket>(index);
    engine_.count([](Statistics& mine) { mine.count_submitted(); });
    return Submit::accepted;
  }

  static void begin_stripe(Place& place, const Operation& operation, const Batch& batch) {
    // The descriptor is overwritten: if the queue refuses it, the place must be prepared again.
    place.way = Way::ended;
    std::size_t byte_count = operation.byte_count();
    for (const Operation& one : batch.operations) byte_count += one.byte_count();
    place.request.assign(operation, batch, byte_count);
    DsaQueue::begin_stripe(*place.slot, place.request, 0, byte_count);
  }

  // --- Completion ---

  /// Everything except a copy that succeeded.
  [[nodiscard, gnu::noinline]] bool poll_other(std::uint32_t index, Completion& completion) {
    Place& place = places_[index];
    DsaQueue::Slot& slot = *place.slot;
    const std::uint64_t bit = std::uint64_t{1} << index;
    if (engine_.is_forked()) {
      completion = detail::ended({.cause = Cause::forked});
      if (place.way >= Way::list) detail::note_rest(place.request.batch(), 0, completion);
      free_ |= bit;
      return true;
    }
    if (place.way != Way::ended) {
      const std::uint8_t status = status_of(slot.record);
      if (place.way != Way::stripe && status == DSA_COMP_SUCCESS) {
        const bool is_list = place.way == Way::list;
        KindCounts& counts = is_list ? counts_.lists : counts_.copies;
        set_done(completion, place.byte_count);
        if (is_list && !place.request.batch().completions.empty()) {
          note_each(place.request.batch());
        }
        free_ |= bit;
        counts.jobs_done.add_alone(1);
        counts.bytes.add_alone(place.byte_count);
        if (latencies_) counts.latencies[Statistics::latency_class(place.begun_ticks)].add_alone(1);
        queue_.note_answer();
        return true;
      }
      const std::uint64_t now = platform::ticks();
      if (status == 0) {
        if (slot.posted_ticks.load_relaxed() == 0) slot.posted_ticks.store_relaxed(now);  // Ours.
        if (!queue_.is_due(slot, now)) return false;
      }
      if (place.way != Way::stripe) convert(place, now);
      if (status == 0) {
        queue_.give_up(slot);
      } else if (queue_.take_record(slot) == DsaQueue::Next::posted) {
        return false;
      }
    }
    completion = detail::ended(slot.outcome());
    const std::size_t kind = place.request.is_batch()
                                 ? kOperationKindCount
                                 : static_cast<std::size_t>(place.request.operation().kind());
    engine_.count([&](Statistics& mine) { mine.count(kind, completion, place.begun_ticks); });
    if (slot.lost) {
      owned_ &= ~bit;
      queue_.lose(place.slot_index);
    } else {
      free_ |= bit;
    }
    return true;
  }

  [[gnu::noinline]] static void note_each(const Batch& batch) noexcept {
    for (std::size_t i = 0; i < batch.completions.size(); ++i) {
      set_done(batch.completions[i], batch.operations[i].byte_count());
    }
  }

  /// Converts a fast-path operation to a stripe, which is counted as a job from here on.
  void convert(Place& place, std::uint64_t now) {
    DsaQueue::Slot& slot = *place.slot;
    if (!latencies_) place.begun_ticks = now;
    if (place.way != Way::list) {
      // The operands are only in the descriptor.
      auto* const target = reinterpret_cast<std::byte*>(slot.descriptor.dst_addr);
      const auto* const source = reinterpret_cast<const std::byte*>(slot.descriptor.src_addr);
      begin_stripe(place, Operation::copy({target, place.byte_count}, {source, place.byte_count}),
                   {});
      slot.piece = place.byte_count;
    } else {
      const Batch batch = place.request.batch();
      begin_stripe(place, Operation::no_op(), batch);
      slot.send_copies(batch.operations.size());
    }
    place.way = Way::stripe;
    counts_.converted.add_alone(1);
    engine_.count([](Statistics& mine) { mine.count_submitted(); });
  }

  EngineState& engine_;
  DsaQueue& queue_;
  const bool latencies_;
  /// Unlike the engine's, specific to this queue and not shared between threads.
  WaitHistory wait_history_;
  std::unique_ptr<Place[]> places_;
  ChannelCounts& counts_;
  /// Bit masks of places. free_ is a subset of owned_; a place whose slot was lost is in neither.
  std::uint64_t owned_ = 0;
  std::uint64_t free_ = 0;
};

// --- The interface -------------------------------------------------------------------------------

Result<std::unique_ptr<Channel>> EngineState::open_channel(const ChannelOptions& options) {
  constexpr const char* kTried = "open a channel";
  if (is_forked() || is_closed()) {
    return fail(Code::closed, kTried,
                is_forked() ? "the engine belongs to the parent of this process"
                            : "the engine has been stopped",
                "make a new engine");
  }
  if (options.depth == 0) {
    return fail(Code::invalid_argument, kTried, "the depth is 0", "the default is 8");
  }
  std::vector<DsaQueue*> queues;
  for (std::size_t i = facts_.processor_count; i < movers_.size(); ++i) {
    auto* const queue = dynamic_cast<DsaQueue*>(movers_[i].get());
    const bool named = options.queue.empty() || movers_[i]->info().name == options.queue;
    if (queue != nullptr && named) queues.push_back(queue);
  }
  if (queues.empty()) {
    return fail(Code::hardware_absent, kTried,
                options.queue.empty() ? std::string("the engine has no DSA queue")
                                      : fmt::format("it has no queue '{}'", options.queue),
                "Engine::notes and 'headrace doctor' show why; Engine::submit needs no queue");
  }
  // Queues of the requested node first, then by load.
  std::stable_sort(queues.begin(), queues.end(), [&](const DsaQueue* one, const DsaQueue* other) {
    const bool near = options.node && one->info().node == options.node;
    const bool other_near = options.node && other->info().node == options.node;
    return near != other_near ? near : one->load() < other->load();
  });
  for (DsaQueue* const queue : queues) {
    auto state = std::make_unique<ChannelState>(*this, *queue, options);
    if (state->depth() == 0) continue;
    if (trace::is_on()) return std::make_unique<detail::TracedChannel>(std::move(state));
    return state;
  }
  const auto is_lost = [](const DsaQueue* queue) { return queue->is_all_lost(); };
  if (std::all_of(queues.begin(), queues.end(), is_lost)) {
    return fail(
        Code::capacity_exceeded, kTried,
        "no queue has a free entry: the device has not answered the descriptors that hold them",
        "use Engine::submit, reset the device, or make a new engine");
  }
  return fail(
      Code::capacity_exceeded, kTried,
      fmt::format("no queue has {} and one more for jobs", counted(options.depth, "free entry")),
      "use a smaller depth, or configure larger queues: 'headrace dsa configure'");
}

}  // namespace headrace::engine
