// SPDX-License-Identifier: Apache-2.0
// The mover of processors: worker threads pinned to one node, with one queue of requests.
#pragma once

#include <memory>
#include <vector>

#include "headrace/base/result.hpp"
#include "headrace/engine/job.hpp"
#include "headrace/engine/mover.hpp"

namespace headrace::engine {

struct CpuMoverOptions {
  NodeId node;
  /// Processors that the workers may run on; not empty.
  std::vector<CpuId> cpus;
  std::size_t thread_count = 1;
  /// Bytes that a worker copies before it looks for other work; not 0.
  std::size_t piece_bytes = 256U << 10U;
  /// Maximum requests in the queue; not 0.
  std::size_t queue_depth_max = 1024;
  bool check_memory = false;  ///< As in EngineOptions.
  /// As in EngineOptions: except with sleep, a worker that finds nothing looks again for as
  /// long as recently paid off before it sleeps.
  Waiting waiting = Waiting::adaptive;
};

/// Starts the workers and pins each.
///
/// Fails: unsupported or permission_denied if threads cannot be made or pinned.
[[nodiscard]] Result<std::unique_ptr<Mover>> make_cpu_mover(const CpuMoverOptions& options);

}  // namespace headrace::engine
