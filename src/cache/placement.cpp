// SPDX-License-Identifier: Apache-2.0
#include "placement.hpp"

#include <utility>
#include <vector>

#include "headrace/cache/cache.hpp"
#include "headrace/platform/thread.hpp"

namespace headrace::cache {
namespace detail {

Placements::Placements(const topo::Machine& machine, PlacementPolicy policy,
                       std::vector<NodeId> nodes)
    : machine_(machine),
      policy_(policy ? std::move(policy) : placement::fastest),
      nodes_(std::move(nodes)) {
  using Named = std::optional<NodeId> (*)(const PlacementContext&);
  if (const auto* const on = policy_.target<OnNode>()) {
    constant_ = number_of(on->node);
  } else if (const auto* const named = policy_.target<Named>()) {
    if (*named == placement::none) constant_ = Place::kNowhere;
    by_processor_ = *named == placement::fastest || *named == placement::local;
  }
  if (by_processor_) of_cpu_ = std::vector<Atomic<std::uint32_t>>(kCpuCountMax);
}

std::uint32_t Placements::of_processor() {
  const std::optional<CpuId> cpu = platform::current_cpu();
  if (!cpu.has_value() || cpu->value() >= of_cpu_.size()) return ask({});
  Atomic<std::uint32_t>& known = of_cpu_[cpu->value()];
  const std::uint32_t answer = known.load_relaxed();  // relaxed: a number that never changes.
  if (answer != 0) return answer - 3;
  const std::uint32_t asked = ask({});
  // If the thread has not moved meanwhile, it is that processor's.
  if (platform::current_cpu() == cpu) known.store_relaxed(asked + 3);  // relaxed: as above.
  return asked;
}

std::uint32_t Placements::ask(std::span<const std::byte> source) const {
  std::optional<NodeId> caller = platform::current_node();
  if (caller.has_value() && machine_.node(*caller) == nullptr) caller = std::nullopt;
  try {
    const std::optional<NodeId> chosen = policy_({machine_, caller, source});
    return chosen.has_value() ? number_of(*chosen) : Place::kNowhere;
  } catch (...) {
    return Place::kError;
  }
}

std::uint32_t Placements::number_of(NodeId node) const {
  for (std::uint32_t number = 0; number < nodes_.size(); ++number) {
    if (nodes_[number] == node) return number;
  }
  return Place::kError;
}

}  // namespace detail

namespace placement {

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
  return detail::OnNode{node};
}

}  // namespace placement
}  // namespace headrace::cache
