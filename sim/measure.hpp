// SPDX-License-Identifier: Apache-2.0
// Measure: what memory and caches of this machine give to its processors. The only part of the
// simulator that runs anything. Not for: what the figures become in a model, which Python decides.
//
// Threads work in short rounds that begin at the same moment. A round in which one of them was not
// on its processor all the time tells nothing of memory and is left out, so that figures taken
// beside other work are those of the machine and not of its scheduler.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "headrace/base/result.hpp"
#include "headrace/base/units.hpp"

namespace headrace::sim {

/// How long something is measured.
struct Effort {
  std::uint32_t sample_count = 20;  ///< Undisturbed rounds that are wanted.
  std::chrono::microseconds round_time{500};
  std::chrono::milliseconds time_max{1000};
};

/// What a measurement gave.
struct Samples {
  /// Of each thread, of each undisturbed round: GB/s, or nanoseconds.
  std::vector<std::vector<double>> values;
  std::uint32_t round_count = 0;
  /// Of them, those in which a thread lost its processor. If no round was undisturbed, `values` are
  /// those of all.
  std::uint32_t disturbed_count = 0;
};

enum class Access : std::uint8_t { read, fill, copy };

/// One thread that goes through memory of its own, again and again from its beginning to its end.
struct Stream {
  Access access = Access::read;
  CpuId cpu;
  NodeId node;            ///< Where the memory lies.
  std::size_t span = 0;   ///< So much memory, and as much more for a copy's target.
  std::size_t bytes = 0;  ///< Of one call of memset or memcpy; at most `span`.
};

/// All threads at the same time; a byte read, written or copied counts once.
///
/// Returns: GB/s.
/// Fails: out_of_memory; invalid_argument for a processor that may not be used or no stream.
[[nodiscard]] Result<Samples> measure_streams(const std::vector<Stream>& streams,
                                              const Effort& effort);

/// Loads that depend on each other, over `bytes` in random order.
///
/// Returns: nanoseconds of one.
/// Fails: as measure_streams().
[[nodiscard]] Result<Samples> measure_latency(CpuId cpu, NodeId node, std::size_t bytes,
                                              const Effort& effort);

/// Two threads hand `bytes` to and fro: one writes them, then the other reads them and writes them
/// in turn.
///
/// Returns: nanoseconds of one way, by the first thread's clock; twice the same series.
/// Fails: as measure_streams().
[[nodiscard]] Result<Samples> measure_handover(CpuId first, CpuId second, std::size_t bytes,
                                               const Effort& effort);

/// Messages of `bytes` by a message::Queue from the first processor to the second.
///
/// Returns: nanoseconds of one, seen by the receiver; if `trips`, of a message and its answer.
/// Fails: as measure_streams().
[[nodiscard]] Result<Samples> measure_messages(CpuId first, CpuId second, std::size_t bytes,
                                               bool trips, const Effort& effort);

}  // namespace headrace::sim
