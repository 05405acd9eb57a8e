// SPDX-License-Identifier: Apache-2.0
// Trace: the order of events, one per line. When deterministic it has no addresses and no wall
// time: the same seed gives the same bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace headrace::emu {

enum class TraceKind : std::uint8_t {
  submitted,
  retried,
  dropped,
  started,
  fetched,
  faulted,
  finished,
  aborted,
  control
};

/// What the driver or a fault script did to a device or WQ.
enum class DeviceCommand : std::uint8_t {
  enable_device,
  disable_device,
  enable_queue,
  disable_queue,
  reset,
  halt
};

struct TraceEvent {
  TraceKind kind = TraceKind::submitted;
  std::uint32_t device = 0;
  std::int32_t numa_node = 0;  ///< Of the device; set when the event is traced.
  std::uint32_t queue = 0;
  std::uint32_t engine = 0;  ///< Of started and later events.
  std::uint64_t sequence =
      0;  ///< Number of the descriptor within its WQ; a batch's own share it, with `index`.
  std::uint32_t index = 0;  ///< Within a batch, from 1; 0 for submissions.
  bool fenced = false;      ///< A member of a batch that waits for those before it.
  std::uint8_t opcode = 0;
  std::uint8_t raw_status = 0;   ///< finished, faulted, aborted.
  std::uint32_t byte_count = 0;  ///< Requested, or done.
  std::uint64_t time = 0;        ///< Nanoseconds (monotonic), or steps since the start.
  bool in_steps = false;         ///< Deterministic: time counts steps.
  std::int32_t process_id = 0;   ///< The submitting process; 0 if deterministic, and of control.
  DeviceCommand command = DeviceCommand::enable_device;  ///< control.
};

/// Called from engine threads and submitters, serialised; a submitter in a trapped program is a
/// signal handler.
using TraceSink = std::function<void(const TraceEvent&)>;

inline constexpr std::size_t kTraceLineMax = 368;  ///< Fits any line.

/// Writes one line of JSON, without a line end. Returns its length. Async-signal-safe.
std::size_t write_json(const TraceEvent& event, std::span<char> into) noexcept;
/// The same as a string.
[[nodiscard]] std::string to_json(const TraceEvent& event);

}  // namespace headrace::emu
