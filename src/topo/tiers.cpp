// SPDX-License-Identifier: Apache-2.0
// The tier of each node: stated by the topology, else inferred from figures and processors, else
// unknown. docs/reference/machine.md documents the rules; keep both in sync.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "facts.hpp"

namespace headrace::topo {
namespace {

/// Firmware tables round, and banks of one kind differ a little: below this ratio two bandwidths
/// count as alike.
constexpr double kAlikeBandwidthRatio = 1.2;
/// A link to memory about doubles its latency; within a socket nodes of one kind differ far less.
constexpr double kFarLatencyRatio = 1.5;

/// "Node 3 is", "Nodes 0-7,9 are".
std::string subject(const std::vector<NodeId>& nodes) {
  std::vector<CpuId> numbers;
  numbers.reserve(nodes.size());
  for (const NodeId node : nodes) numbers.emplace_back(node.value());
  return fmt::format("{} {} {}", nodes.size() == 1 ? "Node" : "Nodes", to_list(numbers),
                     nodes.size() == 1 ? "is" : "are");
}

struct Figures {
  std::optional<double> bandwidth;
  std::optional<double> latency;
};

Figures figures_of(const Machine& machine, NodeId initiator, NodeId target) {
  Figures figures;
  if (const Access* access = machine.access(initiator, target); access != nullptr) {
    if (access->bandwidth.has_value()) figures.bandwidth = access->bandwidth->count();
    if (access->latency.has_value()) {
      figures.latency = static_cast<double>(access->latency->count());
    }
  }
  return figures;
}

/// The node with processors that reaches `target` best: highest bandwidth, then lowest latency,
/// then shortest distance.
const Node* best_initiator(const Machine& machine, NodeId target) {
  const auto rank = [&](const Node& node) {
    const Figures figures = figures_of(machine, node.id, target);
    const Access* access = machine.access(node.id, target);
    const std::uint32_t distance = access == nullptr || access->distance == 0
                                       ? std::numeric_limits<std::uint32_t>::max()
                                       : access->distance;
    return std::tuple(-figures.bandwidth.value_or(0),
                      figures.latency.value_or(std::numeric_limits<double>::infinity()), distance);
  };
  const Node* best = nullptr;
  for (const Node& node : machine.nodes) {
    if (!node.cpus.empty() && (best == nullptr || rank(node) < rank(*best))) best = &node;
  }
  return best;
}

/// Tier of a node without processors, by comparison with the memory of its nearest processors.
Tier infer_beside(const Machine& machine, const Node& node) {
  const Node* near = best_initiator(machine, node.id);
  if (near == nullptr) return Tier::unknown;
  const Figures own = figures_of(machine, near->id, node.id);
  const Figures local = figures_of(machine, near->id, near->id);
  const bool bandwidths_known = own.bandwidth.has_value() && local.bandwidth.has_value();
  const bool latencies_known = own.latency.has_value() && local.latency.has_value();
  if (bandwidths_known && *own.bandwidth >= kAlikeBandwidthRatio * *local.bandwidth) {
    return Tier::hbm;
  }
  const bool narrow = bandwidths_known && *own.bandwidth * kAlikeBandwidthRatio <= *local.bandwidth;
  const bool slow = latencies_known && *own.latency >= kFarLatencyRatio * *local.latency;
  const bool contradicted = (bandwidths_known && *own.bandwidth >= *local.bandwidth) ||
                            (latencies_known && *own.latency <= *local.latency);
  return (narrow || slow) && !contradicted ? Tier::cxl : Tier::unknown;
}

/// True if the local bandwidths of the nodes are all unknown, or all known and alike.
bool are_alike(const Machine& machine, const std::vector<const Node*>& nodes) {
  double least = std::numeric_limits<double>::infinity();
  double most = 0;
  std::size_t known_count = 0;
  for (const Node* node : nodes) {
    const Figures local = figures_of(machine, node->id, node->id);
    if (!local.bandwidth.has_value()) continue;
    ++known_count;
    least = std::min(least, *local.bandwidth);
    most = std::max(most, *local.bandwidth);
  }
  return known_count == 0 || (known_count == nodes.size() && most < kAlikeBandwidthRatio * least);
}

}  // namespace

void set_tiers(Machine& machine, const std::vector<TierHint>& hints, Evidence hint_evidence) {
  const auto set = [](Node& node, Tier tier, Evidence evidence) {
    node.tier = tier;
    node.tier_evidence = evidence;
  };
  std::vector<const Node*> with_cpus;
  for (std::size_t index = 0; index < machine.nodes.size(); ++index) {
    Node& node = machine.nodes[index];
    // In the order of TierHint.
    constexpr std::array kStated{Tier::unknown, Tier::hbm,        Tier::ddr,
                                 Tier::cxl,     Tier::persistent, Tier::unknown};
    const Tier stated = kStated[static_cast<std::size_t>(hints[index])];
    if (stated != Tier::unknown) set(node, stated, hint_evidence);
    if (!node.cpus.empty()) with_cpus.push_back(&node);
  }

  const bool alike = are_alike(machine, with_cpus);
  std::vector<NodeId> called_ddr;
  std::vector<NodeId> unknown;
  for (Node& node : machine.nodes) {
    if (node.tier != Tier::unknown) continue;
    if (!node.cpus.empty()) {
      if (alike) {
        set(node, Tier::ddr, Evidence::inferred);
        called_ddr.push_back(node.id);
      }
    } else if (const Tier tier = infer_beside(machine, node); tier != Tier::unknown) {
      set(node, tier, Evidence::inferred);
    }
    if (node.tier == Tier::unknown) unknown.push_back(node.id);
  }
  if (!called_ddr.empty()) {
    machine.notes.push_back(fmt::format(
        "{} called ddr because nothing states the kind of memory and all nodes with processors "
        "look alike.",
        subject(called_ddr)));
  }
  if (!unknown.empty()) {
    machine.notes.push_back(
        fmt::format("{} of unknown tier: nothing states it, and the figures are inconclusive.",
                    subject(unknown)));
  }
}

}  // namespace headrace::topo
