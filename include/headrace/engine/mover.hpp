// SPDX-License-Identifier: Apache-2.0
// Mover: one thing that moves bytes - worker threads on a node, a DSA work queue, a test's own.
// The engine gives requests to movers; it knows nothing else about them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "headrace/base/export.hpp"
#include "headrace/base/units.hpp"
#include "headrace/engine/job.hpp"
#include "headrace/engine/operation.hpp"

namespace headrace::engine {

/// What a mover is, for policies and reports.
struct MoverInfo {
  std::string name;                           ///< "cpu/node0", "dsa0/wq0.0".
  std::optional<NodeId> node = std::nullopt;  ///< The node it belongs to, if any.
  bool hardware = false;                      ///< True if no processor does the copying.
  /// True of a device of `headrace emulate`: its figures say nothing of a real one.
  bool emulated = false;
  bool polled = false;  ///< True if it has no thread: it makes progress only inside Mover::reap.
  /// What it can do; other operations never reach it. Of a batch, every one has to be among them.
  OperationSet operations = OperationSet().with(OperationKind::copy);
  bool batches = false;  ///< It takes batches.
  /// Of a queue: so many others of the same device come before it. Policies that choose several
  /// take the first queue of each device before the second of any.
  std::uint32_t queue_rank = 0;
  /// How it is reached and why in this way, for a person: "ENQCMD to a mapped portal".
  std::string note = {};
};

/// Totals of one device queue since its mover was made. Each is exact; together they are not one
/// instant.
struct DeviceStatistics {
  std::uint64_t descriptors = 0;  ///< Accepted by the queue; a batch is one.
  std::uint64_t retries = 0;      ///< Times that the queue was full.
  std::uint64_t page_faults = 0;
  std::uint64_t errors = 0;        ///< Records that tell of an error of the device or a reset.
  std::uint64_t lost = 0;          ///< Descriptors that were not answered in time.
  std::uint64_t bytes_on_cpu = 0;  ///< Done by a processor because of the above.
};

/// Threading: shared - the engine calls from any thread.
class HEADRACE_API Mover {
 public:
  Mover() = default;
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;
  virtual ~Mover() = default;

  [[nodiscard]] virtual const MoverInfo& info() const = 0;
  /// Takes `request` or refuses it, and returns at once. It calls Request::complete for one that it
  /// took exactly once, which may happen before this returns. After stop() the answer is `closed`.
  [[nodiscard]] virtual Submit post(Request& request) noexcept = 0;
  /// Looks for requests that have ended and completes them; for movers with `info().polled`. Never
  /// blocks.
  virtual void reap() noexcept {}
  /// As reap(), for a caller that asks about one request, which may have ended and be another by
  /// now.
  virtual void reap(const Request& request) noexcept {
    static_cast<void>(request);
    reap();
  }
  /// Rests for some microseconds at most, or until something about `request` may have changed.
  /// Returns false if it cannot and has done nothing.
  [[nodiscard]] virtual bool rest(const Request& request) noexcept {
    static_cast<void>(request);
    return false;
  }
  /// Requests that wait or run, for policies. Of a device also what keeps entries of its queue from
  /// others: channels, and descriptors that it did not answer. A snapshot.
  [[nodiscard]] virtual std::size_t load() const noexcept { return 0; }
  /// Of a device; zeros for anything else.
  [[nodiscard]] virtual DeviceStatistics statistics() const noexcept { return {}; }
  /// Takes nothing more, ends every request it holds (what has begun is finished, the rest is
  /// stopped), returns when it holds none. Called once, before destruction; reap() and post() may
  /// still be called after it.
  virtual void stop() noexcept = 0;
};

/// Which processor package a node belongs to.
struct NodePackage {
  NodeId node;
  std::uint32_t package = 0;
  /// Of a node without processors (HBM in flat mode, CXL): the nearest node that has some.
  std::optional<NodeId> nearest = std::nullopt;
};

/// How much each of some movers has to do. Asked only by policies that want to know.
///
/// Threading: immutable.
class Loads {
 public:
  using Of = std::size_t (*)(const void* context, std::size_t mover_index);

  Loads() = default;
  Loads(Of of, const void* context) : of_(of), context_(context) {}
  /// Requests that the mover has; 0 if it is not known.
  [[nodiscard]] std::size_t operator()(std::size_t mover_index) const {
    return of_ == nullptr ? 0 : of_(context_, first_ + mover_index);
  }
  /// Of the movers from `first` on.
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

/// What a mover policy may look at: plain values, so that a simulator can call it as well.
struct MoveContext {
  /// Those of the path that was chosen: all devices, or all processors; the engine's own order.
  std::span<const MoverInfo> movers;
  OperationKind kind = OperationKind::copy;
  /// As the caller says or, of large operations, as the engine has found out (SubmitOptions).
  std::optional<NodeId> source_node = std::nullopt;
  std::optional<NodeId> target_node = std::nullopt;
  /// Node of the submitting thread.
  std::optional<NodeId> caller_node = std::nullopt;
  std::size_t byte_count = 0;
  /// Counts the submissions of the engine, for policies that take turns.
  std::uint64_t sequence = 0;
  /// Where the nodes of the machine are; empty if that is not known.
  std::span<const NodePackage> packages = {};
  /// Requests that each of `movers` has.
  Loads loads = {};
};

/// Chooses who moves a job: indexes into MoveContext::movers. The job is split evenly among them,
/// or goes to the next in turn if it is too small for that. Called on the submitting thread,
/// without any lock held. Choosing none, or an index that does not exist, fails the job with
/// Cause::mover_refused.
using MoverPolicy = std::function<void(const MoveContext&, MoverChoice&)>;

/// Policies by name; each is a pure function of its context. Where one chooses several and devices
/// have several queues, a queue of each device comes before another of any (MoverInfo::queue_rank).
namespace movers {
/// All movers of the target's node; if it is unknown or has none (as a node of memory only has no
/// worker threads), those of the source's node; failing that, one mover after the other.
HEADRACE_API void near_target(const MoveContext& context, MoverChoice& choice);
/// All movers of the source's node; if it is unknown or has none, those of the target's node;
/// failing that, one mover after the other.
HEADRACE_API void near_source(const MoveContext& context, MoverChoice& choice);
/// Every mover there is, MoverChoice::kMoverMax of them if there are more ("brute force").
HEADRACE_API void all(const MoveContext& context, MoverChoice& choice);
/// One mover after the other.
HEADRACE_API void round_robin(const MoveContext& context, MoverChoice& choice);
/// The mover that has the least to do, of equals the next in turn.
HEADRACE_API void least_loaded(const MoveContext& context, MoverChoice& choice);
/// Movers of the source's node and of the target's ("push and pull"). For a node of memory only,
/// such as HBM in flat mode, those of the nearest node with processors (NodePackage::nearest).
HEADRACE_API void push_pull(const MoveContext& context, MoverChoice& choice);
/// Within one processor package all movers of that package; across two, push_pull.
HEADRACE_API void smart_copy(const MoveContext& context, MoverChoice& choice);
/// Below kBySizeBytes the movers of the caller's node (near_target if it is unknown or has none),
/// so that the devices of other nodes stay free; from there on smart_copy.
HEADRACE_API void by_size(const MoveContext& context, MoverChoice& choice);
/// A single device reaches its full bandwidth from about here on, so that several can be faster.
inline constexpr std::size_t kBySizeBytes = std::size_t{1} << 20U;

/// A policy of the library, and its name.
struct Named {
  std::string_view name;
  void (*choose)(const MoveContext& context, MoverChoice& choice);
};
/// All of the above, in that order.
[[nodiscard]] HEADRACE_API std::span<const Named> named();
}  // namespace movers

}  // namespace headrace::engine
