// SPDX-License-Identifier: Apache-2.0
// What an engine is inside: its movers, the gate that counts who needs them, the way of a job from
// submission to its end. docs/internals/engine.md has a drawing. Not for: moving bytes (movers do
// that, but for what they refuse).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "headrace/base/mutex.hpp"
#include "headrace/engine/route.hpp"
#include "headrace/platform/fork.hpp"
#include "parking_lot.hpp"
#include "parts.hpp"
#include "statistics.hpp"
#include "waiter.hpp"

namespace headrace::engine {

class ChannelState;

namespace detail {
inline constexpr Batch kNoBatch;
}  // namespace detail

/// Threading: shared.
class EngineState {
 public:
  /// The options of the engine, besides its movers.
  struct Settings {
    MoverPolicy policy = {};
    Path path = Path::automatic;
    PathThresholds thresholds = {};
    std::vector<NodePackage> packages = {};
    std::vector<std::string> notes = {};
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
  /// Rests as Mover::rest. False if no mover can.
  [[nodiscard]] bool rest_for(const Job& job) noexcept;

  [[nodiscard]] std::span<const std::unique_ptr<Mover>> movers() const { return movers_; }
  [[nodiscard]] std::span<const MoverInfo> infos() const { return infos_; }
  [[nodiscard]] const Settings& settings() const { return settings_; }
  [[nodiscard]] WaitHistory& wait_history() { return wait_history_; }
  [[nodiscard]] Statistics& statistics() { return statistics_; }
  /// The totals, with those of channels.
  [[nodiscard]] EngineStatistics totals() const;

  [[nodiscard]] Result<Channel> open_channel(const ChannelOptions& options);
  /// `channel` is about to go; what it has counted stays.
  void forget_channel(const ChannelState& channel);
  /// Adds what channels have counted to the totals of movers(), one for each.
  void add_channels(std::vector<DeviceStatistics>& totals) const;

  [[nodiscard]] bool is_closed() const noexcept {
    return (gate_.load_relaxed() & kClosed) != 0;  // A hint; enter() decides.
  }
  /// True in a child of the process that made the engine: nothing of it works there.
  [[nodiscard]] bool is_forked() const noexcept { return platform::fork_count() != fork_count_; }
  /// Takes away what a job or a call counts in the gate. The last touch of the engine.
  void leave() noexcept;

 private:
  static constexpr std::uint64_t kClosed = std::uint64_t{1} << 63U;
  /// From so many bytes on the engine asks where an operand lies, twice some microseconds: less
  /// than 1 % of what a device of 30 GB/s needs (docs/concepts/engine.md).
  static constexpr std::size_t kAskedForNodeBytesMin = std::size_t{16} << 20U;
  class Call;
  struct Before;

  /// What is submitted: one operation, or a batch.
  struct Work {
    const Operation& operation;
    const Batch& batch;
    Workload load;
  };

  [[nodiscard]] bool enter() noexcept;
  [[nodiscard]] inline Work work_of(const Operation& operation) const noexcept;
  /// The way of every job: route, issue. `counts_refusal`: in the statistics.
  [[nodiscard]] Submit start(Job& job, Work&& work, const SubmitOptions& options,
                             bool counts_refusal = true);
  void find_nodes(const Operation& operation, const SubmitOptions& options, Workload& work) const;
  [[gnu::always_inline]] inline void prepare(Job& job, const Work& work,
                                             const SubmitOptions& options,
                                             const Route& route) const;
  void split(Job& job, std::size_t mover_count) noexcept;
  /// Gives `job`, which runs, to the movers of `route`; the last of them may end it. Refuses only
  /// while no mover has anything of it.
  [[nodiscard]] Submit issue(Job& job, const Route& route, std::uint64_t turn) noexcept;
  // Apart, so that the way of most jobs keeps few values.
  [[nodiscard, gnu::noinline]] Submit issue_elsewhere(Job& job, const Route& route, Submit answer,
                                                      std::uint64_t turn) noexcept;
  void issue_parts(Job& job, std::span<const std::uint32_t> chosen, std::uint64_t turn) noexcept;
  [[nodiscard]] Submit post(Request& request, std::uint32_t mover_index) noexcept;
  /// post() to `chosen` in turn, `turn` first. `full` if any of those that refused was.
  [[nodiscard]] Submit post_to_any(Request& request, std::span<const std::uint32_t> chosen,
                                   std::uint64_t turn) noexcept;
  void carry_out_here(Request& request) const noexcept;
  [[nodiscard]] Workload workload_of(const Job& job) const noexcept;
  static void end_job(Request& request) noexcept;
  static void end_part(Request& request) noexcept;
  // Apart, so that jobs without do not pay for them.
  [[gnu::noinline]] static void call_back(const Job& job) noexcept;
  [[gnu::noinline]] static void call_then(const EngineState& engine,
                                          void (*then)(void* context) noexcept,
                                          void* context) noexcept;
  [[gnu::noinline]] void take_back(Job& job, const Before& before,
                                   std::uint32_t word_before) noexcept;

  // run.cpp
  void run_timed(const Operation& operation, Completion& completion, bool fell_back);
  [[nodiscard]] Submit run_by_device(const Operation& operation, Completion& completion,
                                     const SubmitOptions& options);
  [[nodiscard]] Submit run_after(const Operation& operation, Completion& completion,
                                 const SubmitOptions& options);

  // Jobs that come after others: graph.cpp.
  [[nodiscard]] Submit check(const Job& job, std::span<Job* const> after) const;
  void hold_back(Job& job, const Route& route, std::uint64_t turn,
                 std::span<Job* const> after) noexcept;
  /// The end of end_job(), if another job waits for `job`.
  void end_with_dependants(Job& job) noexcept;
  /// Returns: false if its movers are full: nothing was started.
  [[nodiscard]] bool begin(Job& job) noexcept;
  void push_due(Job& job) noexcept;
  [[nodiscard]] Job* pop_due() noexcept;

  /// Processors first, then devices.
  std::vector<std::unique_ptr<Mover>> movers_;
  std::vector<MoverInfo> infos_;
  Settings settings_;
  RouteFacts facts_;
  bool any_polled_ = false;  ///< A mover has no thread.
  PartPool parts_;
  std::uint32_t fork_count_ = 0;

  /// The number of those for whom the movers must live - calls of submit and run, jobs that run,
  /// or the last visitor of one that has ended - and, in the highest bit, whether the gate is
  /// closed. A job begins only if its submission came before the closing, so a closed gate with
  /// no count stays so, but for calls that met the closing, add themselves and leave at once.
  alignas(64) Atomic<std::uint64_t> gate_{0};
  Atomic<std::uint64_t> sequence_{0};
  Statistics statistics_;
  WaitHistory wait_history_;
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

inline EngineState::Work EngineState::work_of(const Operation& operation) const noexcept {
  return {operation,
          detail::kNoBatch,
          {.kind = operation.kind(), .byte_count = operation.byte_count()}};
}

inline bool EngineState::enter() noexcept {
  // Late callers must not keep the count of a closed gate from being 0.
  if (is_closed()) return false;
  // edge: engine-gate (acq_rel)
  if ((gate_.fetch_add_acq_rel(1) & kClosed) == 0) return true;
  leave();
  return false;
}

inline void EngineState::leave() noexcept {
  const void* const address = &gate_;
  // The last touch of the engine, which stop() may give back to its owner at once.
  // edge: engine-gate (acq_rel)
  if (gate_.fetch_sub_acq_rel(1) == kClosed + 1) detail::unpark_all(address);
}

}  // namespace headrace::engine
