// SPDX-License-Identifier: Apache-2.0
// Mover: the interface to what executes requests: worker threads of a node, a DSA work queue, or a
// custom one. The policies that choose movers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "headrace/base/export.hpp"
#include "headrace/base/units.hpp"
#include "headrace/engine/job.hpp"
#include "headrace/engine/operation.hpp"

namespace headrace::engine {

/// Properties of a mover, for policies and reports.
struct MoverInfo {
  std::string name;                           ///< "cpu/node0", "dsa0/wq0.0".
  std::optional<NodeId> node = std::nullopt;  ///< The node it belongs to, if any.
  bool hardware = false;                      ///< No processor does the copying.
  /// A device of `headrace emulate`: its performance is not that of hardware.
  bool emulated = false;
  bool polled = false;  ///< It has no thread and makes progress only inside Mover::reap.
  /// Supported operations. It gets no others, nor batches with others.
  OperationSet operations = OperationSet().with(OperationKind::copy);
  bool batches = false;  ///< It takes batches.
  /// Rank of a queue within its device. Policies that choose several movers take the first queue of
  /// each device before the second of any.
  std::uint32_t queue_rank = 0;
  /// How it is accessed and why, for a person: "ENQCMD to a mapped portal".
  std::string note = {};
};

/// Totals of one device queue since its mover was made. Each is exact, but not all from one
/// instant.
struct DeviceStatistics {
  std::uint64_t descriptors = 0;  ///< Accepted by the queue; a batch counts once.
  std::uint64_t retries = 0;      ///< Submissions that found the queue full.
  std::uint64_t page_faults = 0;
  std::uint64_t errors = 0;        ///< Completion records with a device error or reset.
  std::uint64_t lost = 0;          ///< Descriptors that timed out.
  std::uint64_t bytes_on_cpu = 0;  ///< Done by a processor because of the above.
};

/// Threading: shared - the engine calls from any thread.
class HEADRACE_API Mover {
 public:
  Mover() = default;
  Mover& operator=(Mover&&) = delete;
  virtual ~Mover() = default;

  [[nodiscard]] virtual const MoverInfo& info() const = 0;
  /// Accepts or refuses `request` without blocking. Calls Request::complete exactly once for each
  /// accepted request, possibly before this returns. After stop() the answer is `closed`.
  [[nodiscard]] virtual Submit post(Request& request) noexcept = 0;
  /// Completes requests that have ended; for movers with `info().polled`. Never blocks.
  virtual void reap() noexcept {}
  /// As reap(), for `request` only, which may have ended and been reused since.
  virtual void reap(const Request& request) noexcept {
    static_cast<void>(request);
    reap();
  }
  /// Rests for at most some microseconds, or until `request` may have changed. Returns false,
  /// having done nothing, if unsupported.
  [[nodiscard]] virtual bool rest(const Request& request) noexcept {
    static_cast<void>(request);
    return false;
  }
  /// Requests that wait or run, for policies; of a device, queue entries in use, including those of
  /// channels and of descriptors that timed out. A snapshot.
  [[nodiscard]] virtual std::size_t load() const noexcept { return 0; }
  /// Zeros unless it is a device.
  [[nodiscard]] virtual DeviceStatistics statistics() const noexcept { return {}; }
  /// Refuses new requests, finishes those begun, ends the others as stopped, and returns when it
  /// holds none. reap() and post() may still be called. Called again once no thread posts.
  virtual void stop() noexcept = 0;
};

/// The processor package of a node.
struct NodePackage {
  NodeId node;
  std::uint32_t package = 0;
  /// For a node without processors (HBM in flat mode, CXL): the nearest node with processors.
  std::optional<NodeId> nearest = std::nullopt;
};

/// The load of each mover, computed on request.
///
/// Threading: immutable.
class Loads {
 public:
  using Of = std::size_t (*)(const void* context, std::size_t mover_index);

  Loads() = default;
  Loads(Of of, const void* context) : of_(of), context_(context) {}
  /// Mover::load(); 0 if not known.
  [[nodiscard]] std::size_t operator()(std::size_t mover_index) const {
    return of_ == nullptr ? 0 : of_(context_, first_ + mover_index);
  }
  /// The loads of the movers from `first` on.
  [[nodiscard]] Loads from(std::size_t first) const {
    Loads made = *this;
    made.first_ += first;
    return made;
  }

 private:
  Of of_ = nullptr;
  const void* context_ = nullptr;
  std::size_t first_ = 0;
};

/// Input of a mover policy: plain values, so that a simulator can call policies as well.
struct MoveContext {
  /// The movers of the chosen path, all devices or all processors, in the engine's order.
  std::span<const MoverInfo> movers;
  OperationKind kind = OperationKind::copy;
  /// Set by the caller or, for large operations, looked up by the engine (SubmitOptions).
  std::optional<NodeId> source_node = std::nullopt;
  std::optional<NodeId> target_node = std::nullopt;
  /// Node of the submitting thread.
  std::optional<NodeId> caller_node = std::nullopt;
  std::size_t byte_count = 0;
  /// Number of the submission, counted by its thread from another start each, for round-robin.
  std::uint64_t sequence = 0;
  /// Empty if not known.
  std::span<const NodePackage> packages = {};
  /// The loads of `movers`.
  Loads loads = {};
};

/// Chooses movers for a job, as indexes into MoveContext::movers. The job is split evenly among
/// them, or goes to one of them in turn if too small. Called on the submitting thread, without any
/// lock held. An empty choice or an invalid index fails the job with Cause::mover_refused.
using MoverPolicy = std::function<void(const MoveContext&, MoverChoice&)>;

/// The policies of the library, pure functions of the context. Those that choose several movers
/// take the first queue of each device before the second of any (MoverInfo::queue_rank).
namespace movers {
/// All movers of the target's node; if it is unknown or has none (a memory-only node has no worker
/// threads), those of the source's node; else round_robin.
HEADRACE_API void near_target(const MoveContext& context, MoverChoice& choice);
/// All movers of the source's node; if it is unknown or has none, those of the target's node; else
/// round_robin.
HEADRACE_API void near_source(const MoveContext& context, MoverChoice& choice);
/// Every mover, up to MoverChoice::kMoverMax ("brute force").
HEADRACE_API void all(const MoveContext& context, MoverChoice& choice);
/// One mover, the next in turn.
HEADRACE_API void round_robin(const MoveContext& context, MoverChoice& choice);
/// The mover with the lowest load; of equals, the next in turn.
HEADRACE_API void least_loaded(const MoveContext& context, MoverChoice& choice);
/// All movers of the source's node and of the target's ("push and pull"). For a memory-only node,
/// such as HBM in flat mode, those of the nearest node with processors (NodePackage::nearest); if
/// there are none, round_robin.
HEADRACE_API void push_pull(const MoveContext& context, MoverChoice& choice);
/// Within one processor package all its movers, else push_pull.
HEADRACE_API void smart_copy(const MoveContext& context, MoverChoice& choice);
/// Below kBySizeBytes the movers of the caller's node (near_target if it is unknown or has none),
/// to leave the devices of other nodes free; else smart_copy.
HEADRACE_API void by_size(const MoveContext& context, MoverChoice& choice);
/// From about here on, one device reaches its full bandwidth, so several can be faster.
inline constexpr std::size_t kBySizeBytes = std::size_t{1} << 20U;

/// A policy and its name.
struct Named {
  std::string_view name;
  void (*choose)(const MoveContext& context, MoverChoice& choice);
};
/// All policies above, in that order.
[[nodiscard]] HEADRACE_API std::span<const Named> named();
}  // namespace movers

}  // namespace headrace::engine
