// SPDX-License-Identifier: Apache-2.0
// Engine: the one way to have bytes moved. Submit a job, poll it, wait for it or be called back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "headrace/base/export.hpp"
#include "headrace/base/result.hpp"
#include "headrace/base/units.hpp"
#include "headrace/engine/job.hpp"
#include "headrace/engine/mover.hpp"
#include "headrace/topo/machine.hpp"

namespace headrace::engine {

struct EngineOptions {
  /// More worker threads per node than this are taken for a mistake.
  static constexpr std::size_t kThreadsMax = 1024;
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
};

struct SubmitOptions {
  std::optional<NodeId> source_node = std::nullopt;
  std::optional<NodeId> target_node = std::nullopt;
  /// Null: the engine's policy. Borrowed until submit_copy returns.
  const MoverPolicy* policy = nullptr;
  Job::Callback callback = nullptr;
  void* callback_context = nullptr;
};

/// Totals since the engine was made. Each is exact; together they are not one instant.
struct EngineStatistics {
  std::uint64_t jobs_submitted = 0;
  std::uint64_t jobs_done = 0;
  std::uint64_t jobs_failed = 0;
  std::uint64_t jobs_stopped = 0;
  std::uint64_t submissions_refused = 0;
  std::uint64_t bytes_moved = 0;
};

class EngineState;

/// Threading: shared, except for destruction.
/// Ownership: owns its movers and threads. Destruction stops it: jobs that run end as stopped or
/// done first.
class HEADRACE_API Engine {
 public:
  /// Makes an engine with worker threads as movers.
  ///
  /// Fails: invalid_argument for a node that the machine does not have, that has no processors or
  ///        that is named twice, for a piece or depth of 0, and for more threads than kThreadsMax;
  ///        permission_denied or unsupported if threads cannot be made or pinned.
  [[nodiscard]] static Result<std::unique_ptr<Engine>> make(const topo::Machine& machine,
                                                            EngineOptions options = {});
  /// Makes an engine with movers of the caller's own.
  ///
  /// Fails: invalid_argument if there is none, or one is null.
  [[nodiscard]] static Result<std::unique_ptr<Engine>> make(
      std::vector<std::unique_ptr<Mover>> movers, MoverPolicy policy = {});

  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();

  /// Starts `plan` and returns. An empty plan is accepted and done at once. The spans must have
  /// one length, must not be null unless empty, and must be equal or disjoint (checked).
  ///
  /// Ownership: borrows the bytes on both sides until `job` has ended.
  /// Threading: shared.
  /// Returns:   unless accepted, nothing was started and `job` is as before.
  /// Completes: exactly once, on a mover's thread or that of whoever polls: done, failed with its
  ///            cause (after which the target is undefined beyond what `bytes_done` says), or
  ///            stopped. Where several shares fail, the cause is that of the first in the plan.
  /// Cost:      no allocation; see bench/engine/submit_bench.cpp. Blocks only if some movers took
  ///            their shares and no other takes the rest: that is then moved by the calling thread,
  ///            and the completion says `fell_back`.
  [[nodiscard]] Submit submit_copy(Job& job, const CopyPlan& plan,
                                   const SubmitOptions& options = {});

  /// Refuses new jobs, ends those that run as stopped or done, returns when none is left.
  /// Idempotent. Not from a callback, whose job it would wait for.
  void stop();
  /// Drives movers that have no thread. Never blocks. Job::poll and Job::wait call it.
  void poll();
  [[nodiscard]] std::vector<MoverInfo> movers() const;
  [[nodiscard]] EngineStatistics statistics() const;

 private:
  explicit Engine(std::unique_ptr<EngineState> state);
  std::unique_ptr<EngineState> state_;
};

}  // namespace headrace::engine
