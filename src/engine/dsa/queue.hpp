// SPDX-License-Identifier: Apache-2.0
// The mover of one DSA work queue: descriptors out by its portal, completion records in by polling.
// It has no thread. Not for: finding queues (open.hpp) and what lies behind a portal.
//
// Progress: lock-free for requests of one stripe, which is all that fit one descriptor and all with
// a running value. The stripes of a larger request meet under a mutex, once each.
//
// Agents: submitters and pollers, any number of threads; the device, which reads a slot's
// descriptors at submission and writes its records.
//
// Slots. A slot is room for one descriptor in flight (or one batch) with its record. Whose it is
// say two bits, `busy` and `posted` (slot_words.hpp); all of it belongs to one thread at a time.
//
// A device that does not answer in time. Its request is finished by the calling thread (a batch as
// far as what the device may yet do does no harm), and the slot is lost: descriptors and records in
// it are never used for anything else while the device may still write to them. When several slots
// are lost and nothing comes back in between, the queue is given up: it takes no more requests
// until an answer shows that it lives: a late one, or that of a no-op, which submissions that are
// refused send now and then (probe()).
#pragma once

#include <chrono>
#include <memory>
#include <span>

#include "headrace/base/mutex.hpp"
#include "headrace/dsa/portal.hpp"
#include "headrace/engine/engine.hpp"
#include "headrace/engine/mover.hpp"
#include "slot_words.hpp"

namespace headrace::engine {

struct DsaQueueOptions {
  /// What is known besides the portal's own info: the node, and how the portal is reached.
  std::optional<NodeId> node = std::nullopt;
  std::string note = {};
  std::uint32_t queue_rank = 0;  ///< As in MoverInfo.
  bool emulated = false;         ///< As well.
  DeviceOptions device = {};
  /// False where a batch cannot be submitted: by write() to devices of version 1.
  bool batches = true;
};

/// Threading: shared.
class DsaQueue final : public Mover {
 public:
  /// Fails: invalid_argument for a queue without entries.
  [[nodiscard]] static Result<std::unique_ptr<DsaQueue>> make(std::unique_ptr<dsa::Portal> portal,
                                                              const DsaQueueOptions& options);
  /// As above, with a portal that is the caller's and outlives the mover.
  [[nodiscard]] static Result<std::unique_ptr<DsaQueue>> make(dsa::Portal& portal,
                                                              const DsaQueueOptions& options);
  ~DsaQueue() override;

  [[nodiscard]] const MoverInfo& info() const override { return info_; }
  [[nodiscard]] Submit post(Request& request) noexcept override;
  void reap() noexcept override;
  void reap(const Request& request) noexcept override;
  [[nodiscard]] bool rest(const Request& request) noexcept override;
  [[nodiscard]] std::size_t load() const noexcept override { return words_.count(); }
  [[nodiscard]] DeviceStatistics statistics() const noexcept override;
  void stop() noexcept override;

  /// True if no slot is left to jobs until the device answers what it has not.
  [[nodiscard]] bool is_all_lost() const noexcept { return words_.is_all_lost(); }

 private:
  friend class ChannelState;
  struct Slot;
  enum class Next : std::uint8_t { posted, ended };
  /// A batch of more gains nothing (docs/concepts/engine.md), and each slot has room for one.
  static constexpr std::size_t kBatchMax = 64;
  /// Page faults of one piece without progress, and aborted submissions of it, before a processor
  /// takes over.
  static constexpr std::uint8_t kTriesMax = 8;
  /// Stripes of one request: two for each engine of a device.
  static constexpr std::size_t kStripeMax = 8;

  DsaQueue(dsa::Portal& portal, const DsaQueueOptions& options);

  // Slots.
  [[nodiscard, gnu::always_inline]] inline bool claim(SlotWords& words, std::uint32_t index,
                                                      const Slot& slot,
                                                      std::uint8_t& status) const noexcept;
  [[gnu::always_inline]] inline void look_at(std::uint32_t index) noexcept;
  void take(std::uint32_t index, std::uint8_t status) noexcept;
  void post_or_end(std::uint32_t index, Next next) noexcept;
  [[nodiscard]] bool is_due(const Slot& slot, std::uint64_t now) const noexcept;
  [[nodiscard]] Submit post_stripes(Request& request, std::uint32_t first) noexcept;
  void end_stripe(std::uint32_t index) noexcept;
  /// The device may still write to the slot.
  void lose(std::uint32_t index) noexcept;
  void probe(bool has_room = false) noexcept;
  static void keep_for_ever(std::unique_ptr<Slot[]> slots) noexcept;

  // What is in a slot. The caller owns it; `ended`: the stripe, or what was done alone of a batch.
  static void begin_stripe(Slot& slot, Request& request, std::size_t begin,
                           std::size_t end) noexcept;
  static void begin_operation(Slot& slot, const Operation& operation, std::size_t begin,
                              std::size_t end) noexcept;
  [[nodiscard]] bool issue_first(Slot& slot, Next& next) noexcept;
  [[nodiscard]] Next issue(Slot& slot) noexcept;
  [[nodiscard]] bool send(Slot& slot) noexcept;
  void write_any(const Operation& operation, std::uint32_t flags, dsa::Descriptor& descriptor,
                 dsa::CompletionRecord& record) const noexcept;
  [[gnu::noinline]] void prepare_copy(Slot& slot, std::uint32_t hint) noexcept;
  [[gnu::always_inline, nodiscard]] inline bool hand_over(Slot& slot) noexcept;
  [[nodiscard]] static bool rest_at(const dsa::CompletionRecord& record) noexcept;
  [[nodiscard]] Next take_record(Slot& slot) noexcept;
  [[nodiscard]] Next take_piece(Slot& slot, std::uint8_t status) noexcept;
  [[nodiscard]] Next resolve_fault(Slot& slot, const Completion& piece) noexcept;
  [[nodiscard]] Next finish_on_cpu(Slot& slot) noexcept;
  [[nodiscard]] Next carry_on(Slot& slot) noexcept;
  void give_up(Slot& slot) noexcept;
  static void settle(const Slot& slot) noexcept;

  // What the queue may do.
  [[nodiscard]] bool is_beyond(const Operation& operation) const noexcept;
  [[nodiscard]] std::size_t piece_bytes(std::size_t cut) const noexcept;
  void note_error(const Operation& operation, std::uint8_t status) noexcept;
  void refuse_kind(OperationKind kind) noexcept;
  [[nodiscard]] Submit refuse() const noexcept;

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
    retries_.fetch_add_relaxed(1);  // A count.
    // Hints. A queue that was not asked for so long may have had room meanwhile: one that is full
    // now and then is healthy.
    const std::uint64_t last = refused_ticks_.load_relaxed();
    const bool in_a_row = now - last <= answer_ticks_ || last > now;
    if (refusing_ticks_.load_relaxed() == 0 || !in_a_row) refusing_ticks_.store_relaxed(now);
    refused_ticks_.store_relaxed(now);
  }

  // Batches.
  [[nodiscard]] Next issue_list(Slot& slot) noexcept;
  template <bool kValid>
  [[gnu::noinline, nodiscard]] std::size_t write_copies(Slot& slot,
                                                        std::span<const Operation> operations,
                                                        std::size_t& byte_count) noexcept;
  [[gnu::noinline]] void prepare_list(Slot& slot, std::size_t count) const noexcept;
  void write_list(Slot& slot, std::size_t count) noexcept;
  [[nodiscard]] bool write_batch(Slot& slot) noexcept;
  [[nodiscard]] Next take_list(Slot& slot, std::uint8_t status) noexcept;
  void take_answers(Slot& slot, bool again, std::size_t doubtful_from) noexcept;
  [[nodiscard]] bool may_be_cured(const Operation& operation,
                                  const dsa::CompletionRecord& record) const noexcept;
  void finish_unanswered(Slot& slot) noexcept;
  void do_in_batch(Slot& slot, std::size_t index) noexcept;
  static void end_operation(Slot& slot) noexcept;
  static void break_fence(Slot& slot, std::size_t failed) noexcept;
  static void note_done(Slot& slot, std::size_t index) noexcept;
  [[nodiscard]] static Next stop_list(Slot& slot) noexcept;

  std::unique_ptr<dsa::Portal> owned_;
  dsa::Portal& portal_;
  MoverInfo info_;
  const DeviceOptions device_;
  std::size_t piece_bytes_max_;
  std::size_t batch_max_;
  std::uint32_t slot_count_;
  std::uint32_t silent_max_;
  std::uint64_t answer_ticks_;
  std::uint32_t copy_flags_;
  std::uint32_t cache_flag_;  ///< Of what is wanted in the cache; 0: the device has no such flag.
  /// slot_count_ of them, and one more for probes, which no request gets.
  std::unique_ptr<Slot[]> slots_;

  alignas(64) SlotWords words_;
  /// Slots given up since the last answer.
  Atomic<std::uint32_t> silent_count_{0};
  /// Since when the queue has refused every descriptor, asked at least every answer_max; 0 if it
  /// took the last one.
  Atomic<std::uint64_t> refusing_ticks_{0};
  /// When it refused the last one.
  Atomic<std::uint64_t> refused_ticks_{0};
  /// A bit of each kind that the queue may not do, as far as that is known.
  Atomic<std::uint32_t> refused_kinds_{0};
  /// The longest copy that goes the short way of channels and batches: that of one descriptor, or 0
  /// if the queue refuses copies.
  Atomic<std::uint64_t> short_copy_bytes_max_;
  /// Of the slot for probes.
  SlotWords probe_words_{1};
  /// Stripes of requests that have several.
  Mutex stripes_mutex_;

  alignas(64) Atomic<std::uint64_t> descriptors_{0};
  Atomic<std::uint64_t> retries_{0};
  Atomic<std::uint64_t> page_faults_{0};
  Atomic<std::uint64_t> errors_{0};
  Atomic<std::uint64_t> lost_count_{0};
  Atomic<std::uint64_t> cpu_bytes_{0};
};

}  // namespace headrace::engine
