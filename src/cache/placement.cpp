// SPDX-License-Identifier: Apache-2.0
#include "placement.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "headrace/cache/cache.hpp"
#include "headrace/platform/thread.hpp"

namespace headrace::cache {
namespace detail {

Placement ByNode::operator()(const PlacementContext& context) const {
  for (const auto& [caller, placement] : places) {
    if (caller == context.caller_node) return placement;
  }
  return {};
}

Result<void> check(const PlacementPolicy& policy, const topo::Machine& machine) {
  const auto* const by_node = policy.target<ByNode>();
  if (by_node == nullptr) return {};
  std::vector<NodeId> callers;
  for (const auto& [caller, placement] : by_node->places) {
    std::vector<NodeId> named(placement.nodes().begin(), placement.nodes().end());
    named.push_back(caller);
    for (const NodeId node : named) {
      if (machine.node(node) != nullptr) continue;
      return fail(Code::not_found, "place copies by the map of a cache",
                  "the machine has no node " + std::to_string(node.value()),
                  "name nodes of the machine, which 'headrace topo' lists");
    }
    if (std::ranges::find(callers, caller) != callers.end()) {
      return fail(Code::invalid_argument, "place copies by the map of a cache",
                  "node " + std::to_string(caller.value()) + " has two places",
                  "give each node of callers one, with several nodes in it");
    }
    callers.push_back(caller);
  }
  return {};
}

Placements::Placements(const topo::Machine& machine, PlacementPolicy policy,
                       std::vector<NodeId> nodes, std::uint32_t shards_per_node)
    : machine_(machine),
      policy_(policy ? std::move(policy) : placement::fastest),
      nodes_(std::move(nodes)),
      shards_per_node_(shards_per_node) {
  using Named = Placement (*)(const PlacementContext&);
  const auto* const named = policy_.target<Named>();
  if (policy_.target<OnNode>() != nullptr || (named != nullptr && *named == placement::none)) {
    kind_ = Kind::constant;
    known_.push_back(ask({}, {}));
  } else if (policy_.target<ByNode>() != nullptr ||
             (named != nullptr && (*named == placement::fastest || *named == placement::local))) {
    kind_ = Kind::by_processor;
    for (const NodeId node : nodes_) known_.push_back(ask(node, {}));
    known_.push_back(ask({}, {}));
    of_cpu_ = std::vector<Atomic<std::uint32_t>>(kCpuCountMax);
  }
}

std::uint32_t Placements::caller() {
  const std::optional<CpuId> cpu = platform::current_cpu();
  if (!cpu.has_value() || cpu->value() >= of_cpu_.size()) return number_of_caller_node();
  Atomic<std::uint32_t>& known = of_cpu_[cpu->value()];
  const std::uint32_t answer = known.load_relaxed();  // relaxed: a number that never changes.
  if (answer != 0) return answer - 1;
  const std::uint32_t found = number_of_caller_node();
  // Valid for that processor only if the thread has not migrated meanwhile.
  if (platform::current_cpu() == cpu) known.store_relaxed(found + 1);  // relaxed: as above.
  return found;
}

std::uint32_t Placements::number_of_caller_node() const {
  const std::optional<NodeId> caller = caller_node();
  const auto found = std::ranges::find_if(nodes_, [&](NodeId node) { return node == caller; });
  return static_cast<std::uint32_t>(found - nodes_.begin());
}

std::optional<NodeId> Placements::caller_node() const {
  const std::optional<NodeId> caller = platform::current_node();
  return caller.has_value() && machine_.node(*caller) == nullptr ? std::nullopt : caller;
}

Places Placements::ask(std::optional<NodeId> caller, std::span<const std::byte> source) const {
  Places places{};
  try {
    const Placement chosen = policy_({machine_, caller, source});
    for (const NodeId node : chosen.nodes()) {
      const auto found = std::ranges::find(nodes_, node);
      if (found == nodes_.end()) {
        places.count = 0;
        places.is_error = true;
        break;
      }
      const auto number = static_cast<std::uint32_t>(found - nodes_.begin()) * shards_per_node_;
      places.numbers[places.count++] = static_cast<std::uint16_t>(number);
    }
  } catch (...) {
    places.is_error = true;
  }
  return places;
}

}  // namespace detail

namespace placement {

Placement fastest(const PlacementContext& context) {
  if (!context.caller_node.has_value()) return {};
  return std::span<const NodeId>(context.machine.faster_nodes(*context.caller_node));
}

Placement local(const PlacementContext& context) {
  return context.caller_node;
}

Placement none(const PlacementContext& /*context*/) {
  return {};
}

PlacementPolicy on(NodeId node) {
  return detail::OnNode{node};
}

PlacementPolicy map(std::vector<std::pair<NodeId, Placement>> places) {
  return detail::ByNode{std::move(places)};
}

}  // namespace placement
}  // namespace headrace::cache
