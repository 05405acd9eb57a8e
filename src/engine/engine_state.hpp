// SPDX-License-Identifier: Apache-2.0
// What an engine is inside: its movers, the gate that counts their users, the way of a job from
// submission to its end. docs/internals/engine.md has a drawing. Not for: moving bytes (movers do
// that, but for what they refuse).
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "headrace/base/mutex.hpp"
#include "headrace/engine/route.hpp"
#include "headrace/platform/fork.hpp"
#include "headrace/platform/futex.hpp"
#include "headrace/telemetry/telemetry.hpp"
#include "parts.hpp"
#include "statistics.hpp"
#include "waiter.hpp"

namespace headrace::engine {

class DsaQueue;

/// Threading: shared.
class EngineState final : public Engine {
 public:
  /// The options of the engine, besides its movers. Those that a caller with movers does not say
  /// are as here.
  struct Settings : EngineSettings {
    MoverPolicy policy = {};
    Path path = Path::automatic;
    std::vector<NodePackage> packages = {};
    std::vector<std::string> notes = {};
    ThresholdSource threshold_source = ThresholdSource::caller;
  };
  EngineState(std::vector<std::unique_ptr<Mover>> movers, Settings settings);

  ~EngineState() override;

  [[nodiscard]] Submit submit_copy(Job& job, const CopyPlan& plan,
                                   const SubmitOptions& options) override;
  [[nodiscard]] Submit submit(Job& job, const Operation& operation,
                              const SubmitOptions& options) override;
  [[nodiscard]] Submit submit_batch(Job& job, const Batch& batch,
                                    const SubmitOptions& options) override;
  [[nodiscard]] Submit run(const Operation& operation, Completion& completion,
                           const SubmitOptions& options) override;
  [[nodiscard]] Result<std::unique_ptr<Channel>> open_channel(
      const ChannelOptions& options) override;
  void stop() override;
  void poll() noexcept override;
  [[nodiscard]] const std::vector<MoverInfo>& movers() const noexcept override { return infos_; }
  [[nodiscard]] PathThresholds thresholds() const override { return settings_.thresholds; }
  [[nodiscard]] ThresholdSource threshold_source() const override {
    return settings_.threshold_source;
  }
  [[nodiscard]] bool has_policy() const override { return static_cast<bool>(settings_.policy); }
  [[nodiscard]] Waiting waiting() const override { return settings_.waiting; }
  [[nodiscard]] const std::vector<std::string>& notes() const override { return settings_.notes; }
  [[nodiscard]] EngineStatistics statistics() const override;
  [[nodiscard]] std::vector<DeviceStatistics> device_statistics() const override;

  /// Polls what moves `job`, which runs or has just ended.
  void poll_for(const Job& job) noexcept {
    if (job.held_back_ || job.part_count_ != 1) [[unlikely]]
      return poll_all_of(job);
    // Relaxed: a hint; a mover that is seen too early has nothing of the job yet.
    if (Mover* const mover = job.mover_.load_relaxed()) mover->reap(job);
  }
  /// Begins the jobs that were held back and whose time has come, until movers are full.
  void begin_due() noexcept;
  /// Rests as Mover::rest. False if no mover can.
  [[nodiscard]] bool rest_for(const Job& job) noexcept;

  [[nodiscard]] WaitHistory& wait_history() { return wait_history_; }
  [[nodiscard]] Statistics& counts() { return statistics_; }

  /// Where a channel of `queue` counts, until end_channel().
  [[nodiscard]] ChannelCounts& begin_channel(const DsaQueue& queue);
  void end_channel(ChannelCounts& counts) noexcept;
  [[nodiscard]] bool is_closed() const noexcept {
    return (gate_.load_relaxed() & kClosed) != 0;  // A hint; enter() decides.
  }
  /// True in a child of the process that made the engine: nothing of it works there.
  [[nodiscard]] bool is_forked() const noexcept { return platform::fork_count() != fork_count_; }
  /// Takes away what a job or a call counts in the gate. The last touch of the engine.
  void leave() noexcept;

 private:
  static constexpr std::uint32_t kClosed = 1U << 31U;
  /// From so many bytes on the engine asks where an operand lies, twice some microseconds: less
  /// than 1 % of what a device of 30 GB/s needs (docs/concepts/engine.md).
  static constexpr std::size_t kAskedForNodeBytesMin = std::size_t{16} << 20U;
  struct Before;

  /// Lets `headrace top` see what statistics() and device_statistics() say, if the process
  /// publishes anything.
  void publish_statistics();
  [[nodiscard]] bool enter() noexcept;
  [[gnu::noinline]] void poll_all_of(const Job& job) noexcept;
  /// The way of every job: route, issue.
  template <typename Assign>
  [[gnu::always_inline, nodiscard]] inline Submit start(Job& job, const Assign& assign,
                                                        Workload work,
                                                        const SubmitOptions& options);
  [[nodiscard, gnu::noinline]] Submit submit_odd_copy(Job& job, const CopyPlan& plan,
                                                      const SubmitOptions& options);
  /// As start(), of a valid operation.
  [[nodiscard]] Submit start_one(Job& job, const Operation& operation,
                                 const SubmitOptions& options);
  [[nodiscard, gnu::noinline]] SubmitOptions with_nodes(const Operation& operation,
                                                        const SubmitOptions& options) const;
  /// `answer`, counted if it is a refusal. Not by start(): run() asks again and again.
  Submit note_refusal(Submit answer) noexcept {
    if (answer == Submit::full || answer == Submit::closed) [[unlikely]]
      statistics_.count_refused();
    return answer;
  }
  /// Whether a thread that waits for a job of `route` has to poll.
  [[nodiscard]] bool polls(const Route& route) const noexcept {
    const std::span<const std::uint32_t> chosen = route.movers.chosen();
    if (chosen.size() != 1) {
      return std::ranges::any_of(chosen, [this](auto index) { return infos_[index].polled; });
    }
    return infos_[chosen[0]].polled ||
           (route.any && any_polled_ && chosen[0] >= facts_.processor_count);
  }
  [[gnu::noinline]] void split(Job& job) noexcept;
  /// Gives `job`, which runs, to the movers of its route; the last of them may end it. Refuses only
  /// while no mover has anything of it.
  [[nodiscard]] Submit issue(Job& job) noexcept;
  // Apart, so that the way of most jobs keeps few values.
  [[nodiscard, gnu::noinline]] Submit issue_elsewhere(Job& job, Submit answer) noexcept;
  [[gnu::noinline]] void issue_parts(Job& job) noexcept;
  [[nodiscard]] Submit post(Request& request, std::uint32_t mover_index) noexcept;
  void carry_out_here(Request& request) const noexcept;
  [[nodiscard]] Workload workload_of(const Job& job) const noexcept;
  static void end_job(Request& request, bool plain) noexcept;
  [[gnu::always_inline]] static inline void finish(Job& job, bool plain) noexcept;
  [[gnu::noinline]] static void end_and_call(Job& job) noexcept;
  static void end_part(Request& request, bool plain) noexcept;
  // Apart, so that jobs without do not pay for them.
  [[gnu::noinline]] void end_inline(Job& job) noexcept;
  [[gnu::noinline]] void take_back(Job& job, const Before& before,
                                   std::uint32_t word_before) noexcept;

  // run.cpp
  void run_timed(const Operation& operation, Completion& completion);
  [[nodiscard]] Submit run_by_device(const Operation& operation, Completion& completion,
                                     const SubmitOptions& options);
  [[nodiscard]] Submit run_after(const Operation& operation, Completion& completion,
                                 const SubmitOptions& options);

  // Jobs that come after others: graph.cpp.
  /// `deferred`: set if one of `after` is not done, so that the job is held back.
  [[nodiscard]] Submit check(const Job& job, std::span<Job* const> after, bool& deferred) const;
  void hold_back(Job& job, std::span<Job* const> after) noexcept;
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
  alignas(64) Atomic<std::uint32_t> gate_{0};
  Atomic<std::uint64_t> sequence_{0};
  Statistics statistics_;
  WaitHistory wait_history_;
  /// Jobs whose predecessors have ended and that have not begun, first in, first out. How many is a
  /// hint for those who look without the lock.
  Mutex due_mutex_;
  DependantLink* due_first_ HEADRACE_GUARDED_BY(due_mutex_) = nullptr;
  DependantLink* due_last_ HEADRACE_GUARDED_BY(due_mutex_) = nullptr;
  Atomic<std::uint32_t> due_count_{0};
  /// Of the list, not of the counts: those have one writer each, the channel. The next channel of a
  /// queue goes on with what one that is gone has counted.
  mutable Mutex channels_mutex_;
  std::list<ChannelCounts> channel_counts_ HEADRACE_GUARDED_BY(channels_mutex_);
  std::unique_ptr<telemetry::Source> telemetry_;  ///< Ends before all that it reads.
};

// Here, since a short run() and a job that is not split are little more than these.

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
  if (gate_.fetch_sub_acq_rel(1) == kClosed + 1) platform::wake_sleepers_at(address);
}

inline Submit EngineState::post(Request& request, std::uint32_t mover_index) noexcept {
  Mover& mover = *movers_[mover_index];
  request.mover_.store_relaxed(&mover);  // A hint for pollers.
  return mover.post(request);
}

inline Submit EngineState::issue(Job& job) noexcept {
  const std::span<const std::uint32_t> chosen = job.route_.movers.chosen();
  // Turns, so that small jobs do not all go to the mover that was chosen first.
  const std::uint32_t first = chosen.size() == 1 ? chosen[0] : chosen[job.turn_ % chosen.size()];
  const bool whole = job.part_count_ == 1;
  const Submit answer = post(whole ? static_cast<Request&>(job) : job.parts_->parts[0], first);
  if (answer != Submit::accepted) [[unlikely]]
    return issue_elsewhere(job, answer);
  if (!whole) issue_parts(job);
  return answer;
}

}  // namespace headrace::engine
