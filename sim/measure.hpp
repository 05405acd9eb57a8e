// SPDX-License-Identifier: Apache-2.0
// Measure: bandwidth and latency of this machine's memory and caches. The only part of the
// simulator that runs anything. Not for: turning the figures into a model, which is done in Python.
//
// Threads work in short rounds that start at the same time. A round in which a thread was preempted
// says nothing about memory and is left out, so figures taken beside other work describe the
// machine and not its scheduler.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

#include "headrace/base/result.hpp"
#include "headrace/base/units.hpp"

namespace headrace::sim {

/// How long to measure.
struct Effort {
  std::uint32_t sample_count = 20;  ///< Undisturbed rounds wanted.
  std::chrono::microseconds round_time{500};
  std::chrono::milliseconds time_max{1000};
};

struct Samples {
  /// By thread, then by undisturbed round: GB/s, or nanoseconds.
  std::vector<std::vector<double>> values;
  std::uint32_t round_count = 0;
  /// Rounds in which a thread was preempted. If every round was disturbed, `values` has them all.
  std::uint32_t disturbed_count = 0;
};

enum class Access : std::uint8_t { read, fill, copy, update };

/// One thread that passes over private memory repeatedly, from start to end.
struct Stream {
  Access access = Access::read;
  CpuId cpu;
  NodeId node;            ///< Node of the memory.
  std::size_t span = 0;   ///< Bytes of memory; a copy's target takes as much again.
  std::size_t bytes = 0;  ///< Per call of memset or memcpy; at most `span`.
};

/// Runs all streams at the same time; a byte read, written or copied counts once.
///
/// Returns: GB/s.
/// Fails: out_of_memory; invalid_argument if `streams` is empty or names a processor that this
/// process may not use.
[[nodiscard]] Result<Samples> measure_streams(const std::vector<Stream>& streams,
                                              const Effort& effort);

/// Measures dependent loads over `bytes` in random order.
///
/// Returns: nanoseconds per load.
/// Fails: as measure_streams().
[[nodiscard]] Result<Samples> measure_latency(CpuId cpu, NodeId node, std::size_t bytes,
                                              const Effort& effort);

/// Two threads pass `bytes` back and forth: one copies them into a slot of shared memory, the other
/// out of it and into the next slot.
///
/// Returns: nanoseconds one way, by the first thread's clock; one series.
/// Fails: as measure_streams().
[[nodiscard]] Result<Samples> measure_handover(CpuId first, CpuId second, std::size_t bytes,
                                               const Effort& effort);

/// Sends messages of `bytes` through a message::Queue from the first processor to the second.
///
/// Returns: nanoseconds per message at the receiver or, if `trips`, per round trip; one series.
/// Fails: as measure_streams().
[[nodiscard]] Result<Samples> measure_messages(CpuId first, CpuId second, std::size_t bytes,
                                               bool trips, const Effort& effort);

/// A thread on the first processor has an engine's worker on the second copy `bytes`. The worker
/// sleeps before each copy or, unless `sleeps`, looks for one.
///
/// Returns: nanoseconds until the copy has ended or, if `calls`, of the submission; one series.
/// Fails: as measure_streams() and engine::Engine::make().
[[nodiscard]] Result<Samples> measure_worker(const std::array<CpuId, 2>& cpus, NodeId node,
                                             std::size_t bytes, bool sleeps, bool calls,
                                             const Effort& effort);

}  // namespace headrace::sim
