// SPDX-License-Identifier: Apache-2.0
// Engine: executes operations on memory asynchronously. Submit a job; then poll it, wait for it, or
// get a callback.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/export.hpp"
#include "headrace/base/result.hpp"
#include "headrace/base/units.hpp"
#include "headrace/engine/channel.hpp"
#include "headrace/engine/job.hpp"
#include "headrace/engine/mover.hpp"
#include "headrace/topo/machine.hpp"

namespace headrace::engine {

/// What executes an operation.
enum class Path : std::uint8_t {
  automatic,  ///< A device where expected to be faster, else processors.
  dsa,        ///< A device that can execute it; if there is none, processors, with `fell_back`.
  cpu,        ///< Processors.
};

/// Smallest sizes for which `auto` uses a device. The defaults are published figures for the
/// 4th generation Xeon (docs/concepts/engine.md).
struct PathThresholds {
  Bytes synchronous = kib(24);  ///< Engine::run.
  /// Engine::submit. If the engine has devices, the submitting thread executes smaller operations
  /// of up to 64 KiB itself: the job has ended when submit returns. (Submissions from a callback or
  /// `then` of such a job go to movers, so that chains need no stack.)
  Bytes asynchronous = kib(1);
  Bytes batched = Bytes(256);  ///< Engine::submit_batch: average operation size. As above.
};

/// Origin of the thresholds of an engine.
enum class ThresholdSource : std::uint8_t {
  published,  ///< The defaults.
  profile,    ///< `headrace tune` measured them on this machine (copy/profile.hpp).
  caller,     ///< The options of the engine.
};

/// How a page fault of a device is handled.
enum class FaultPolicy : std::uint8_t {
  touch_and_resubmit,  ///< Touch the page, then resubmit the rest to the device.
  finish_on_cpu,       ///< A processor completes the rest.
  block,               ///< The device waits for the system; later descriptors wait as well.
};

/// What becomes of an operation whose device has not answered in time and may still write to its
/// target, which the completion says (late_write_possible) in either case.
enum class LateWrites : std::uint8_t {
  report,  ///< A processor does it, and it succeeds.
  fail,    ///< It fails with device_dead: a success means that no device writes there any more.
};

struct DeviceOptions {
  /// Upper limit of the timeout.
  static constexpr std::chrono::nanoseconds kTimeoutMax = std::chrono::hours(24 * 365);
  /// False: use no device.
  bool use = true;
  /// Use only these queues, by mover name ("dsa0/wq0.0"); empty: all.
  std::vector<std::string> queues = {};
  FaultPolicy page_faults = FaultPolicy::touch_and_resubmit;
  /// Timeout of a descriptor, after which a processor does its work. Must exceed the time that a
  /// full queue of the largest transfers takes.
  std::chrono::nanoseconds timeout = std::chrono::seconds(5);
  LateWrites late_writes = LateWrites::report;
};

struct EngineOptions {
  // Upper limits of the options below.
  static constexpr std::size_t kThreadsMax = 1024;
  static constexpr Bytes kPieceMax = gib(4);
  static constexpr std::size_t kQueueDepthMax = std::size_t{1} << 20U;
  /// Worker threads per node, pinned to its processors. 0: one per two processors, at least one.
  std::size_t threads_per_node = 0;
  /// Nodes that get workers; empty: every node with processors.
  std::vector<NodeId> nodes = {};
  /// Bytes a worker processes before it switches jobs, so that small jobs overtake large ones.
  Bytes piece = kib(256);
  /// Requests that the workers of a node hold before they answer Submit::full.
  std::size_t queue_depth_max = 1024;
  /// Used when a job does not set its policy; empty: movers::near_target.
  MoverPolicy policy = {};
  /// Used when a job does not set its path.
  Path path = Path::automatic;
  /// Default: from the profile of this user, else the published ones.
  std::optional<PathThresholds> thresholds = std::nullopt;
  DeviceOptions devices = {};
  /// True: before a processor accesses memory, a system call per operand checks and populates every
  /// page, so that a page that is unmapped, inaccessible or past the end of its file fails the job
  /// as on a device, with nothing done, instead of killing the process. docs/concepts/engine.md has
  /// the cost. False: checks only operations from 2 MiB on, and not every page.
  bool check_memory = false;
  /// How threads wait for jobs and channels of this engine.
  Waiting waiting = Waiting::adaptive;
};

/// As EngineOptions, for an engine with custom movers.
struct EngineSettings {
  PathThresholds thresholds = {};
  /// Returns the node of an address; null: ask the system. Called from any thread.
  std::optional<NodeId> (*node_of)(const void* address) = nullptr;
  bool check_memory = false;
  Waiting waiting = Waiting::adaptive;
};

struct SubmitOptions {
  /// Nodes of the operands, for the policy. If neither is set, the engine looks up the first pages
  /// of single operations of 16 MiB and more.
  std::optional<NodeId> source_node = std::nullopt;
  std::optional<NodeId> target_node = std::nullopt;
  /// Null: the engine's policy. Borrowed until submit_copy returns.
  const MoverPolicy* policy = nullptr;
  Job::Callback callback = nullptr;
  void* callback_context = nullptr;
  /// Called once after the job has ended, by the thread that ended it, without any lock held. May
  /// submit and destroy ended jobs, this one included, also inside wait() or poll() of it on this
  /// thread. While another thread waits for it or polls it, it may be submitted, and that thread
  /// may see the end of a later submission only; it must not be destroyed. Must not block, nor stop
  /// or destroy the engine (checked: aborts).
  void (*then)(void* context) noexcept = nullptr;
  void* then_context = nullptr;
  /// Default: the engine's path.
  std::optional<Path> path = std::nullopt;
  /// The submitting thread executes jobs for processors up to this size itself, on whatever node
  /// their memory is: handing over a short copy to a worker takes more processor time than the
  /// copy.
  Bytes inline_max = {};
  /// Predecessors: this job is accepted now and begins when the last of them has ended, on the
  /// thread that ends it. If one failed or was stopped, this job never begins and fails with
  /// Cause::predecessor_failed. This engine must have accepted each of them; they may have ended.
  /// Only their current submission counts, not later ones. None may be destroyed or submitted again
  /// before this submission returns. Movers are chosen now; a job that has to wait is never refused
  /// as `full`. Borrowed until the submission returns.
  std::span<Job* const> after = {};
};

/// Totals for one kind of operation since the engine was made.
struct OperationStatistics {
  /// Latency class i: at least EngineStatistics::latency_max(i - 1) and less than latency_max(i).
  static constexpr std::size_t kLatencyClassCount = 44;
  std::uint64_t jobs_done = 0;
  std::uint64_t bytes = 0;
  std::uint64_t bytes_by_device = 0;
  std::uint64_t retries = 0;      ///< Times that started work found a queue full.
  std::uint64_t page_faults = 0;  ///< On devices.
  std::uint64_t fallbacks = 0;    ///< Completions with `fell_back`.
  /// From submission to end, of all jobs that ended in any state. Of the operations below 256 KiB
  /// that Engine::run executes itself, one in sixteen: reading the clock would cost more than many
  /// of them. Of channels: see ChannelOptions::latencies.
  std::array<std::uint64_t, kLatencyClassCount> latency_counts{};
};

/// Totals since the engine was made. Each is exact, but not all from one instant.
struct HEADRACE_API EngineStatistics {
  std::uint64_t jobs_submitted = 0;
  std::uint64_t jobs_done = 0;
  std::uint64_t jobs_failed = 0;
  std::uint64_t jobs_stopped = 0;
  std::uint64_t submissions_refused = 0;
  std::uint64_t bytes_moved = 0;
  std::uint64_t bytes_by_device = 0;  ///< Of bytes_moved.
  std::uint64_t jobs_fell_back = 0;   ///< Completions with `fell_back`.
  std::uint64_t jobs_held_back = 0;   ///< Of jobs_submitted: had to wait for predecessors.
  /// By OperationKind; the last counts batches.
  std::array<OperationStatistics, kOperationKindCount + 1> operations{};

  /// Upper bound of a latency class, twice that of the class before.
  [[nodiscard]] static std::chrono::nanoseconds latency_max(std::size_t latency_class);
};

/// An interface: Engine::make returns the one implementation.
///
/// Threading: shared, except for destruction.
/// Ownership: owns its movers and threads. Destruction calls stop().
class HEADRACE_API Engine {
 public:
  /// Makes an engine on worker threads and every DSA queue that this process may use: movers()
  /// lists them, notes() says why others are not used. Worker threads use the copy profile of this
  /// user, if any (copy/profile.hpp).
  ///
  /// Fails: invalid_argument for a node that does not exist, has no processors or is named twice;
  ///        for a number out of range; for `queues` without `use`; for an invalid enumerator;
  ///        hardware_absent for a named queue that cannot be used;
  ///        permission_denied or unsupported if threads cannot be created or pinned.
  [[nodiscard]] static Result<std::unique_ptr<Engine>> make(const topo::Machine& machine,
                                                            EngineOptions options = {});
  /// Makes an engine with custom movers.
  ///
  /// Fails: invalid_argument if `movers` is empty or has a null, or for an invalid `waiting`.
  [[nodiscard]] static Result<std::unique_ptr<Engine>> make(
      std::vector<std::unique_ptr<Mover>> movers, MoverPolicy policy = {},
      const EngineSettings& chosen = {});

  Engine& operator=(Engine&&) = delete;
  virtual ~Engine();

  /// Starts `plan` and returns. An empty plan is accepted and done immediately.
  ///
  /// Ownership: borrows the bytes on both sides until `job` has ended.
  /// Threading: shared.
  /// Returns:   unless accepted, nothing was started and `job` is unchanged: full; closed; forked;
  ///            or the plan is invalid (null_address, length_differs, overlapping).
  /// Completes: exactly once, on a mover's thread or one that polls: done, failed (the target is
  ///            undefined except for `bytes_done` bytes), or stopped. If several parts fail, the
  ///            cause is that of the first in the plan.
  /// Cost:      no allocation; see `headrace bench engine`. What closed devices refuse goes
  ///            to worker threads, with `fell_back`; the calling thread copies it only if there are
  ///            none.
  [[nodiscard]] virtual Submit submit_copy(Job& job, const CopyPlan& plan,
                                           const SubmitOptions& options = {}) = 0;
  /// Starts `operation` and returns.
  ///
  /// Ownership, Threading, Completes, Cost: as submit_copy.
  /// Returns:   as submit_copy; for an invalid operation the answer of validate().
  [[nodiscard]] virtual Submit submit(Job& job, const Operation& operation,
                                      const SubmitOptions& options = {}) = 0;
  /// Starts all operations of `batch` and returns. They run in any order except at fences; one
  /// larger than the largest transfer of a device queue begins after those before it.
  ///
  /// Ownership: borrows the operations, the completions and all bytes that they name until the job
  ///            has ended.
  /// Returns:   as submit, for the first operation that is invalid.
  /// Completes: as submit_copy, after all operations have ended: done if all are done, else failed
  ///            with Cause::batch_failed; bytes_done is the sum.
  [[nodiscard]] virtual Submit submit_batch(Job& job, const Batch& batch,
                                            const SubmitOptions& options = {}) = 0;
  /// Executes `operation` on this thread or a device and waits for it. If the device queues stay
  /// full, falls back to this thread. `callback` runs on this thread or on one that polls, `then`
  /// always on this thread, before this returns. The policy of the options applies to devices only.
  ///
  /// Threading: shared.
  /// Returns:   as submit, but never `full`; `completion` is written if accepted.
  [[nodiscard]] virtual Submit run(const Operation& operation, Completion& completion,
                                   const SubmitOptions& options = {}) = 0;

  /// Reserves entries of a device queue for one thread, whose operations then cost a fraction.
  ///
  /// Ownership: destroy the channel before the engine. stop() does not wait for its operations.
  /// Threading: shared.
  /// Fails: hardware_absent if there is no device queue, or none of that name; invalid_argument for
  ///        a depth of 0; capacity_exceeded without `depth` free entries and one more for jobs;
  ///        closed after stop() and in a child process.
  [[nodiscard]] virtual Result<std::unique_ptr<Channel>> open_channel(
      const ChannelOptions& options = {}) = 0;
  /// Refuses new jobs, ends running ones as stopped or done, and closes the queues of devices, but
  /// for channels. Idempotent. Not from a callback or `then`, for whose job it would wait (aborts).
  virtual void stop() = 0;
  /// Drives movers without a thread for all jobs; Job::poll and Job::wait do so for their job only.
  /// Never blocks.
  virtual void poll() = 0;
  [[nodiscard]] virtual const std::vector<MoverInfo>& movers() const noexcept = 0;
  [[nodiscard]] virtual PathThresholds thresholds() const = 0;
  [[nodiscard]] virtual ThresholdSource threshold_source() const = 0;
  /// Whether the engine was made with a policy.
  [[nodiscard]] virtual bool has_policy() const = 0;
  /// How threads wait: as requested, except that without WAITPKG umwait becomes spin.
  [[nodiscard]] virtual Waiting waiting() const = 0;
  /// One sentence each: why a device or queue is not among the movers, and if there are devices,
  /// from which sizes `auto` uses them.
  [[nodiscard]] virtual const std::vector<std::string>& notes() const = 0;
  [[nodiscard]] virtual EngineStatistics statistics() const = 0;
  /// One for each of movers(), in the same order.
  [[nodiscard]] virtual std::vector<DeviceStatistics> device_statistics() const = 0;

 protected:
  Engine() = default;
};

}  // namespace headrace::engine
