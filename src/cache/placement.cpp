// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "headrace/cache/cache.hpp"

namespace headrace::cache::placement {

std::optional<NodeId> fastest(const PlacementContext& context) {
  if (!context.caller_node.has_value()) return std::nullopt;
  const std::vector<NodeId> faster = context.machine.faster_nodes(*context.caller_node);
  return faster.empty() ? std::nullopt : std::optional(faster.front());
}

std::optional<NodeId> local(const PlacementContext& context) {
  return context.caller_node;
}

std::optional<NodeId> none(const PlacementContext& /*context*/) {
  return std::nullopt;
}

PlacementPolicy on(NodeId node) {
  return [node](const PlacementContext& /*context*/) { return std::optional(node); };
}

}  // namespace headrace::cache::placement
