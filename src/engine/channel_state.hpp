// SPDX-License-Identifier: Apache-2.0
// What a channel is inside: slots of a DSA queue that are reserved for it. The queue's pollers do
// not look at them, because they are never posted; so all of a slot but what the device writes is
// the channel's, and nothing of it needs an atomic operation.
//
// A copy that fits a descriptor, and a list of such, go a way of their own, on which nothing of the
// stripe in the slot is written. As soon as its record tells anything but success, it becomes a
// stripe, and the queue takes the trouble as it takes that of others (DsaQueue::take_record).
#pragma once

#include <bit>
#include <memory>

#include "dsa/queue.hpp"
#include "headrace/engine/channel.hpp"
#include "statistics.hpp"
#include "waiter.hpp"

namespace headrace::engine {

class EngineState;

/// Threading: confined, but for the counts, which the engine reads.
class ChannelState {
 public:
  /// Reserves slots of `queue`, or has a depth of 0 if that has too few.
  ChannelState(EngineState& engine, DsaQueue& queue, const ChannelOptions& options);
  ChannelState(const ChannelState&) = delete;
  ChannelState& operator=(const ChannelState&) = delete;
  ~ChannelState();

  [[nodiscard]] Submit submit_copy(const CopyPlan& plan, Ticket& ticket);
  [[nodiscard, gnu::noinline]] Submit submit(const Operation& operation, Ticket& ticket);
  [[nodiscard]] Submit submit_batch(const Batch& batch, Ticket& ticket);
  [[nodiscard]] bool poll(Ticket ticket, Completion& completion);
  [[nodiscard]] Completion wait(Ticket ticket);
  [[nodiscard]] std::size_t in_flight() const {
    return static_cast<std::size_t>(std::popcount(owned_ & ~free_));
  }
  [[nodiscard]] std::size_t depth() const {
    return static_cast<std::size_t>(std::popcount(owned_));
  }
  [[nodiscard]] DsaQueue& queue() const { return queue_; }

 private:
  /// How what is in flight at a place ends.
  enum class Way : std::uint8_t {
    copy,        ///< The descriptor in the slot says all.
    timed_copy,  ///< The same, of a channel that counts latencies.
    list,        ///< Copies of a batch; success of the list is that of each.
    stripe,      ///< By the queue's own means.
    ended,       ///< It has ended; the outcome is in the slot.
  };
  struct Place {
    DsaQueue::Slot* slot = nullptr;
    std::size_t byte_count = 0;
    std::uint32_t slot_index = 0;
    Way way = Way::ended;  ///< Of the last one, if nothing is in flight.
    std::uint64_t begun_ticks = 0;
    Request request;  ///< Of a stripe, and the batch of a list.
  };

  // Apart, so that the way of most copies keeps few values.
  [[nodiscard, gnu::noinline]] Submit submit_odd_copy(const CopyPlan& plan, Ticket& ticket);
  /// Why nothing may be submitted now; accepted if it may.
  [[nodiscard]] Submit obstacle() const noexcept;
  Submit note_refusal(Submit answer) noexcept;
  [[gnu::always_inline, nodiscard]] inline bool write_list(const Batch& batch,
                                                           Place& place) noexcept;
  /// True if obstacle() is `accepted`; by fewer instructions, because it need not tell why not.
  [[gnu::always_inline, nodiscard]] inline bool is_ready() const noexcept;
  [[nodiscard, gnu::noinline]] Submit refuse() noexcept;
  [[gnu::always_inline]] static inline void begin(Place& place, DsaQueue::Slot& slot,
                                                  std::size_t byte_count) noexcept;
  [[gnu::always_inline, nodiscard]] inline bool is_simple(const CopyPlan& plan) const noexcept;
  [[gnu::always_inline, nodiscard]] inline Submit send_copy(const CopyPlan& plan, std::size_t index,
                                                            Ticket& ticket) noexcept;
  [[gnu::noinline]] void prepare_copy(Place& place) noexcept;
  void convert(Place& place, std::uint64_t now);
  void accept(std::uint32_t index, Way way, Ticket& ticket) noexcept;
  [[nodiscard, gnu::noinline]] bool poll_other(std::uint32_t index, Completion& completion);
  static void begin_stripe(Place& place, const Operation& operation, const Batch& batch);
  [[gnu::noinline]] static void note_each(const Batch& batch) noexcept;

  EngineState& engine_;
  DsaQueue& queue_;
  const bool latencies_;
  /// Of this queue alone, and touched by no other thread, unlike that of the engine.
  WaitHistory wait_history_;
  std::unique_ptr<Place[]> places_;
  ChannelCounts& counts_;
  /// By places. free_ is a part of owned_; a place whose slot was lost is in neither.
  std::uint64_t owned_ = 0;
  std::uint64_t free_ = 0;
};

}  // namespace headrace::engine
