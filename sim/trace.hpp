// SPDX-License-Identifier: Apache-2.0
// Trace: a recorded program as operations, and what each thread does in order. Reads the files of
// HEADRACE_TRACE and of `headrace emulate --trace` (docs/reference/trace.md).
// Not for: predicting times (replay.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headrace/base/result.hpp"

namespace headrace::sim {

/// What happened to a buffer since it was last used.
inline constexpr double kNotBefore = 1e18;

/// A submission, of one operation or of a batch of equal ones.
struct TracedOperation {
  double bytes = 0;  ///< In all.
  std::uint32_t count = 1;
  std::uint8_t kind = 0;         ///< engine::OperationKind.
  std::uint8_t path = 0;         ///< engine::Path.
  std::uint8_t source_node = 0;  ///< trace::kNoNode if unknown, as `target_node`.
  std::uint8_t target_node = 0;
  bool cached = false;  ///< Moves an entry of a cache.
  bool is_synchronous = false;
  bool chained = false;  ///< Submitted at the end of the operation `after.front()`.
  /// Bytes that its process moved since it last used these operands, with them; kNotBefore if it
  /// never has.
  double reused_bytes = kNotBefore;
  std::vector<std::uint32_t> after = {};  ///< Operations that end first.
};

struct Step {
  enum class Kind : std::uint8_t {
    operation,  ///< Submits the operation `index`; waits for it if it is synchronous.
    wait,       ///< Waits for the operation `index`.
    send,       ///< `bytes` up to `position` of the lane `index`.
    receive,    ///< Likewise, after they were sent.
    arrival,    ///< Waits for what is after `position`.
    end,        ///< Of the thread; only its computing counts.
  };
  double asleep_ns = 0;     ///< Before the step, and before its computing.
  double computing_ns = 0;  ///< Of the program itself, before the step.
  double waited_ns = 0;     ///< As recorded; not an input of the replay.
  double bytes = 0;
  std::uint64_t position = 0;
  std::uint32_t index = 0;
  Kind kind = Kind::operation;
  bool copied = false;  ///< Send, receive: the queue copied the bytes, and not the program.
};

struct TracedThread {
  std::uint64_t process = 0;
  std::uint64_t number = 0;
  std::uint8_t node = 0;
  double begin_ns = 0;  ///< Since the first record of all threads.
  std::vector<Step> steps = {};
};

struct Trace {
  std::string program;
  bool has_descriptors = false;  ///< Recorded by the emulator.
  double recorded_ns = 0;        ///< From the first to the last record.
  double cut_off_bytes = 0;      ///< Unusable at the end of a file that was cut off.
  std::uint64_t lost_count = 0;  ///< Processes that stopped because the file was full.
  std::vector<TracedOperation> operations;
  std::vector<TracedThread> threads;
  std::uint32_t lane_count = 0;
};

/// Cost: about 150 bytes per operation.
///
/// Fails: not_found, io_failed; invalid_argument if it is no trace or empty; version_mismatch;
///        corrupt_data for operations that end before they begin and clocks that go back;
///        capacity_exceeded beyond 1 GiB.
[[nodiscard]] Result<Trace> read_trace(const std::string& path);

}  // namespace headrace::sim
