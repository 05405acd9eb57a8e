// SPDX-License-Identifier: Apache-2.0
// Facts: knowledge of a machine beyond its hwloc topology. Gathered from this system or read from a
// record, so that the same code describes both.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headrace/topo/machine.hpp"
#include "topology.hpp"

namespace headrace::topo {

struct NodeFacts {
  NodeId id;
  /// All processors that the kernel assigns to this node; nothing: derive them from the topology.
  std::optional<std::vector<CpuId>> cpus;
  std::vector<HugePages> huge_pages;
};

struct Movers {
  MoverDiscovery discovery = MoverDiscovery::not_tried;
  std::vector<DsaDevice> dsa_devices;
  /// Why the list is incomplete; empty if it is complete.
  std::string note;
};

struct Facts {
  std::string origin;
  /// Source of the figures and tiers in the topology.
  Evidence evidence = Evidence::firmware;
  Bytes page_bytes;
  /// Memory that the kernel manages, on all nodes; nothing: unknown.
  std::optional<Bytes> system_memory;
  /// Processors that the process may run on; nothing: all.
  std::optional<std::vector<CpuId>> usable_cpus;
  std::vector<NodeFacts> nodes;
  /// Bandwidths and latencies that 'headrace topo --measure' found; they replace those of the
  /// topology.
  std::vector<Access> measured;
  Movers movers;
  std::vector<std::string> notes;
};

/// Lists the DSA devices of this machine. `bus`: the kernel's folder of them; tests pass others.
[[nodiscard]] Movers find_movers(const std::string& bus = "/sys/bus/dsa/devices");

/// Fails: unsupported if no node is left that the process may use.
[[nodiscard]] Result<Machine> describe(const Topology& topology, const Facts& facts);

/// Kind of memory of one node as stated by the topology.
enum class TierHint : std::uint8_t {
  none,
  hbm,
  ddr,
  cxl,
  persistent,
  /// Reserved by the firmware for programs that ask for it: HBM or CXL, the figures decide.
  special_purpose,
};

/// Sets the tier of each node of `machine` from its hint, else from the figures. `hints` is
/// parallel to machine.nodes, whose `cpus` are all processors, usable or not.
void set_tiers(Machine& machine, const std::vector<TierHint>& hints, Evidence hint_evidence);

/// A record: facts and the topology as XML.
struct Record {
  Facts facts;
  std::string hwloc_xml;
};
[[nodiscard]] std::string to_text(const Record& record);
/// `path` is only for messages.
[[nodiscard]] Result<Record> parse_record(const std::string& text, const std::string& path);

}  // namespace headrace::topo
