// SPDX-License-Identifier: Apache-2.0
// route() decides what executes a submission: a pure function of plain values, so that a simulator
// decides as an engine does. Not for: handling a refusal of a mover (the engine).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "headrace/base/export.hpp"
#include "headrace/engine/engine.hpp"

namespace headrace::engine {

/// What executes a submission; the result of route().
struct Route {
  enum class By : std::uint8_t {
    movers,
    calling_thread,  ///< Before the submission returns.
    none,            ///< The policy chose no mover, or an invalid one.
  };
  By by = By::movers;
  /// Not the requested mover or path.
  bool fell_back = false;
  /// If the mover is full, any other of its kind (device or processor) may take the job.
  bool any = false;
  /// If the devices are full, processors may take the job.
  bool or_processors = false;
  /// Indexes into RouteFacts::movers.
  MoverChoice movers = {};
};

/// The properties of a submission that route() uses.
struct Workload {
  OperationKind kind = OperationKind::no_op;  ///< Of a batch: no_op.
  OperationSet kinds = {};                    ///< Of a batch: all its kinds.
  std::size_t byte_count = 0;                 ///< Of a batch: the sum.
  std::size_t operation_count = 0;            ///< 0: not a batch.
  /// May not run on the calling thread: it waits for predecessors, or was submitted by the callback
  /// or `then` of a job that the calling thread executes.
  bool deferred = false;
  std::uint64_t turn = 0;  ///< Number of the submission.
};

/// The properties of an engine that route() uses; constant.
struct RouteFacts {
  /// Processors first, then devices.
  std::span<const MoverInfo> movers;
  std::size_t processor_count = 0;
  std::span<const NodePackage> packages = {};
  PathThresholds thresholds = {};
  /// Used when a submission does not set its path.
  Path path = Path::automatic;
  const MoverPolicy* policy = nullptr;  ///< Null: movers::near_target.
  Loads loads = {};                     ///< The loads of `movers`.
  /// Returns the node of the calling thread, for policies. Null: not known.
  std::optional<NodeId> (*caller_node)() = nullptr;
};

/// With path `auto`, submissions execute at most this much themselves: some microseconds.
inline constexpr std::size_t kInlineBytesMax = std::size_t{64} << 10U;

/// Whether `mover` supports all of `work`.
[[nodiscard]] inline bool can_carry_out(const MoverInfo& mover, const Workload& work) {
  if (work.operation_count == 0) return mover.operations.has(work.kind);
  return mover.batches && mover.operations.has_all(work.kinds);
}

/// Whether Engine::run uses a device; else the calling thread executes the operation.
[[nodiscard]] inline bool is_run_by_device(std::size_t byte_count, Path path,
                                           const PathThresholds& thresholds) {
  return path == Path::dsa ||
         (path == Path::automatic && byte_count >= thresholds.synchronous.count());
}

/// Decides what executes `work`.
[[nodiscard]] HEADRACE_API Route route(const Workload& work, const SubmitOptions& options,
                                       const RouteFacts& facts);

}  // namespace headrace::engine
