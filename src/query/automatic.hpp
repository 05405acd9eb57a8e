// SPDX-License-Identifier: Apache-2.0
// The decision of Prefetch::automatic, from bandwidths and latencies. A pure function. Not
// considered: where copies go, which the cache's placement decides, and how busy the machine is.
#pragma once

#include <algorithm>
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
  const auto row_ns = [&](bool is_moving) -> std::optional<double> {
    std::map<NodeId, double> bytes;  // By node.
    double ns = 0;
    const auto use = [&](NodeId node, double count, bool by_worker) {
      bytes[node] += count;
      const topo::Access* const access = machine.access(workers, node);
      if (!by_worker || access == nullptr || !access->latency.has_value()) return;
      ns += count * static_cast<double>(access->latency->count()) /
            (kBytesUnderWay * static_cast<double>(std::max<std::size_t>(1, worker_count)));
    };
    for (const ColumnReads& column : columns) {
      if (!is_moving || column.is_scanned) use(column.home, column.bytes, true);
      if (!is_moving || !column.is_moved) continue;
      use(column.home, column.bytes, false);
      use(target, column.bytes, false);
      use(target, column.bytes, true);
    }
    for (const auto& [node, count] : bytes) {
      const topo::Access* const access = machine.access(workers, node);
      if (access == nullptr || !access->bandwidth.has_value()) return std::nullopt;
      ns = std::max(ns, count / access->bandwidth->count() * 1e9);
    }
    return ns;
  };
  const std::optional<double> off = row_ns(false);
  const std::optional<double> on = row_ns(true);
  if (!off.has_value() || !on.has_value()) return std::nullopt;
  return *off / *on - 1;
}

}  // namespace headrace::query::detail
