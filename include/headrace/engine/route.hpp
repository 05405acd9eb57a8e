// SPDX-License-Identifier: Apache-2.0
// Route: who carries out a submission. One pure function decides, from plain values, so that a
// simulator decides as an engine does. Not for: what becomes of a mover's refusal (the engine).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "headrace/base/export.hpp"
#include "headrace/engine/engine.hpp"

namespace headrace::engine {

/// A submission, as far as it matters to who carries it out.
struct Workload {
  OperationKind kind = OperationKind::no_op;  ///< Of a batch, no_op.
  OperationSet kinds = {};                    ///< Of a batch, all of them.
  std::size_t byte_count = 0;                 ///< Of a batch, the sum.
  std::size_t operation_count = 0;            ///< 0: it is no batch.
  /// It is not begun by its submission: it waits for others, or comes from the callback of a job
  /// that the calling thread carries out itself.
  bool deferred = false;
  std::uint64_t turn = 0;  ///< Counts submissions.
};

/// What an engine is. Does not change from one submission to the next.
struct RouteFacts {
  /// Processors first, then devices.
  std::span<const MoverInfo> movers;
  std::size_t processor_count = 0;
  std::span<const NodePackage> packages = {};
  PathThresholds thresholds = {};
  /// Of submissions that do not say.
  Path path = Path::automatic;
  const MoverPolicy* policy = nullptr;  ///< Null: movers::near_target.
  Loads loads = {};                     ///< Of `movers`.
  /// Node of the calling thread. Called only for a policy that is asked. Null: not known.
  std::optional<NodeId> (*caller_node)() = nullptr;
};

/// More than this no submission carries out by itself: some microseconds.
inline constexpr std::size_t kInlineBytesMax = std::size_t{64} << 10U;

/// Whether a mover can carry out all of `work`.
[[nodiscard]] inline bool can_carry_out(const MoverInfo& mover, const Workload& work) {
  if (work.operation_count == 0) return mover.operations.has(work.kind);
  return mover.batches && mover.operations.has_all(work.kinds);
}

/// Whether Engine::run gives an operation to a device; else the calling thread carries it out.
[[nodiscard]] inline bool is_run_by_device(std::size_t byte_count, Path path,
                                           const PathThresholds& thresholds) {
  return path == Path::hardware ||
         (path == Path::automatic && byte_count >= thresholds.synchronous.count());
}

/// Who carries out `work`.
[[nodiscard]] HEADRACE_API Route route(const Workload& work, const SubmitOptions& options,
                                       const RouteFacts& facts);

}  // namespace headrace::engine
