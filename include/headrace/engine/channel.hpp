// SPDX-License-Identifier: Apache-2.0
// Channel: entries of a device queue reserved for one thread. A copy needs no lock, no atomic
// read-modify-write and no job; a ticket names each operation in flight.
// Not for: processors, several queues at once, callbacks; Engine::submit has all of these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "headrace/base/export.hpp"
#include "headrace/base/units.hpp"
#include "headrace/engine/job.hpp"
#include "headrace/engine/operation.hpp"

namespace headrace::engine {

struct ChannelOptions {
  /// MoverInfo::name of the queue; empty: the queue of `node` with the most room.
  std::string queue = {};
  /// Default, or a node without a free queue: any queue.
  std::optional<NodeId> node = std::nullopt;
  /// Maximum operations in flight: entries of the queue reserved while the channel exists.
  std::size_t depth = 8;
  /// True: OperationStatistics::latency_counts includes each operation. False: not successful
  /// copies and batches of copies, which saves reading the clock twice for each.
  bool latencies = false;
};

/// Names an operation in flight, until poll() or wait() has reported its completion.
enum class Ticket : std::uint32_t {};

/// Made by Engine::open_channel.
///
/// Errors of a device are handled as for a job, inside poll() and wait(): page faults are resolved,
/// operations lost to a reset are resubmitted, and the calling thread does what the device does not
/// do, with `fell_back`.
///
/// Ownership: destruction waits for operations in flight. Destroy before the engine (checked).
/// Threading: confined.
class HEADRACE_API Channel {
 public:
  Channel& operator=(Channel&&) = delete;
  virtual ~Channel() = default;

  /// Starts a copy and returns.
  ///
  /// Ownership: borrows the bytes until poll() or wait() has reported the completion.
  /// Returns:   accepted; full if `depth` operations are in flight or the device queue is full;
  ///            closed if the engine was stopped or the device does not respond; or the answer of
  ///            Operation::validate(). Unless accepted, nothing was started.
  /// Cost:      no allocation; 'headrace bench engine' counts the instructions.
  [[nodiscard]] virtual Submit submit_copy(const CopyPlan& plan, Ticket& ticket) = 0;
  /// As submit_copy, for any operation. The calling thread executes what the device does not
  /// support before this returns.
  [[nodiscard]] virtual Submit submit(const Operation& operation, Ticket& ticket) = 0;
  /// As submit_copy, for all operations of `batch`, in any order except at fences. Once part of it
  /// has begun, poll() retries what finds the queue full.
  ///
  /// Ownership: borrows the operations, the completions and all bytes that they name until poll()
  ///            or wait() has reported the completion.
  [[nodiscard]] virtual Submit submit_batch(const Batch& batch, Ticket& ticket) = 0;

  /// Returns whether the operation of `ticket` has ended; if so, sets `completion` and invalidates
  /// the ticket. `ticket` must be valid (checked).
  [[nodiscard]] virtual bool poll(Ticket ticket, Completion& completion) = 0;
  /// Waits for the operation, in the way of EngineOptions::waiting. After DeviceOptions::timeout
  /// a processor does it.
  [[nodiscard]] virtual Completion wait(Ticket ticket) = 0;

  /// Operations submitted and not yet reported by poll() or wait().
  [[nodiscard]] virtual std::size_t in_flight() const = 0;
  /// Maximum operations in flight; smaller than requested after a device timeout.
  [[nodiscard]] virtual std::size_t depth() const = 0;
  /// Name of its queue.
  [[nodiscard]] virtual const std::string& queue() const = 0;

 protected:
  Channel() = default;
};

}  // namespace headrace::engine
