// SPDX-License-Identifier: Apache-2.0
// Placements: chooses where copies go, by the placement policy. Named policies depend only on the
// caller's node, so their answers are computed beforehand; a user's own policy is called at every
// access.
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

/// The policy of placement::on(), as a type that can be recognised.
struct OnNode {
  NodeId node;
  Placement operator()(const PlacementContext& /*context*/) const { return node; }
};

/// The policy of placement::map(), as a type that can be recognised and checked.
struct ByNode {
  std::vector<std::pair<NodeId, Placement>> places;
  Placement operator()(const PlacementContext& context) const;
};

/// Fails: as Cache::make.
[[nodiscard]] Result<void> check(const PlacementPolicy& policy, const topo::Machine& machine);

/// Answer of a placement policy: the numbers of the nodes' first shards, best first.
///
/// Threading: immutable once written.
struct Places {
  std::uint16_t count;
  /// The policy threw, or named a node that the machine does not have: then count is 0.
  bool is_error;
  std::array<std::uint16_t, Placement::kNodeMax> numbers;  ///< As many as count.
};

/// Threading: shared.
class Placements {
 public:
  /// The nodes of the shards, by number. An empty policy is placement::fastest.
  Placements(const topo::Machine& machine, PlacementPolicy policy, std::vector<NodeId> nodes,
             std::uint32_t shards_per_node);

  /// The shards for `source`. An answer that is not known beforehand is written to `asked`, which
  /// need not be initialized.
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
  const std::uint32_t shards_per_node_;
  Kind kind_ = Kind::asked;
  /// constant: one. by_processor: one per node, by its number, and one for callers on an unknown
  /// node.
  std::vector<Places> known_;
  /// by_processor: for each processor the number of its node plus 1; 0: not known yet.
  std::vector<Atomic<std::uint32_t>> of_cpu_;
};

}  // namespace headrace::cache::detail
