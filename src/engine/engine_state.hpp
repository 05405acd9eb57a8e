// SPDX-License-Identifier: Apache-2.0
// The implementation of Engine: its movers, the gate that counts their users, and a job's path from
// submission to completion (drawing: docs/internals/engine.md). Movers do the copying, except for
// what they refuse.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "gate.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/engine/route.hpp"
#include "headrace/platform/per_thread.hpp"
#include "headrace/platform/process.hpp"
#include "headrace/platform/wait.hpp"
#include "headrace/telemetry/telemetry.hpp"
#include "job_fields.hpp"
#include "parts.hpp"
#include "statistics.hpp"
#include "waiter.hpp"

namespace headrace::engine {

class DsaQueue;
class EngineState;

/// A frame of this thread's stack in which it works for an engine, in a list of such frames.
///
/// Threading: owned.
class Frame {
 public:
  /// Only the address of `engine` is used: it may be destroyed before the frame ends.
  /// `job`: trace::id_of() the job whose function is called, 0 if none is. `runs`: while it runs.
  Frame(const Frame*& innermost, const EngineState& engine, std::uint64_t job = 0,
        bool runs = false)
      : innermost_(innermost),
        outer_(std::exchange(innermost, this)),
        engine_(&engine),
        job_(job),
        runs_(runs) {}
  Frame& operator=(Frame&&) = delete;
  ~Frame() { innermost_ = outer_; }
  [[nodiscard]] const Frame* outer() const { return outer_; }
  [[nodiscard]] std::uint64_t job() const { return job_; }
  /// Whether `frame` or one outside of it is of `engine`.
  [[nodiscard]] static bool any_of(const Frame* frame, const EngineState& engine) {
    while (frame != nullptr && frame->engine_ != &engine) frame = frame->outer_;
    return frame != nullptr;
  }
  /// As above, of a function that is called while its job runs.
  [[nodiscard]] static bool any_that_runs(const Frame* frame, const EngineState& engine) {
    while (frame != nullptr && !(frame->engine_ == &engine && frame->runs_)) frame = frame->outer_;
    return frame != nullptr;
  }

 private:
  const Frame*& innermost_;
  const Frame* const outer_;
  const EngineState* const engine_;
  const std::uint64_t job_;
  const bool runs_;
};

/// What one thread writes in an engine. A submission writes the first lines, an end the others too.
///
/// Threading: shared; written by its thread.
struct alignas(128) ThreadState {
  GateCounts gate;
  Statistics statistics;
  WaitHistory wait_history;
};

/// One for each thread with a number.
inline constinit std::array<Visitor, platform::kThreadNumberMax> visitors;

/// Threading: shared.
class EngineState final : public Engine {
 public:
  /// The engine's options. The defaults are those of an engine made from movers.
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

  /// Polls the mover of `job`, which is running or has just completed.
  void poll_for(const Job& job) noexcept {
    if (job.fields().held_back || job.fields().part_count != 1) [[unlikely]]
      return poll_all_of(job);
    // Relaxed: a hint; a mover that does not hold the job yet has nothing to reap.
    if (Mover* const mover = job.mover_.load_relaxed()) mover->reap(job);
  }
  /// Starts ready jobs until the movers are full.
  void begin_due() noexcept;
  /// Calls Mover::rest. Returns false if no mover can rest.
  [[nodiscard]] bool rest_for(const Job& job) noexcept;

  [[nodiscard]] WaitHistory& wait_history() {
    ThreadState* const mine = threads_.mine();
    return mine != nullptr ? mine->wait_history : shared_.wait_history;
  }
  /// Calls `use(statistics)` for those of the calling thread.
  template <typename Use>
  void count(const Use& use) noexcept {
    count(threads_.mine(), use);
  }
  /// As above, for a thread that has looked up its state.
  template <typename Use>
  void count(ThreadState* mine, const Use& use) noexcept {
    if (mine != nullptr) [[likely]]
      return use(mine->statistics);
    const Lock lock(shared_mutex_);
    use(shared_.statistics);
  }
  /// What a visitor of `engine`, of which only the address is used, notes. A child of fork() has
  /// copies of the visitors of threads that it does not have.
  [[nodiscard]] static std::uintptr_t key_of(const EngineState* engine, std::uint32_t fork_count) {
    return reinterpret_cast<std::uintptr_t>(engine) ^ (std::uintptr_t{fork_count} << 48U);
  }

  /// The counters of a channel of `queue` until end_channel().
  [[nodiscard]] ChannelCounts& begin_channel(const DsaQueue& queue);
  void end_channel(ChannelCounts& counts) noexcept;
  [[nodiscard]] bool is_closed() const noexcept {
    return gate_.is_closed();  // A hint; enter() decides.
  }
  /// True in a forked child of the process that made the engine; the engine cannot be used there.
  [[nodiscard]] bool is_forked() const noexcept { return platform::fork_count() != fork_count_; }
  /// Adds a count to the gate, in which the caller has one. Released by leave(Gate::kStaying).
  void stay() noexcept {
    ThreadState* const mine = threads_.mine();
    Gate::stay(mine != nullptr ? mine->gate : shared_.gate, mine != nullptr);
  }
  /// Releases one count of a set of the gate. The engine must not be accessed afterwards.
  void leave(std::uint64_t set) noexcept { leave(set, threads_.mine()); }
  /// As above, for a thread that has looked up its state.
  void leave(std::uint64_t set, ThreadState* mine) noexcept {
    // The last access: stop() may return, and the owner destroy the engine, immediately.
    Gate::leave(mine != nullptr ? mine->gate : shared_.gate, set, mine != nullptr);
  }

 private:
  /// From this size on the engine looks up the NUMA nodes of the operands. The two lookups take
  /// some microseconds, less than 1 % of the copy on a device of 30 GB/s (docs/concepts/engine.md).
  static constexpr std::size_t kAskedForNodeBytesMin = std::size_t{16} << 20U;
  struct Before;

  /// Publishes statistics() and device_statistics() for `headrace top` if telemetry is on.
  void publish_statistics();
  /// A number to take turns by, another one for the next submission of the thread. Threads begin
  /// with different ones.
  [[nodiscard]] static std::uint64_t turn_of(const ThreadState& mine) noexcept {
    return mine.statistics.submitted() + platform::thread_number();
  }
  /// Returns the set of the gate, or Gate::kClosed and more.
  [[nodiscard, gnu::always_inline]] std::uint64_t enter(ThreadState* mine) noexcept {
    return gate_.enter(mine != nullptr ? mine->gate : shared_.gate, mine != nullptr);
  }
  /// Calls `visit` for the state of each thread and the one that the others share.
  template <typename Visit>
  void for_each_thread(const Visit& visit) const {
    threads_.for_each(visit);
    visit(shared_);
  }
  /// Whether no user is in the sets of the gate from `first` to `last`.
  [[nodiscard]] bool is_empty(std::uint64_t first, std::uint64_t last) const noexcept;
  /// The word of a job that starts to run.
  [[nodiscard]] std::uint32_t running_word(const Job& job) const noexcept;
  [[gnu::noinline]] void poll_all_of(const Job& job) noexcept;
  /// Every job: route, then issue.
  template <typename Assign>
  [[gnu::always_inline, nodiscard]] inline Submit start(Job& job, const Assign& assign,
                                                        Workload work, const SubmitOptions& options,
                                                        ThreadState* mine, bool usual = false);
  [[nodiscard, gnu::noinline]] Submit submit_other_copy(Job& job, const CopyPlan& plan,
                                                        const SubmitOptions& options);
  [[gnu::noinline]] void record_job(std::uint64_t id, std::span<const Operation> operations,
                                    std::size_t byte_count, const SubmitOptions& options,
                                    std::uint64_t begun_ticks) const noexcept;
  /// start() for a validated operation.
  [[nodiscard]] Submit start_one(Job& job, const Operation& operation,
                                 const SubmitOptions& options);
  [[nodiscard, gnu::noinline]] Submit submit_drain(Job& job, const Operation& drain,
                                                   const SubmitOptions& options);
  [[nodiscard, gnu::noinline]] SubmitOptions with_nodes(const Operation& operation,
                                                        const SubmitOptions& options) const;
  /// Counts `answer` if it is a refusal and returns it. Not part of start(), which run() calls
  /// repeatedly.
  Submit note_refusal(Submit answer) noexcept {
    if (answer == Submit::full || answer == Submit::closed) [[unlikely]]
      count([](Statistics& mine) { mine.count_refused(); });
    return answer;
  }
  /// The usual copy: plain, by a device, without predecessors, with options that change neither its
  /// route nor its end.
  struct Usual {
    std::size_t bytes_min = ~std::size_t{0};
    std::uint32_t first = 0;  ///< The devices, as indexes of movers.
    std::uint32_t count = 0;
  };
  [[nodiscard]] Usual find_usual() const;
  [[nodiscard]] bool is_usual(std::size_t byte_count, const SubmitOptions& options) const noexcept {
    return byte_count >= usual_.bytes_min && !options.path && options.policy == nullptr &&
           !options.source_node && !options.target_node && options.callback == nullptr &&
           options.then == nullptr;
  }
  [[gnu::always_inline, nodiscard]] inline Submit start_usual(Job& job, const CopyPlan& plan,
                                                              ThreadState& mine);
  /// Whether a thread that waits for a job with `route` must poll.
  [[nodiscard]] bool polls(const Route& route) const noexcept {
    const std::span<const std::uint32_t> chosen = route.movers.chosen();
    if (chosen.size() != 1) {
      return std::ranges::any_of(chosen, [this](auto index) { return infos_[index].polled; });
    }
    return infos_[chosen[0]].polled ||
           (route.any && any_polled_ && chosen[0] >= facts_.processor_count);
  }
  [[gnu::noinline]] static std::uint32_t await_pins(const Job& job) noexcept;
  [[gnu::noinline]] void split(Job& job) noexcept;
  /// Posts the running `job` to the movers of its route, which may complete it. Refuses only if no
  /// mover has taken any part of it.
  [[nodiscard]] Submit issue(Job& job) noexcept;
  // Out of line to keep register pressure low for most jobs.
  [[nodiscard, gnu::noinline]] Submit issue_elsewhere(Job& job, Submit answer) noexcept;
  [[nodiscard]] bool offer_others(Request& request, const Job& job, std::size_t begin,
                                  std::size_t count, std::uint64_t turn, bool& full) noexcept;
  [[gnu::noinline]] void issue_parts(Job& job) noexcept;
  [[nodiscard]] Submit post(Request& request, std::uint32_t mover_index) noexcept;
  void carry_out_here(Request& request) const noexcept;
  [[nodiscard]] Workload workload_of(const Job& job) const noexcept;
  static void end_job(Request& request, bool plain) noexcept;
  static void end_usual(Request& request, bool plain) noexcept;
  [[gnu::always_inline]] static inline void finish(Job& job, bool plain) noexcept;
  [[gnu::always_inline]] static inline void end_counted(Job& job, EngineState& engine,
                                                        ThreadState* mine, JobState state) noexcept;
  [[gnu::noinline]] static void end_and_call(Job& job) noexcept;
  [[gnu::noinline]] static void end_plain(Job& job) noexcept;
  static void end_part(Request& request, bool plain) noexcept;
  // Out of line: rare.
  [[gnu::noinline]] void end_inline(Job& job) noexcept;
  [[gnu::noinline]] void take_back(Job& job, const Before& before,
                                   std::uint32_t word_before) noexcept;

  // run.cpp
  [[nodiscard, gnu::noinline]] Submit run_other(const Operation& operation, Completion& completion,
                                                const SubmitOptions& options);
  void run_timed(const Operation& operation, Completion& completion);
  [[nodiscard]] Submit run_by_device(const Operation& operation, Completion& completion,
                                     const SubmitOptions& options);
  [[nodiscard]] Submit run_after(const Operation& operation, Completion& completion,
                                 const SubmitOptions& options);

  // Jobs with predecessors: graph.cpp.
  /// Sets `deferred` if one of `after` is not done, so that the job is blocked.
  [[nodiscard]] Submit check(const Job& job, std::span<Job* const> after, bool& deferred) const;
  void hold_back(Job& job, std::span<Job* const> after) noexcept;
  /// Starts ready jobs, unless this thread is doing so already, which then finds them.
  void begin_due_once() noexcept;
  /// Completes a job that has dependants.
  void end_with_dependants(Job& job) noexcept;
  /// Returns: false if the movers are full; nothing was started.
  [[nodiscard]] bool begin(Job& job) noexcept;
  [[nodiscard]] static bool drains(const Job& job) {
    return job.operation_.kind() == OperationKind::drain;
  }
  void push_due(Job& job) noexcept;
  [[nodiscard]] Job* pop_due() noexcept;

  /// Processors first, then devices.
  std::vector<std::unique_ptr<Mover>> movers_;
  std::vector<MoverInfo> infos_;
  Settings settings_;
  RouteFacts facts_;
  Usual usual_;
  /// For is_run_by_device() where the work is known to be valid: without devices nothing is.
  PathThresholds run_thresholds_;
  bool any_polled_ = false;  ///< Some mover has no thread and must be polled.
  PartPool parts_;
  std::uint32_t fork_count_ = 0;

  /// The users of the movers: calls of submit and run, running jobs, and the last pin of a
  /// completed job. A job starts only if it was submitted before the gate closed.
  Gate gate_;
  platform::PerThread<ThreadState> threads_{gate_.is_unequal()};
  /// Of threads that have none of their own. Its statistics are written under the lock, its gate by
  /// atomic operations, because the engine may be gone once a user has left.
  ThreadState shared_;
  Mutex shared_mutex_;
  /// Ready jobs in FIFO order. The count is a hint for threads that do not hold the lock.
  Mutex due_mutex_;
  DependantLink* due_first_ HEADRACE_GUARDED_BY(due_mutex_) = nullptr;
  DependantLink* due_last_ HEADRACE_GUARDED_BY(due_mutex_) = nullptr;
  Atomic<std::uint32_t> due_count_{0};
  /// A drain runs; then the set of the gate that it waits for is its own.
  Atomic<bool> draining_{false};
  std::uint64_t drained_set_ = 0;
  /// Guards the list; each set of counts is written by one channel. A new channel of a queue
  /// continues the counts of a closed one.
  mutable Mutex channels_mutex_;
  std::list<ChannelCounts> channel_counts_ HEADRACE_GUARDED_BY(channels_mutex_);
  std::unique_ptr<telemetry::Source>
      telemetry_;  ///< Last: destroyed before the members that it reads.
};

// Inline: most of the cost of a short run() and of a job that is not split.

inline Submit EngineState::post(Request& request, std::uint32_t mover_index) noexcept {
  Mover& mover = *movers_[mover_index];
  request.mover_.store_relaxed(&mover);  // A hint for pollers.
  return mover.post(request);
}

inline Submit EngineState::issue(Job& job) noexcept {
  const std::span<const std::uint32_t> chosen = job.fields().route.movers.chosen();
  // Round robin, so that small jobs do not all go to the first chosen mover.
  const std::uint32_t first =
      chosen.size() == 1 ? chosen[0] : chosen[job.fields().turn % chosen.size()];
  const bool whole = job.fields().part_count == 1;
  const Submit answer =
      post(whole ? static_cast<Request&>(job) : job.fields().parts->parts[0], first);
  if (answer != Submit::accepted) [[unlikely]]
    return issue_elsewhere(job, answer);
  if (!whole) issue_parts(job);
  return answer;
}

}  // namespace headrace::engine
