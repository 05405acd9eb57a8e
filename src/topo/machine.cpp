// SPDX-License-Identifier: Apache-2.0
#include "headrace/topo/machine.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

#include "headrace/base/names.hpp"

namespace headrace::topo {
namespace {

/// A node counts as faster from 20 % more on: two figures that are each 10 % off must not make a
/// difference, and a smaller gain would not pay for the copy.
constexpr double kClearlyFasterRatio = 1.2;

/// Rank of a tier by speed, 0 for one that cannot be compared.
int speed_rank(Tier tier) {
  switch (tier) {
    case Tier::hbm:
      return 4;
    case Tier::ddr:
      return 3;
    case Tier::cxl:
      return 2;
    case Tier::persistent:
      return 1;
    case Tier::unknown:
      return 0;
  }
  return 0;
}

/// Key for nearness, smaller is nearer: SLIT distance if known, then the package.
std::tuple<std::uint32_t, bool> remoteness(const Machine& machine, const Node& initiator,
                                           const Node& target) {
  const Access* access = machine.access(initiator.id, target.id);
  const std::uint32_t distance = access != nullptr && access->distance != 0
                                     ? access->distance
                                     : std::numeric_limits<std::uint32_t>::max();
  return {distance, !initiator.package.has_value() || initiator.package != target.package};
}

}  // namespace

const Node* Machine::node(NodeId id) const {
  const auto found = std::ranges::lower_bound(nodes, id, {}, &Node::id);
  return found != nodes.end() && found->id == id ? &*found : nullptr;
}

const Access* Machine::access(NodeId initiator, NodeId target) const {
  const auto key = [](const Access& access) { return std::tuple(access.initiator, access.target); };
  const auto found = std::ranges::lower_bound(accesses, std::tuple(initiator, target), {}, key);
  return found != accesses.end() && key(*found) == std::tuple(initiator, target) ? &*found
                                                                                 : nullptr;
}

std::optional<NodeId> Machine::node_of(CpuId cpu) const {
  for (const Node& candidate : nodes) {
    if (std::ranges::binary_search(candidate.cpus, cpu)) return candidate.id;
  }
  return std::nullopt;
}

bool Machine::has_faster_tier() const {
  int slowest = std::numeric_limits<int>::max();
  int fastest = 0;
  for (const Node& candidate : nodes) {
    const int rank = speed_rank(candidate.tier);
    if (rank == 0) continue;
    slowest = std::min(slowest, rank);
    fastest = std::max(fastest, rank);
  }
  return fastest > slowest;
}

std::optional<NodeId> Machine::nearest_with_cpus(NodeId target) const {
  const Node* const memory = node(target);
  if (memory == nullptr) return std::nullopt;
  if (!memory->cpus.empty()) return target;
  const Node* nearest = nullptr;
  for (const Node& candidate : nodes) {
    if (candidate.cpus.empty()) continue;
    if (nearest == nullptr ||
        remoteness(*this, candidate, *memory) < remoteness(*this, *nearest, *memory)) {
      nearest = &candidate;
    }
  }
  return nearest == nullptr ? std::nullopt : std::optional(nearest->id);
}

std::vector<NodeId> Machine::faster_nodes(NodeId initiator) const {
  const Node* own = node(initiator);
  if (own == nullptr) return {};
  const auto bandwidth = [&](NodeId target) -> std::optional<double> {
    const Access* found = access(initiator, target);
    if (found == nullptr || !found->bandwidth.has_value()) return std::nullopt;
    return found->bandwidth->count();
  };
  const auto nearer = [&](const Node* a, const Node* b) {
    return std::tuple(remoteness(*this, *own, *a), a->id) <
           std::tuple(remoteness(*this, *own, *b), b->id);
  };

  std::vector<const Node*> faster;
  const std::optional<double> own_bandwidth = bandwidth(initiator);
  bool hbm_figure_known = false;
  if (own_bandwidth.has_value()) {
    for (const Node& target : nodes) {
      const std::optional<double> seen = bandwidth(target.id);
      if (target.id == initiator || !seen.has_value()) continue;
      hbm_figure_known = hbm_figure_known || target.tier == Tier::hbm;
      if (*seen >= kClearlyFasterRatio * *own_bandwidth) faster.push_back(&target);
    }
    std::ranges::sort(faster, [&](const Node* a, const Node* b) {
      const double of_a = *bandwidth(a->id);
      const double of_b = *bandwidth(b->id);
      return of_a != of_b ? of_a > of_b : nearer(a, b);
    });
  }
  if (!hbm_figure_known && own->tier == Tier::ddr) {
    // Bandwidth to HBM is unknown from here. Assume that the nearest HBM is faster; HBM farther
    // away (on another socket) may not be, so leave it out.
    std::vector<const Node*> hbm;
    for (const Node& target : nodes) {
      if (target.tier == Tier::hbm) hbm.push_back(&target);
    }
    std::ranges::sort(hbm, nearer);
    for (const Node* target : hbm) {
      if (remoteness(*this, *own, *target) == remoteness(*this, *own, *hbm.front())) {
        faster.push_back(target);
      }
    }
  }
  std::vector<NodeId> ids;
  ids.reserve(faster.size());
  for (const Node* target : faster) ids.push_back(target->id);
  return ids;
}

}  // namespace headrace::topo
