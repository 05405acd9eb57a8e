// SPDX-License-Identifier: Apache-2.0
// Hand-made machines with this machine's processors, so that workers find their node.
#pragma once

#include "headrace/platform/thread.hpp"
#include "headrace/topo/machine.hpp"

namespace headrace::test {

inline topo::Node declared_node(NodeId id, topo::Tier tier) {
  topo::Node node;
  node.id = id;
  node.tier = tier;
  node.tier_evidence = topo::Evidence::declared;
  node.capacity = gib(16);
  return node;
}

inline topo::Access declared_access(NodeId initiator, NodeId target, BytesPerSecond bandwidth) {
  topo::Access access;
  access.initiator = initiator;
  access.target = target;
  access.bandwidth = bandwidth;
  access.evidence = topo::Evidence::declared;
  return access;
}

inline topo::Machine one_node_machine() {
  topo::Machine machine;
  machine.origin = "made by hand";
  machine.page_bytes = kib(4);
  machine.nodes.push_back(declared_node(NodeId(0), topo::Tier::ddr));
  machine.nodes.back().cpus = platform::allowed_cpus();
  return machine;
}

/// `ddr` has the processors; `hbm` is faster memory without processors.
inline topo::Machine two_tier_machine(NodeId ddr, NodeId hbm) {
  topo::Machine machine = one_node_machine();
  machine.nodes.front().id = ddr;
  machine.nodes.insert(hbm < ddr ? machine.nodes.begin() : machine.nodes.end(),
                       declared_node(hbm, topo::Tier::hbm));
  for (const topo::Node& node : machine.nodes) {
    const BytesPerSecond bandwidth(node.id == hbm ? 400e9 : 70e9);
    machine.accesses.push_back(declared_access(ddr, node.id, bandwidth));
  }
  return machine;
}

}  // namespace headrace::test
