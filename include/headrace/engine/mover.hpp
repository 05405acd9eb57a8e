// SPDX-License-Identifier: Apache-2.0
// Mover: one thing that moves bytes - worker threads on a node, a DSA work queue, a test's own.
// The engine splits jobs into shares and gives them to movers; it knows nothing else about them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "headrace/base/export.hpp"
#include "headrace/base/units.hpp"
#include "headrace/engine/job.hpp"

namespace headrace::engine {

/// What became of a submission. Nothing was started unless it is `accepted`.
enum class Submit : std::uint8_t {
  accepted,
  full,    ///< Queues are full: back-pressure, not an error. Slow down and try again.
  closed,  ///< The engine has been stopped.
};
[[nodiscard]] HEADRACE_API std::string_view name(Submit submit);

/// What a mover is, for policies and reports.
struct MoverInfo {
  std::string name;                           ///< "cpu/node0", "dsa0/wq0.0".
  std::optional<NodeId> node = std::nullopt;  ///< The node it belongs to, if any.
  bool hardware = false;                      ///< True if no processor does the copying.
  bool polled = false;  ///< True if it has no thread: it makes progress only inside Mover::poll.
};

/// Threading: shared - the engine calls from any thread.
class HEADRACE_API Mover {
 public:
  Mover() = default;
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;
  virtual ~Mover() = default;

  [[nodiscard]] virtual const MoverInfo& info() const = 0;
  /// Takes `share` or refuses it, and returns at once. A taken share is ended exactly once, by
  /// finish(), which may happen before this returns. After stop() the answer is `closed`.
  [[nodiscard]] virtual Submit submit(Share& share) noexcept = 0;
  /// Looks for ended work and ends it; for movers with `info().polled`. Never blocks.
  virtual void poll() noexcept {}
  /// Takes nothing more, ends every share it holds (what has begun is finished, the rest is
  /// stopped), returns when it holds none. Called once, before destruction; poll() and submit() may
  /// still be called after it.
  virtual void stop() noexcept = 0;

 protected:
  /// Ends `share`; with the last share of a job, the job: its callback runs in here, so no lock
  /// may be held. The share and its job may be gone when this returns. An outcome with fewer bytes
  /// than the share has is either `stopped` or has a cause (checked).
  static void finish(Share& share, const ShareOutcome& outcome) noexcept;
};

/// What a mover policy may look at.
struct MoveContext {
  std::span<const std::unique_ptr<Mover>> movers;
  std::optional<NodeId> source_node = std::nullopt;
  std::optional<NodeId> target_node = std::nullopt;
  std::size_t byte_count = 0;
  /// Counts the submissions of the engine, for policies that take turns.
  std::uint64_t sequence = 0;
};

/// Indexes into MoveContext::movers, without duplicates; the job is split evenly among them, or
/// among the next in turn if it is too small for all.
///
/// Threading: confined.
class MoverChoice {
 public:
  /// Adds a mover; ignored beyond Job::kShareMax and for one that is there already.
  void add(std::size_t mover_index) {
    for (std::size_t i = 0; i < count_; ++i) {
      if (chosen_[i] == mover_index) return;
    }
    if (count_ < Job::kShareMax) chosen_[count_++] = static_cast<std::uint32_t>(mover_index);
  }
  [[nodiscard]] std::span<const std::uint32_t> chosen() const { return {chosen_.data(), count_}; }

 private:
  std::array<std::uint32_t, Job::kShareMax> chosen_{};
  std::size_t count_ = 0;
};

/// Chooses who moves a job. Called on the submitting thread, without any lock held. Choosing
/// nobody, or an index that does not exist, fails the job with Cause::mover_refused.
using MoverPolicy = std::function<void(const MoveContext&, MoverChoice&)>;

/// Policies by name; each is a pure function of its context.
namespace movers {
/// All movers of the target's node; if it is unknown or has none (as a node of memory only has no
/// worker threads), those of the source's node; failing that, the first mover.
HEADRACE_API void near_target(const MoveContext& context, MoverChoice& choice);
/// All movers of the source's node; if it is unknown or has none, those of the target's node;
/// failing that, the first mover.
HEADRACE_API void near_source(const MoveContext& context, MoverChoice& choice);
/// Every mover there is, the first Job::kShareMax if there are more ("brute force").
HEADRACE_API void all(const MoveContext& context, MoverChoice& choice);
/// One mover after the other.
HEADRACE_API void round_robin(const MoveContext& context, MoverChoice& choice);
}  // namespace movers

}  // namespace headrace::engine
