// SPDX-License-Identifier: Apache-2.0
// The decision of Prefetch::automatic, from bandwidths and latencies. A pure function. Not
// considered: where copies go, which the cache's placement decides, and how busy the machine is.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <span>

#include "headrace/topo/machine.hpp"

namespace headrace::query::detail {

/// A column of a query, in bytes of one row.
struct ColumnReads {
  NodeId home;
  double bytes = 0;
  bool is_scanned = false;  ///< By the filter.
  bool is_moved = false;    ///< Read by the aggregate, and prefetched for it.
};

/// Bytes of misses that a core keeps in flight: 31.4 lines on a Xeon Max (`headrace sim validate`,
/// series max9462-ddr-latency).
inline constexpr double kBytesUnderWay = 32 * 64;
/// Minimum gain for prefetching, as in 'headrace sim advise'.
inline constexpr double kGainMin = 0.02;

/// Time of the query without prefetching divided by the time with it, minus 1, for `worker_count`
/// workers of node `workers` and copies on node `target`.
///
/// A row takes as long as the busiest node needs for its bytes, and at least as long as the workers
/// wait for its lines. A move reads the home node and writes the target, which the aggregate reads.
/// Without a copy the aggregate finds columns of the filter in the worker's cache.
///
/// Returns: nullopt if a bandwidth is not known.
[[nodiscard]] inline std::optional<double> prefetch_gain(const topo::Machine& machine,
                                                         std::span<const ColumnReads> columns,
                                                         NodeId workers, std::size_t worker_count,
                                                         NodeId target) {
  struct Load {
    std::map<NodeId, double> bytes;  ///< By node.
    double waits = 0;                ///< Bytes that workers read, times latency.
    bool known = true;
  };
  const auto use = [&](Load& load, NodeId node, double bytes, bool by_worker) {
    const topo::Access* const access = machine.access(workers, node);
    load.known = load.known && access != nullptr && access->bandwidth.has_value();
    load.bytes[node] += bytes;
    if (!by_worker || access == nullptr || !access->latency.has_value()) return;
    load.waits += bytes * static_cast<double>(access->latency->count());
  };
  const auto row_ns = [&](const Load& load) {
    double ns =
        load.waits / (kBytesUnderWay * static_cast<double>(std::max<std::size_t>(1, worker_count)));
    for (const auto& [node, bytes] : load.bytes) {
      ns = std::max(ns, bytes / machine.access(workers, node)->bandwidth->count() * 1e9);
    }
    return ns;
  };
  Load off;
  Load on;
  for (const ColumnReads& column : columns) {
    use(off, column.home, column.bytes, true);
    if (column.is_scanned) use(on, column.home, column.bytes, true);
    if (!column.is_moved) continue;
    use(on, column.home, column.bytes, false);
    use(on, target, column.bytes, false);
    use(on, target, column.bytes, true);
  }
  if (!off.known || !on.known) return std::nullopt;
  return row_ns(off) / row_ns(on) - 1;
}

}  // namespace headrace::query::detail
