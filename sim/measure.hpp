// SPDX-License-Identifier: Apache-2.0
// Measure: what memory of this machine gives to cores, for the model of its own record. The only
// part of the simulator that runs anything.
#pragma once

#include <cstdint>
#include <vector>

#include "headrace/base/result.hpp"
#include "headrace/base/units.hpp"

namespace headrace::sim {

enum class Access : std::uint8_t { read, fill, copy };

struct Stream {
  Access access = Access::read;
  std::vector<CpuId> cpus;  ///< A thread on each.
  NodeId node;              ///< Where the memory lies.
  std::size_t bytes = 0;    ///< Of each thread, and as many more for a copy's target.
  std::uint32_t rounds = 1;
};

/// Threads go through memory of their own at the same time, round after round. Counts a byte read,
/// written or copied as one.
///
/// Returns: GB/s of all of them in the best round: whatever else runs only takes away.
/// Fails: out_of_memory; invalid_argument for a processor that may not be used or no processor.
[[nodiscard]] Result<double> measure_stream(const Stream& stream);

/// Loads that depend on each other, over `bytes` in random order.
///
/// Returns: nanoseconds of one, in the best round.
/// Fails: as measure_stream().
[[nodiscard]] Result<double> measure_latency(CpuId cpu, NodeId node, std::size_t bytes,
                                             std::uint32_t rounds);

}  // namespace headrace::sim
