// SPDX-License-Identifier: Apache-2.0
// Placements: where copies go, by the policy of the user. Named policies depend on nothing but the
// processor of the caller, so they are asked once for each; a user's own is asked at every access.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "headrace/base/atomic.hpp"
#include "headrace/cache/cache.hpp"
#include "headrace/topo/machine.hpp"

namespace headrace::cache::detail {

/// What placement::on() makes: it can be recognised.
struct OnNode {
  NodeId node;
  std::optional<NodeId> operator()(const PlacementContext& /*context*/) const { return node; }
};

/// What became of the question where to put a copy: the number of a node's shelf, or a reason.
///
/// Threading: immutable.
class Place {
 public:
  static constexpr std::uint32_t kNowhere = ~std::uint32_t{0};
  /// The policy threw, or named a node that the machine does not have.
  static constexpr std::uint32_t kError = kNowhere - 1;
};

/// Threading: shared.
class Placements {
 public:
  /// `nodes` has the nodes of the shelves by number. An empty policy is placement::fastest.
  Placements(const topo::Machine& machine, PlacementPolicy policy, std::vector<NodeId> nodes);

  /// The number of the shelf for `source`, or why there is none.
  [[nodiscard]] std::uint32_t of(std::span<const std::byte> source) {
    if (constant_.has_value()) return *constant_;
    return by_processor_ ? of_processor() : ask(source);
  }

 private:
  static constexpr std::size_t kCpuCountMax = 2048;

  [[nodiscard]] std::uint32_t of_processor();
  [[nodiscard]] std::uint32_t ask(std::span<const std::byte> source) const;
  [[nodiscard]] std::uint32_t number_of(NodeId node) const;

  const topo::Machine& machine_;
  const PlacementPolicy policy_;
  const std::vector<NodeId> nodes_;
  std::optional<std::uint32_t> constant_;
  bool by_processor_ = false;
  /// Answers, plus 3 so that 0 is none yet.
  std::vector<Atomic<std::uint32_t>> of_cpu_;
};

}  // namespace headrace::cache::detail
