// SPDX-License-Identifier: Apache-2.0
// What an engine is inside: its movers, the gate that counts who needs them, the way a job goes
// from submission to its end. Not for: moving bytes (movers do that, but for what they refuse).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "coalescer.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/engine/engine.hpp"
#include "headrace/platform/fork.hpp"
#include "parking_lot.hpp"
#include "waiter.hpp"

namespace headrace::engine {

/// Threading: shared.
class EngineState {
 public:
  /// What the engine was told when it was made, besides its movers.
  struct Settings {
    MoverPolicy policy = {};
    Path path = Path::automatic;
    PathThresholds thresholds = {};
    std::vector<NodePackage> packages = {};
    std::vector<std::string> notes = {};
    CoalescingOptions coalescing = {};
    ThresholdSource threshold_source = ThresholdSource::published;
    std::optional<NodeId> (*node_of)(const void* address) = nullptr;
    bool check_memory = false;
    Waiting waiting = Waiting::adaptive;
  };
  EngineState(std::vector<std::unique_ptr<Mover>> movers, Settings settings);

  [[nodiscard]] Submit submit_copy(Job& job, const CopyPlan& plan, const SubmitOptions& options);
  [[nodiscard]] Submit submit(Job& job, const Operation& operation, const SubmitOptions& options);
  [[nodiscard]] Submit submit_batch(Job& job, const Batch& batch, const SubmitOptions& options);
  [[nodiscard]] Submit run(const Operation& operation, Completion& completion,
                           const SubmitOptions& options);
  void stop();
  void poll() noexcept;
  /// Polls what moves `job`, which runs or has just ended.
  void poll_for(const Job& job) noexcept;
  /// Begins the jobs that were held back and whose time has come, until movers are full.
  void begin_due() noexcept;
  /// Rests as Mover::rest. False if nobody can.
  [[nodiscard]] bool rest_for(const Job& job) noexcept;
  [[nodiscard]] std::span<const std::unique_ptr<Mover>> movers() const { return movers_; }
  [[nodiscard]] const PathThresholds& thresholds() const { return settings_.thresholds; }
  [[nodiscard]] ThresholdSource threshold_source() const { return settings_.threshold_source; }
  [[nodiscard]] const std::vector<std::string>& notes() const { return settings_.notes; }
  [[nodiscard]] Waiting waiting() const { return settings_.waiting; }
  [[nodiscard]] WaitHistory& wait_history() { return wait_history_; }
  [[nodiscard]] EngineStatistics statistics() const;
  [[nodiscard]] Result<Channel> open_channel(const ChannelOptions& options);
  /// `channel` is about to go; what it has counted stays.
  void forget_channel(const ChannelState& channel);
  /// Adds what channels have counted to the totals of movers(), one for each.
  void add_channels(std::vector<DeviceStatistics>& totals) const;
  void count_submitted() noexcept { jobs_submitted_.fetch_add_relaxed(1); }  // Of its own.
  void count(std::size_t kind_index, const Completion& completion,
             std::uint64_t begun_ticks) noexcept;
  /// Of what begun at `begun_ticks` and ends now, in OperationStatistics::latency_counts.
  [[nodiscard]] static std::size_t latency_class(std::uint64_t begun_ticks) noexcept;
  [[nodiscard]] bool is_closed() const noexcept {
    return (gate_.load_relaxed() & kClosed) != 0;  // A hint; enter() decides.
  }
  /// True in a child of the process that made the engine: nothing of it works there.
  [[nodiscard]] bool is_forked() const noexcept { return platform::fork_count() != fork_count_; }

  /// Takes away what a job or a call counts in the gate. The last touch of the engine.
  void leave(std::uint64_t count = 1) noexcept;

  static void end_share(Share& share, const ShareOutcome& outcome) noexcept;
  static void end_share_done_by_device(Share& share) noexcept;

 private:
  static constexpr std::uint64_t kClosed = std::uint64_t{1} << 63U;
  /// More than this nobody is kept waiting for in a submission: some microseconds.
  static constexpr std::size_t kAtOnceBytesMax = std::size_t{64} << 10U;
  class Presence;
  class Call;
  struct Before;

  /// Which movers may be chosen for a job, and how it is to be said if they are not what was asked.
  struct Choice {
    MoverChoice movers = {};  ///< Indexes into movers_; nobody: the calling thread.
    bool fell_back = false;
    bool refused = false;  ///< The policy chose nobody, or somebody who does not exist.
  };

  [[nodiscard]] bool enter(std::uint64_t count) noexcept;
  // The halves of count().
  void count_time(std::size_t kind_index, std::uint64_t begun_ticks) noexcept;
  void count_end(std::size_t kind_index, const Completion& completion) noexcept;
  /// Of run(): the operation has ended, on the calling thread.
  void count_run(std::size_t kind_index, const Completion& completion) noexcept;
  void run_timed(const Operation& operation, Completion& completion, bool fell_back);
  [[nodiscard]] Submit run_by_device(const Operation& operation, Completion& completion,
                                     const SubmitOptions& options);
  [[nodiscard]] Bytes threshold_of(const Operation& operation) const noexcept;
  /// Whether `automatic` does so little in the submission: to hand it to anybody else takes longer.
  [[nodiscard]] bool is_done_at_once(std::size_t byte_count, Bytes threshold,
                                     const SubmitOptions& options) const noexcept {
    return byte_count != 0 && byte_count < threshold.count() && byte_count <= kAtOnceBytesMax &&
           options.path.value_or(settings_.path) == Path::automatic &&
           !is_ending_one_done_at_once();
  }
  /// Whether this thread does, so that what is submitted comes from its callback or `then`.
  [[nodiscard]] static bool is_ending_one_done_at_once() noexcept;
  [[nodiscard]] Submit do_at_once(Job& job, const Operation& operation, const Batch& batch,
                                  const SubmitOptions& options) noexcept;
  /// Who does `operation`, if nobody has a wish and it is one mover: the way of most jobs.
  struct MoverFacts;
  [[nodiscard]] const MoverFacts* obvious_mover(const Operation& operation, std::size_t byte_count,
                                                const SubmitOptions& options) noexcept;
  [[nodiscard]] Submit start_one(Job& job, const Operation& operation,
                                 const SubmitOptions& options);
  /// Of a job whose device's queue is full: whether processors may do it without that being said.
  [[nodiscard]] bool may_turn_to_processors(const SubmitOptions& options) const noexcept;
  [[nodiscard]] Submit start_at(const MoverFacts& facts, Job& job, const Operation& operation,
                                const SubmitOptions& options);
  // Apart, so that the way of most jobs keeps few values.
  [[nodiscard, gnu::noinline]] Submit start_elsewhere(const MoverFacts& obvious, Submit answer,
                                                      Job& job, const Operation& operation,
                                                      const SubmitOptions& options);
  [[nodiscard]] Submit start_at_another(const MoverFacts& full, Job& job,
                                        const Operation& operation, const SubmitOptions& options);
  void prepare(Job& job, const Operation& operation, const SubmitOptions& options) const;
  [[nodiscard]] Submit start(Job& job, const Operation& operation, const Batch& batch,
                             std::size_t byte_count, const SubmitOptions& options);
  /// As start(), without a count of what is refused.
  [[nodiscard]] Submit try_start(Job& job, const Operation& operation, const Batch& batch,
                                 std::size_t byte_count, const SubmitOptions& options);
  /// From so many bytes on it is worth to ask where an operand lies, two times some microseconds:
  /// less than 1 % of what a device of 30 GB/s needs (docs/concepts/engine.md).
  static constexpr std::size_t kAskedForNodeBytesMin = std::size_t{16} << 20U;
  /// The node of the first byte; nothing if there is none, or it is not known.
  [[nodiscard]] std::optional<NodeId> node_of(std::span<const std::byte> bytes) const;
  // Jobs that come after others: dependencies.cpp.
  [[nodiscard]] Submit check(const Job& job, std::span<Job* const> after) const;
  /// As start(), of what names others.
  [[nodiscard]] Submit start_after(Job& job, const Operation& operation, const Batch& batch,
                                   std::size_t byte_count, const SubmitOptions& options);
  void prepare_held(Job& job, const Choice& choice, std::uint64_t turn,
                    const SubmitOptions& options);
  void hold_back(Job& job, std::span<Job* const> after) noexcept;
  /// Returns: false if its movers are full: nothing was started.
  [[nodiscard]] bool begin(Job& job) noexcept;
  void push_due(Job& job) noexcept;
  [[nodiscard]] Job* pop_due() noexcept;
  [[nodiscard]] Submit run_after(const Operation& operation, Completion& completion,
                                 const SubmitOptions& options);
  /// Whether a device is expected to be faster.
  [[nodiscard]] static bool prefers_hardware(Path asked, std::size_t byte_count, Bytes threshold) {
    return asked == Path::hardware || (asked == Path::automatic && byte_count >= threshold.count());
  }
  [[nodiscard]] Choice choose(const Job& job, std::size_t byte_count, const SubmitOptions& options,
                              std::uint64_t turn) const;
  [[nodiscard]] static bool can(const Mover& mover, const Job& job);
  void prepare_shares(Job& job, std::size_t byte_count, std::span<const std::uint32_t> chosen);
  /// Gives each share of `job` to one of `chosen`; the last one may end the job. Refuses only while
  /// nobody has taken anything.
  [[nodiscard]] Submit hand_out(Job& job, std::span<const std::uint32_t> chosen,
                                std::uint64_t turn);
  /// The totals, with what `channels` have counted.
  [[nodiscard]] EngineStatistics count_with(std::span<const ChannelState* const> channels) const;
  void move_here(Share& share) const noexcept;
  static void end_job(Job& job) noexcept;
  // Apart, so that jobs without do not pay for them.
  [[gnu::noinline]] static void call_back(const Job& job) noexcept;
  [[gnu::noinline]] static void call_then(const EngineState& engine,
                                          void (*then)(void* context) noexcept,
                                          void* context) noexcept;
  /// The end of end_job(), if somebody waits for `job`.
  void end_with_dependants(Job& job) noexcept;
  /// Of a job that nobody took: it is as it was before its submission.
  void take_back(Job& job, const Before& before, std::uint32_t word_before) noexcept;

  /// Processors first, then devices.
  std::vector<std::unique_ptr<Mover>> movers_;
  std::size_t software_count_ = 0;
  bool has_both_ = false;  ///< Processors and devices.
  Settings settings_;
  bool by_default_ = false;  ///< The policy of the settings is near_target.
  bool any_polled_ = false;  ///< A mover has no thread.
  /// What movers_ say of themselves, beside each other.
  struct MoverFacts {
    Mover* mover = nullptr;
    OperationSet operations;
    bool polled = false;
    Coalescer* coalescer = nullptr;  ///< Takes small jobs in its place; null: nobody does.
  };
  std::vector<MoverFacts> facts_;
  std::vector<std::unique_ptr<Coalescer>> coalescers_;
  std::uint32_t fork_count_ = 0;

  /// The number of those for whom the movers must live - calls of submit and run, jobs that run,
  /// or the last visitor of one that has ended - and, in the highest bit, whether the gate is
  /// closed. A job begins only if its submission came before the closing, so a closed gate with
  /// nobody inside stays so, but for calls that met the closing, add themselves and leave at once.
  alignas(64) Atomic<std::uint64_t> gate_{0};
  Atomic<std::uint64_t> sequence_{0};
  Atomic<std::uint64_t> jobs_submitted_{0};
  Atomic<std::uint64_t> submissions_refused_{0};
  /// Apart from the above: other threads write these.
  alignas(64) Atomic<std::uint64_t> jobs_failed_{0};
  Atomic<std::uint64_t> jobs_stopped_{0};
  Atomic<std::uint64_t> jobs_held_back_{0};
  WaitHistory wait_history_;
  struct alignas(64) KindCounts {
    Atomic<std::uint64_t> jobs_done{0};
    Atomic<std::uint64_t> runs_done{0};  ///< More of them, which are not in jobs_submitted_ either.
    Atomic<std::uint64_t> bytes{0};
    Atomic<std::uint64_t> bytes_by_device{0};
    Atomic<std::uint64_t> retries{0};
    Atomic<std::uint64_t> page_faults{0};
    Atomic<std::uint64_t> fallbacks{0};
    std::array<Atomic<std::uint64_t>, OperationStatistics::kLatencyClassCount> latencies;
  };
  std::array<KindCounts, kOperationKindCount + 1> kinds_;
  /// Jobs whose predecessors have ended and that have not begun, first in, first out. How many is a
  /// hint for those who look without the lock.
  Mutex due_mutex_;
  DependantLink* due_first_ HEADRACE_GUARDED_BY(due_mutex_) = nullptr;
  DependantLink* due_last_ HEADRACE_GUARDED_BY(due_mutex_) = nullptr;
  Atomic<std::uint32_t> due_count_{0};
  /// Held where a channel's counts become the engine's, so that none is missed or counted twice.
  mutable Mutex channels_mutex_;
  std::vector<const ChannelState*> channels_ HEADRACE_GUARDED_BY(channels_mutex_);
};

// Here, since a short run() is little more than these.

inline bool EngineState::enter(std::uint64_t count) noexcept {
  // Late callers must not keep the count of a closed gate from being 0.
  if (is_closed()) return false;
  // edge: engine-gate (acq_rel)
  if ((gate_.fetch_add_acq_rel(count) & kClosed) == 0) return true;
  leave(count);
  return false;
}

inline void EngineState::leave(std::uint64_t count) noexcept {
  const void* const address = &gate_;
  // The last touch of the engine, which stop() may give back to its owner at once.
  // edge: engine-gate (acq_rel)
  if (gate_.fetch_sub_acq_rel(count) == kClosed + count) detail::unpark_all(address);
}

}  // namespace headrace::engine
