// SPDX-License-Identifier: Apache-2.0
// Placements: where copies go, by the policy of the user. Named policies depend on nothing but the
// caller's node, so they are asked beforehand for each; a user's own is asked at every access.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "headrace/base/atomic.hpp"
#include "headrace/cache/cache.hpp"
#include "headrace/topo/machine.hpp"

namespace headrace::cache::detail {

/// What placement::on() makes: it can be recognised.
struct OnNode {
  NodeId node;
  Placement operator()(const PlacementContext& /*context*/) const { return node; }
};

/// What placement::map() makes: it can be recognised, and checked.
struct ByNode {
  std::vector<std::pair<NodeId, Placement>> places;
  Placement operator()(const PlacementContext& context) const;
};

/// Fails: as Cache::make.
[[nodiscard]] Result<void> check(const PlacementPolicy& policy, const topo::Machine& machine);

/// What became of the question where to put a copy: numbers of shards, best first.
///
/// Threading: immutable once written.
struct Places {
  std::uint16_t count;
  /// The policy threw, or named a node that the machine does not have: then there are none.
  bool is_error;
  std::array<std::uint16_t, Placement::kNodeMax> numbers;  ///< As many as count.
};

/// Threading: shared.
class Placements {
 public:
  /// `nodes` has the nodes of the shards by number. An empty policy is placement::fastest.
  Placements(const topo::Machine& machine, PlacementPolicy policy, std::vector<NodeId> nodes);

  /// The shards for `source`. What is not known beforehand is written to `asked`, which need not be
  /// initialized: a hit seldom needs it.
  [[nodiscard]] const Places& of(std::span<const std::byte> source, Places& asked) {
    switch (kind_) {
      [[likely]] case Kind::constant:
        return known_.front();
      case Kind::by_processor:
        return known_[caller()];
      case Kind::asked:
        break;
    }
    asked = ask(caller_node(), source);
    return asked;
  }

 private:
  static constexpr std::size_t kCpuCountMax = 2048;
  enum class Kind : std::uint8_t { constant, by_processor, asked };

  /// The number of the calling processor's node; nodes_.size() if that is not known.
  [[nodiscard]] std::uint32_t caller();
  [[nodiscard]] std::uint32_t number_of_caller_node() const;
  [[nodiscard]] std::optional<NodeId> caller_node() const;
  [[nodiscard]] Places ask(std::optional<NodeId> caller, std::span<const std::byte> source) const;

  const topo::Machine& machine_;
  const PlacementPolicy policy_;
  const std::vector<NodeId> nodes_;
  Kind kind_ = Kind::asked;
  /// Constant: one. By processor: by the number of the caller's node, and one for callers of whom
  /// nothing is known.
  std::vector<Places> known_;
  /// By processor: the number of its node, plus 1 so that 0 is none yet.
  std::vector<Atomic<std::uint32_t>> of_cpu_;
};

}  // namespace headrace::cache::detail
