// SPDX-License-Identifier: Apache-2.0
// The mover of one DSA work queue: submits descriptors through a portal and polls completion
// records. It has no thread. open.hpp finds queues.
//
// Progress: lock-free for requests of one stripe: those that fit one descriptor or carry a running
// value. Each stripe of a larger request takes a mutex once, when it completes.
//
// Agents: submitters and pollers, any number of threads; the device, which reads a slot's
// descriptors at submission and writes its records.
//
// Slots. A slot holds one descriptor or batch in flight with its completion record. Two bits,
// `busy` and `posted` (slot_words.hpp), define its owner: one thread at a time owns all of it.
//
// Timeouts. If the device does not answer in time, the polling thread completes the request (a
// batch as far as late writes of the device do no harm), and the slot is lost: its descriptors and
// records are not reused while the device may still write to them. After several lost slots without
// an answer in between the queue is *silent*: it refuses requests until the device answers a lost
// slot, or a no-op that refused submissions send from time to time (probe()).
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
  /// The NUMA node of the device, if known.
  std::optional<NodeId> node = std::nullopt;
  std::string note = {};
  std::uint32_t queue_rank = 0;  ///< As in MoverInfo.
  bool emulated = false;         ///< As in MoverInfo.
  DeviceOptions device = {};
  /// False if batches cannot be submitted: through write() to devices of version 1.
  bool batches = true;
};

/// Threading: shared.
class DsaQueue final : public Mover {
 public:
  /// Fails: invalid_argument for a queue without entries.
  [[nodiscard]] static Result<std::unique_ptr<DsaQueue>> make(std::unique_ptr<dsa::Portal> portal,
                                                              const DsaQueueOptions& options);
  /// As above; the caller keeps the portal, which must outlive the mover.
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

  /// True if jobs cannot get a slot until the device answers a lost one.
  [[nodiscard]] bool is_all_lost() const noexcept { return words_.is_all_lost(); }

 private:
  friend class ChannelState;
  struct Slot;
  enum class Next : std::uint8_t { posted, ended };
  /// Operations of one device batch; larger ones gain nothing (docs/concepts/engine.md), and each
  /// slot reserves memory for one.
  static constexpr std::size_t kBatchMax = 64;
  /// Attempts without progress, after page faults or aborts, before a processor takes over.
  static constexpr std::uint8_t kTriesMax = 8;
  /// Maximum stripes of one request: two for each engine of a device.
  static constexpr std::size_t kStripeMax = 8;

  DsaQueue(dsa::Portal& portal, const DsaQueueOptions& options);

  // Slots.
  /// SlotWords::reserve.
  [[nodiscard]] std::uint64_t reserve(std::size_t count) noexcept {
    const Lock lock(reserve_mutex_);
    return words_.reserve(count);
  }
  [[nodiscard, gnu::always_inline]] inline bool claim(SlotWords& words, std::uint32_t index,
                                                      const Slot& slot,
                                                      std::uint8_t& status) const noexcept;
  [[gnu::always_inline]] inline void look_at(std::uint32_t index) noexcept;
  void take(std::uint32_t index, std::uint8_t status) noexcept;
  void post_or_end(std::uint32_t index, Next next) noexcept;
  [[nodiscard]] bool is_due(const Slot& slot, std::uint64_t now) const noexcept;
  [[nodiscard]] Submit post_stripes(Request& request, std::uint32_t first) noexcept;
  void end_stripe(std::uint32_t index) noexcept;
  /// Retires a slot to which the device may still write.
  void lose(std::uint32_t index) noexcept;
  void probe(bool has_room = false) noexcept;
  static void keep_for_ever(std::unique_ptr<Slot[]> slots) noexcept;

  // Contents of a slot, owned by the caller. `ended`: the stripe, or the single operation of a
  // batch, has completed.
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
  [[gnu::always_inline, nodiscard]] inline bool submit_slot(Slot& slot) noexcept;
  [[nodiscard]] static bool rest_at(const dsa::CompletionRecord& record) noexcept;
  [[nodiscard]] Next take_record(Slot& slot) noexcept;
  [[nodiscard]] Next take_piece(Slot& slot, std::uint8_t status) noexcept;
  [[nodiscard]] Next resolve_fault(Slot& slot, const Completion& piece) noexcept;
  [[nodiscard]] Next finish_on_cpu(Slot& slot) noexcept;
  [[nodiscard]] Next retry(Slot& slot) noexcept;
  void give_up(Slot& slot) noexcept;
  [[nodiscard]] static Completion read_record(const Operation& operation, std::size_t at,
                                              std::size_t byte_count,
                                              const dsa::CompletionRecord& record) noexcept;

  // Supported operations.
  [[nodiscard]] bool is_unsupported(const Operation& operation) const noexcept;
  [[nodiscard]] std::size_t piece_bytes(std::size_t cut) const noexcept;
  void note_error(const Operation& operation, std::uint8_t status) noexcept;
  void refuse_kind(OperationKind kind) noexcept;
  [[nodiscard]] Submit refuse() const noexcept;

  // State of the device.
  /// The device has not answered for too long; nothing more is submitted.
  [[nodiscard, gnu::always_inline]] bool is_silent() const noexcept {
    return silent_count_.load_relaxed() >= silent_max_;  // A count.
  }
  [[gnu::always_inline]] void note_answer() noexcept {
    if (silent_count_.load_relaxed() != 0) silent_count_.store_relaxed(0);  // As above.
  }
  [[gnu::always_inline]] void note_taken() noexcept {
    if (refusing_ticks_.load_relaxed() != 0) refusing_ticks_.store_relaxed(0);  // A hint.
  }
  void note_refused(std::uint64_t now) noexcept {
    retries_.fetch_add_relaxed(1);  // A count.
    // Hints. Refusals count as consecutive only if less than the timeout apart: a queue that is
    // full from time to time is healthy.
    const std::uint64_t last = refused_ticks_.load_relaxed();
    const bool in_a_row = now - last <= timeout_ticks_ || last > now;
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
  std::uint64_t timeout_ticks_;
  std::uint32_t copy_flags_;
  std::uint32_t cache_flag_;  ///< Flag of a copy into the cache; 0: the device has none.
  /// slot_count_ slots, and one more for probes.
  std::unique_ptr<Slot[]> slots_;

  alignas(64) SlotWords words_;
  /// Slots lost since the last answer.
  Atomic<std::uint32_t> silent_count_{0};
  /// Time of the first of consecutive refusals; 0 if the queue accepted the last descriptor.
  Atomic<std::uint64_t> refusing_ticks_{0};
  /// Time of the last refusal.
  Atomic<std::uint64_t> refused_ticks_{0};
  /// Bits of the kinds that the device is known to refuse.
  Atomic<std::uint32_t> refused_kinds_{0};
  /// Longest copy that fits one descriptor, for the fast paths of channels and batches; 0 if the
  /// device refuses copies.
  Atomic<std::uint64_t> short_copy_bytes_max_;
  /// State of the slot for probes.
  SlotWords probe_words_{1};
  /// Guards the outcome of requests with several stripes.
  Mutex stripes_mutex_;
  /// Channels are opened one after the other.
  Mutex reserve_mutex_;

  alignas(64) Atomic<std::uint64_t> retries_{0};
  Atomic<std::uint64_t> page_faults_{0};
  Atomic<std::uint64_t> errors_{0};
  Atomic<std::uint64_t> lost_count_{0};
  Atomic<std::uint64_t> cpu_bytes_{0};
};

}  // namespace headrace::engine
