// SPDX-License-Identifier: Apache-2.0
// The mover of one DSA work queue: descriptors out by its portal, completion records in by polling.
// It has no thread. Not for: finding queues (dsa_movers.hpp) and what lies behind a portal.
//
// Progress: lock-free for shares of one lane, which is all that fit one descriptor and all with a
// running value. The lanes of a larger share meet under a mutex, once each.
//
// Agents: submitters and pollers, any number of threads; the device, which reads a slot's
// descriptors at submission and writes its records.
//
// Slots. A slot is room for one descriptor in flight (or one batch) with its record. It has two
// bits, each in a word of its own: `busy` while it is taken, `posted` while it may be looked at by
// pollers. Everything else in it belongs to one thread at a time:
//
//   busy  posted   whose                                       next
//   0     0        nobody's                                    a submitter sets busy: its own
//   1     0        the thread that took it, or claimed it      it sets posted, or clears busy
//   1     1        the device's, until its record has a        a poller clears posted: its own
//                  status; pollers read only the status
//                  and the time of posting
//   1     0, lost  the device's for ever (the bit in lost_)    a late status frees it
//   1     0, kept  a channel's (the bit in reserved_)          it gives it back, or loses it
//
// A poller decides by the status and then claims by clearing `posted`; between the two the slot may
// have been claimed, used again and posted by others, so it looks again after the claim and gives
// back what it should not have taken.
//
// A device that does not answer in time. Its share is finished by the calling thread (a batch as
// far as what the device may yet do does no harm), and the slot is lost: descriptors and records in
// it are never used for anything else while the device may still write to them. When several slots
// are lost and nothing comes back in between, the queue is given up: it takes no more shares until
// an answer shows that it lives. That may be a late one, or that of a no-op which whoever would
// have submitted sends now and then (probe()).
#pragma once

#include <chrono>
#include <memory>
#include <span>

#include "headrace/base/mutex.hpp"
#include "headrace/dsa/portal.hpp"
#include "headrace/engine/engine.hpp"
#include "headrace/engine/mover.hpp"

namespace headrace::engine {

struct DsaMoverOptions {
  /// What is known besides the portal's own info: the node, and how the portal is reached.
  std::optional<NodeId> node = std::nullopt;
  std::string note = {};
  DeviceOptions device = {};
  /// False where a batch cannot be submitted: by write() to devices of version 1.
  bool batches = true;
};

/// Threading: shared.
class DsaMover final : public Mover {
 public:
  /// Fails: invalid_argument for a queue without entries.
  [[nodiscard]] static Result<std::unique_ptr<DsaMover>> make(std::unique_ptr<dsa::Portal> portal,
                                                              const DsaMoverOptions& options);
  /// As above, with a portal that is the caller's and outlives the mover.
  [[nodiscard]] static Result<std::unique_ptr<DsaMover>> make(dsa::Portal& portal,
                                                              const DsaMoverOptions& options);
  ~DsaMover() override;

  [[nodiscard]] const MoverInfo& info() const override { return info_; }
  [[nodiscard]] Submit submit(Share& share) noexcept override;
  void poll() noexcept override;
  void poll_share(const Share& share) noexcept override;
  [[nodiscard]] bool rest(const Share& share) noexcept override;
  [[nodiscard]] std::size_t load() const noexcept override;
  [[nodiscard]] DeviceStatistics statistics() const noexcept override;
  void stop() noexcept override;

  /// Takes `count` slots out of use for a channel. 0 if that would leave none for jobs.
  [[nodiscard]] std::uint64_t reserve(std::size_t count) noexcept;
  /// Slots that reserve() gave.
  void give_back(std::uint64_t slots) noexcept;
  /// For what a channel counts itself.
  void add_descriptors(std::uint64_t count) noexcept {
    descriptors_.fetch_add_relaxed(count);  // A count of its own.
  }

 private:
  friend class ChannelState;
  struct Slot;
  enum class Next : std::uint8_t { posted, ended };
  // Bits 0..62 are slots.
  static constexpr std::size_t kSlotMax = 63;
  static constexpr std::uint64_t kClosed = std::uint64_t{1} << 63U;
  static constexpr std::uint32_t kNoSlot = ~0U;
  /// A batch of more gains nothing (docs/concepts/engine.md), and each slot has room for one.
  static constexpr std::size_t kBatchMax = 64;
  /// Page faults of one piece without progress, and aborted submissions of it, before a processor
  /// takes over.
  static constexpr std::uint8_t kTriesMax = 8;
  /// Lanes of one share: two for each engine of a device.
  static constexpr std::size_t kLaneMax = 8;

  DsaMover(dsa::Portal& portal, std::unique_ptr<dsa::Portal> owned, const DsaMoverOptions& options);

  // Slots.
  [[nodiscard]] std::uint32_t take_slot(Submit& refusal) noexcept;
  void free_slot(std::uint32_t index) noexcept;
  void post(std::uint32_t index) noexcept;
  void look_at(std::uint32_t index, std::uint64_t now) noexcept;
  [[nodiscard]] bool is_due(const Slot& slot, std::uint64_t now) const noexcept;

  // The life of a lane. Whoever calls owns its slot; `ended` means that the lane has.
  [[nodiscard]] Next issue(Slot& slot) noexcept;
  [[nodiscard]] bool send(Slot& slot) noexcept;
  [[nodiscard]] bool hand_over(Slot& slot) noexcept;
  [[nodiscard]] Submit refuse() const noexcept;
  [[nodiscard]] bool rest_at(const dsa::CompletionRecord& record) const noexcept;
  [[nodiscard]] Next take_record(Slot& slot) noexcept;
  [[nodiscard]] Next resolve_fault(Slot& slot, const ShareOutcome& piece) noexcept;
  [[nodiscard]] Next finish_on_cpu(Slot& slot) noexcept;
  [[nodiscard]] Next carry_on(Slot& slot) noexcept;
  [[nodiscard]] bool is_beyond(const Operation& operation) const noexcept;
  [[nodiscard]] std::size_t piece_bytes(std::size_t cut) const noexcept;
  static void begin_lane(Slot& slot, Share& share, std::size_t begin, std::size_t end) noexcept;
  static void settle(const Slot& slot) noexcept;
  void end_lane(std::uint32_t index) noexcept;
  void give_up(std::uint32_t index) noexcept;
  void lose(std::uint32_t index) noexcept;
  void look_at_lost(std::uint64_t lost) noexcept;
  void probe() noexcept;
  static void keep_for_ever(std::unique_ptr<Slot[]> slots) noexcept;

  // What is known of the device.
  /// It has not answered for so long that nothing more is given to it.
  [[nodiscard, gnu::always_inline]] bool is_silent() const noexcept {
    return silent_count_.load_relaxed() >= silent_max_;  // A count of its own.
  }
  [[gnu::always_inline]] void note_answer() noexcept {
    if (silent_count_.load_relaxed() != 0) silent_count_.store_relaxed(0);  // As above.
  }
  [[gnu::always_inline]] void note_taken() noexcept {
    if (refusing_ticks_.load_relaxed() != 0) refusing_ticks_.store_relaxed(0);  // A hint.
  }
  void note_refused(std::uint64_t now) noexcept {
    retries_.fetch_add_relaxed(1);                                                // A count.
    if (refusing_ticks_.load_relaxed() == 0) refusing_ticks_.store_relaxed(now);  // A hint.
  }

  // Batches.
  [[nodiscard]] Next issue_batch(Slot& slot) noexcept;
  [[nodiscard]] bool send_batch(Slot& slot) noexcept;
  void take_batch(Slot& slot, std::uint8_t status) noexcept;
  [[nodiscard]] bool take_answer(Slot& slot, std::size_t index,
                                 const dsa::CompletionRecord& record) noexcept;
  [[nodiscard]] bool may_be_sent_again(const Slot& slot, const Operation& operation,
                                       const dsa::CompletionRecord& record) const noexcept;
  void finish_unanswered(Slot& slot) noexcept;
  void do_in_batch(Slot& slot, std::size_t index) noexcept;
  void do_next_in_batch(Slot& slot) noexcept;
  [[nodiscard]] static bool is_broken(const Slot& slot, std::size_t index) noexcept;
  static void break_fence(Slot& slot, std::size_t index) noexcept;
  static void note_failure(Slot& slot, std::size_t index) noexcept;
  static void note_done(Slot& slot, std::uint64_t more) noexcept;
  static void stop_batch(Slot& slot) noexcept;

  std::unique_ptr<dsa::Portal> owned_;
  dsa::Portal& portal_;
  MoverInfo info_;
  const DeviceOptions device_;
  std::size_t piece_bytes_max_;
  std::size_t batch_max_;
  std::uint32_t slot_count_;
  std::uint32_t silent_max_;
  std::uint64_t answer_ticks_;
  std::uint64_t rest_ticks_;
  std::uint32_t copy_flags_;
  std::uint64_t slots_mask_;
  /// slot_count_ of them, and one more for probes, which is nobody's.
  std::unique_ptr<Slot[]> slots_;

  alignas(64) Atomic<std::uint64_t> busy_{0};
  Atomic<std::uint64_t> posted_{0};
  Atomic<std::uint64_t> lost_{0};
  /// Of busy_: those of channels, which are never posted.
  Atomic<std::uint64_t> reserved_{0};
  /// Slots given up since the last answer.
  Atomic<std::uint32_t> silent_count_{0};
  /// Since when the queue has refused every descriptor; 0 if it took the last one.
  Atomic<std::uint64_t> refusing_ticks_{0};
  /// When the probe that has not been answered was sent; 0 if there is none.
  Atomic<std::uint64_t> probe_ticks_{0};
  /// Lanes of shares that have several.
  Mutex lanes_mutex_;

  alignas(64) Atomic<std::uint64_t> descriptors_{0};
  Atomic<std::uint64_t> retries_{0};
  Atomic<std::uint64_t> page_faults_{0};
  Atomic<std::uint64_t> errors_{0};
  Atomic<std::uint64_t> lost_count_{0};
  Atomic<std::uint64_t> cpu_bytes_{0};
};

}  // namespace headrace::engine
