// SPDX-License-Identifier: Apache-2.0
// Channel: a part of a device's queue that one thread has to itself. It pays no lock and no atomic
// operation for a copy, and no job: what is in flight lies in the channel, and a ticket names it.
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
  /// The queue, as MoverInfo::name has it; empty: the one of `node` that has the most room.
  std::string queue = {};
  /// Nothing, or a node without a device: any queue.
  std::optional<NodeId> node = std::nullopt;
  /// Operations in flight. So many entries of the queue are the channel's for as long as it lives.
  std::size_t depth = 8;
  /// True: each operation counts in OperationStatistics::latency_counts. False: only what met
  /// trouble, a batch of other things than copies, and what was not a copy, whose latency is known
  /// without two more looks at the clock.
  bool latencies = false;
};

/// What a channel has in flight, until poll() or wait() has told its end.
enum class Ticket : std::uint32_t {};

/// Made by Engine::open_channel.
///
/// Every trouble of a device ends as it does for a job: page faults are resumed, resets repeated,
/// and what the device does not do or not answer in time the calling thread does, which the
/// completion says. All of it happens inside poll() and wait().
///
/// Ownership: destruction waits for what is in flight. It comes before that of the engine
///            (checked).
/// Threading: confined.
class HEADRACE_API Channel {
 public:
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  virtual ~Channel() = default;

  /// Starts a copy and returns.
  ///
  /// Ownership: borrows the bytes until the end has been told.
  /// Returns:   accepted; full if `depth` operations are in flight or the device's queue is full;
  ///            closed if the engine has been stopped or the device does not answer; what
  ///            Operation::validate() says. Unless accepted, nothing was started.
  /// Cost:      no allocation; 'headrace bench engine' counts the instructions.
  [[nodiscard]] virtual Submit submit_copy(const CopyPlan& plan, Ticket& ticket) = 0;
  /// Starts `operation` and returns. As submit_copy; what a device cannot do in one descriptor and
  /// not in several is done by the calling thread before this returns.
  [[nodiscard]] virtual Submit submit(const Operation& operation, Ticket& ticket) = 0;
  /// Starts all operations of `batch`, which run in any order but for fences. As submit_copy; once
  /// something of it has begun, what finds the queue full is sent by poll().
  ///
  /// Ownership: borrows the operations, the completions and all bytes that they name until the end
  ///            has been told.
  [[nodiscard]] virtual Submit submit_batch(const Batch& batch, Ticket& ticket) = 0;

  /// Returns whether the operation of `ticket` has ended. Then `completion` says how, and the
  /// ticket names nothing any more. A ticket of nothing is a broken contract (checked).
  [[nodiscard]] virtual bool poll(Ticket ticket, Completion& completion) = 0;
  /// Waits for the end, which comes: what is not answered in time is done by a processor. As
  /// EngineOptions::waiting says.
  [[nodiscard]] virtual Completion wait(Ticket ticket) = 0;

  /// Operations whose end has not been told.
  [[nodiscard]] virtual std::size_t in_flight() const = 0;
  /// Those that there may be: less than was asked for where a device did not answer.
  [[nodiscard]] virtual std::size_t depth() const = 0;
  /// Of the queue that it is a part of.
  [[nodiscard]] virtual const std::string& queue() const = 0;

 protected:
  Channel() = default;
};

}  // namespace headrace::engine
