// SPDX-License-Identifier: Apache-2.0
// Engine: the one way to have bytes moved. Submit a job, poll it, wait for it or be called back.
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

/// Who carries out an operation.
enum class Path : std::uint8_t {
  automatic,  ///< A device where it is expected to be faster, else processors.
  hardware,   ///< A device if there is one that can; the completion says `fell_back` if not.
  software,   ///< Processors.
};

/// From how many bytes on `automatic` takes a device. The defaults are published figures of the
/// 4th generation Xeon (docs/concepts/engine.md names them).
struct PathThresholds {
  Bytes synchronous = kib(24);  ///< Engine::run: one operation, waited for.
  /// submit: the caller goes on with other work. What is smaller, and not more than 64 KiB, the
  /// submitting thread does at once, if the engine has devices: the job has ended by then. (What a
  /// callback or `then` of such a job submits is handed over.)
  Bytes asynchronous = kib(1);
  Bytes batched = Bytes(256);  ///< submit_batch: of each operation, on average. As above.
};

/// Where the thresholds of an engine come from.
enum class ThresholdSource : std::uint8_t {
  published,  ///< The defaults.
  profile,    ///< `headrace tune` measured them on this machine (copy/profile.hpp).
  caller,     ///< The options of the engine.
};

/// What a device does about a page that is not present.
enum class FaultPolicy : std::uint8_t {
  touch_and_resubmit,  ///< The page is brought in and the device goes on where it stopped.
  finish_on_cpu,       ///< A processor does the rest.
  block,               ///< The device waits for the system, and what is behind it waits, too.
};

/// How devices are used.
struct DeviceOptions {
  /// A device that may be silent for longer is never given up in practice.
  static constexpr std::chrono::nanoseconds kAnswerMax = std::chrono::hours(24 * 365);
  /// False: no device is looked for.
  bool use = true;
  /// Only these queues, by the name of their mover ("dsa0/wq0.0"); empty: every one.
  std::vector<std::string> queues = {};
  FaultPolicy page_faults = FaultPolicy::touch_and_resubmit;
  /// A descriptor that is not answered by then is given up, and a processor does its work. Longer
  /// than the longest queue in front of the largest transfer takes.
  std::chrono::nanoseconds answer_max = std::chrono::seconds(5);
};

struct EngineOptions {
  /// More worker threads per node than this are taken for a mistake.
  static constexpr std::size_t kThreadsMax = 1024;
  /// Greater pieces and depths as well.
  static constexpr Bytes kPieceMax = gib(4);
  static constexpr std::size_t kQueueDepthMax = std::size_t{1} << 20U;
  /// Worker threads per node, pinned to its processors. 0: one per two processors, at least one.
  std::size_t threads_per_node = 0;
  /// Nodes that get workers; empty: every node with processors.
  std::vector<NodeId> nodes = {};
  /// A worker copies this much before it looks for other work, so that small jobs overtake large
  /// ones.
  Bytes piece = kib(256);
  /// Shares that one mover holds before it answers Submit::full.
  std::size_t queue_depth_max = 1024;
  /// Chooses the movers of jobs that bring no policy of their own; empty: movers::near_target.
  MoverPolicy policy = {};
  /// Of jobs that do not say.
  Path path = Path::automatic;
  /// Nothing: those of the profile of this user, or the published ones if it has none.
  std::optional<PathThresholds> thresholds = std::nullopt;
  DeviceOptions devices = {};
  /// True: before a processor is sent to memory, the system is asked about every page, so that what
  /// is not mapped, may not be read or written, or lies behind the end of its file fails the job by
  /// name, as a device does, with nothing done. Costs a system call per operand and brings in every
  /// page; docs/concepts/engine.md has figures. False: only from 2 MiB on, and not every page.
  bool check_memory = false;
  /// How threads wait for jobs and channels of this engine.
  Waiting waiting = Waiting::adaptive;
};

/// As EngineOptions, for an engine with movers of the caller's own.
struct EngineSettings {
  PathThresholds thresholds = {};
  /// Tells on which node a byte lies; null: the system is asked. Any thread calls it.
  std::optional<NodeId> (*node_of)(const void* address) = nullptr;
  bool check_memory = false;
  Waiting waiting = Waiting::adaptive;
};

struct SubmitOptions {
  /// Where the operands lie, for the policy. If neither is said, the engine finds it out for single
  /// operations of 16 MiB and more, by their first pages.
  std::optional<NodeId> source_node = std::nullopt;
  std::optional<NodeId> target_node = std::nullopt;
  /// Null: the engine's policy. Borrowed until submit_copy returns.
  const MoverPolicy* policy = nullptr;
  Job::Callback callback = nullptr;
  void* callback_context = nullptr;
  /// Called once after the job has ended, when it may be destroyed or submitted again, by the
  /// thread that ended it and without any lock held. It may do either, and submit others; destroy
  /// it only if no thread is inside wait() or poll() of it. That may be this thread: a job that a
  /// device does is ended by a thread that polls it. Give such jobs to Engine::poll() alone. It may
  /// not stop or end the engine, which would wait for the call that it is in: the process ends
  /// then, and says so.
  void (*then)(void* context) noexcept = nullptr;
  void* then_context = nullptr;
  /// Nothing: the engine's.
  std::optional<Path> path = std::nullopt;
  /// If it is for processors and no longer than this, the submitting thread carries it out at once,
  /// wherever its memory lies: handing it to a worker and waiting takes more processor time than a
  /// short copy.
  Bytes inline_max = {};
  /// Jobs that have to end first: this one is accepted now and begins when the last of them has
  /// ended, on whatever thread ends it. If one failed or was stopped, this one never begins and
  /// ends as failed with Cause::predecessor_failed. Each was accepted by this engine (at least
  /// once, and may have ended); none may be destroyed or submitted again before this submission
  /// returns. It is the submission in progress that counts, not later ones. Movers are chosen now;
  /// a job that has to wait is never refused as `full`. Borrowed until the submission returns.
  std::span<Job* const> after = {};
};

/// Of jobs of one kind, since the engine was made.
struct OperationStatistics {
  /// Class i of latencies: jobs that took less than EngineStatistics::latency_max(i), and not less
  /// than that of i - 1.
  static constexpr std::size_t kLatencyClassCount = 44;
  std::uint64_t jobs_done = 0;
  std::uint64_t bytes = 0;
  std::uint64_t bytes_by_device = 0;
  std::uint64_t retries = 0;      ///< Times that a full queue kept what had begun waiting.
  std::uint64_t page_faults = 0;  ///< That a device met.
  std::uint64_t fallbacks = 0;    ///< Completions that say `fell_back`.
  /// From submission to end, of all jobs that ended, however; but of what Engine::run does itself
  /// with less than 256 KiB only one in sixteen, since looking at the clock would cost more than
  /// much of it. Of the operations of channels see ChannelOptions::latencies.
  std::array<std::uint64_t, kLatencyClassCount> latency_counts{};
};

/// Totals since the engine was made. Each is exact; together they are not one instant.
struct HEADRACE_API EngineStatistics {
  std::uint64_t jobs_submitted = 0;
  std::uint64_t jobs_done = 0;
  std::uint64_t jobs_failed = 0;
  std::uint64_t jobs_stopped = 0;
  std::uint64_t submissions_refused = 0;
  std::uint64_t bytes_moved = 0;
  std::uint64_t bytes_by_device = 0;  ///< Of bytes_moved.
  std::uint64_t jobs_fell_back = 0;   ///< Completions that say `fell_back`.
  std::uint64_t jobs_held_back = 0;   ///< Of jobs_submitted: they had to wait for others first.
  /// By OperationKind; the last is that of batches.
  std::array<OperationStatistics, kOperationKindCount + 1> operations{};

  /// Upper bound of a class of latencies: each is twice the one before.
  [[nodiscard]] static std::chrono::nanoseconds latency_max(std::size_t latency_class);
};

/// An interface: Engine::make returns the one implementation.
///
/// Threading: shared, except for destruction.
/// Ownership: owns its movers and threads. Destruction stops it: jobs that run end as stopped or
/// done first.
class HEADRACE_API Engine {
 public:
  /// Makes an engine whose movers are worker threads and every DSA queue that this process may use:
  /// movers() and notes() tell which, how and why. Worker threads copy by the profile of this user
  /// if there is one (copy/profile.hpp).
  ///
  /// Fails: invalid_argument for a node that the machine does not have, that has no processors or
  ///        that is named twice, for a number that is 0 where that can do nothing or beyond its
  ///        limit above, for queues that are named where no device may be used, and for a path or
  ///        the like that is none;
  ///        hardware_absent for a queue that is named and cannot be used;
  ///        permission_denied or unsupported if threads cannot be made or pinned.
  [[nodiscard]] static Result<std::unique_ptr<Engine>> make(const topo::Machine& machine,
                                                            EngineOptions options = {});
  /// Makes an engine with movers of the caller's own.
  ///
  /// Fails: invalid_argument if there is none, or one is null, or jobs cannot be waited for so.
  [[nodiscard]] static Result<std::unique_ptr<Engine>> make(
      std::vector<std::unique_ptr<Mover>> movers, MoverPolicy policy = {},
      const EngineSettings& chosen = {});

  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  virtual ~Engine();

  /// Starts `plan` and returns. An empty plan is accepted and done at once.
  ///
  /// Ownership: borrows the bytes on both sides until `job` has ended.
  /// Threading: shared.
  /// Returns:   unless accepted, nothing was started and `job` is as before: the queues are full,
  ///            the engine is closed or belongs to the parent of this process, or the plan is wrong
  ///            (null_address, length_differs, overlapping).
  /// Completes: exactly once, on a mover's thread or one that polls: done, failed with its
  ///            cause (after which the target is undefined beyond what `bytes_done` says), or
  ///            stopped. Where several shares fail, the cause is that of the first in the plan.
  /// Cost:      no allocation; see bench/engine/submit_bench.cpp. Blocks only if some movers took
  ///            their shares and no other takes the rest: that is then moved by the calling thread,
  ///            and the completion says `fell_back`.
  [[nodiscard]] virtual Submit submit_copy(Job& job, const CopyPlan& plan,
                                           const SubmitOptions& options = {}) = 0;
  /// Starts `operation` and returns.
  ///
  /// Ownership, Threading, Completes, Cost: as submit_copy.
  /// Returns:   as submit_copy; what validate() says if that is not `accepted`.
  [[nodiscard]] virtual Submit submit(Job& job, const Operation& operation,
                                      const SubmitOptions& options = {}) = 0;
  /// Starts all operations of `batch` and returns. They run in any order, but for fences. One that
  /// is larger than the largest transfer of a device's queue comes after those before it.
  ///
  /// Ownership: borrows the operations, the completions and all bytes that they name until the job
  ///            has ended.
  /// Returns:   as submit; of a batch with an operation that may not be submitted, what is wrong
  ///            with the first such.
  /// Completes: as submit_copy: done if all are done, else failed with Cause::batch_failed, after
  ///            all have ended; bytes_done is the sum.
  [[nodiscard]] virtual Submit submit_batch(Job& job, const Batch& batch,
                                            const SubmitOptions& options = {}) = 0;
  /// Carries out `operation` and returns when it has ended. On a processor that is the calling
  /// thread, which then also calls `callback`; where queues are full it waits, and falls back if
  /// that lasts. `then` is called here, before this returns, on every path. The policy of the
  /// options is for devices only.
  ///
  /// Threading: shared.
  /// Returns:   as submit, but never `full`; `completion` is written if it is accepted.
  [[nodiscard]] virtual Submit run(const Operation& operation, Completion& completion,
                                   const SubmitOptions& options = {}) = 0;

  /// Reserves a part of a device's queue for one thread, whose operations then cost a fraction.
  ///
  /// Ownership: the channel ends before the engine. What it has in flight is not awaited by stop().
  /// Threading: shared.
  /// Fails: hardware_absent if there is no device or none of that name; invalid_argument for a
  ///        depth of 0; capacity_exceeded if the queue has not so many entries that are free and
  ///        one more, which is for jobs; closed after stop() and in a child of the process.
  [[nodiscard]] virtual Result<std::unique_ptr<Channel>> open_channel(
      const ChannelOptions& options = {}) = 0;
  /// Refuses new jobs, ends those that run as stopped or done, returns when none is left.
  /// Idempotent. Not from a callback or `then`, whose job it would wait for: that ends the process.
  virtual void stop() = 0;
  /// Drives movers that have no thread, for all jobs; Job::poll and Job::wait do it for theirs.
  /// Never blocks.
  virtual void poll() = 0;
  [[nodiscard]] virtual const std::vector<MoverInfo>& movers() const noexcept = 0;
  /// From how many bytes on path `automatic` takes a device, and why from there.
  [[nodiscard]] virtual PathThresholds thresholds() const = 0;
  [[nodiscard]] virtual ThresholdSource threshold_source() const = 0;
  /// Whether the engine was made with a policy of its own.
  [[nodiscard]] virtual bool has_policy() const = 0;
  /// How threads wait: as the engine was told, but for an UMWAIT that this processor lacks.
  [[nodiscard]] virtual Waiting waiting() const = 0;
  /// Why devices, or some of their queues, are not among the movers, and if some are, from how many
  /// bytes on `automatic` takes them; one sentence each.
  [[nodiscard]] virtual const std::vector<std::string>& notes() const = 0;
  [[nodiscard]] virtual EngineStatistics statistics() const = 0;
  /// One for each of movers(), in the same order.
  [[nodiscard]] virtual std::vector<DeviceStatistics> device_statistics() const = 0;

 protected:
  Engine() = default;
};

}  // namespace headrace::engine
