// SPDX-License-Identifier: Apache-2.0
// Facts: what is known of a machine beside its hwloc topology. Gathered from this system or read
// from a record, so that both are described by the same code.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headrace/topo/machine.hpp"
#include "topology.hpp"

namespace headrace::topo {

struct NodeFacts {
  NodeId id;
  /// All processors that the kernel counts to this node; nothing: conclude it from the topology.
  std::optional<std::vector<CpuId>> cpus;
  std::vector<HugePages> huge_pages;
};

struct Movers {
  MoverDiscovery discovery = MoverDiscovery::not_tried;
  std::vector<DsaDevice> dsa_devices;
  /// Why the list is not complete; empty if it is.
  std::string note;
};

struct Facts {
  std::string origin;
  /// Why the figures and tiers in the topology are believed.
  Evidence evidence = Evidence::firmware;
  Bytes page_bytes;
  /// Memory that the kernel manages, on whatever node; nothing: not known.
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

/// Where libaccel-config is looked for.
inline constexpr const char* kAccelConfigLibrary = "libaccel-config.so.1";

/// Lists the DSA devices of this machine with the library `library_name`.
[[nodiscard]] Movers find_movers(const std::string& library_name);

/// Fails: unsupported if no node is left that the process may use.
[[nodiscard]] Result<Machine> describe(const Topology& topology, const Facts& facts);

/// What the topology itself says about the kind of memory of one node.
enum class TierHint : std::uint8_t {
  none,
  hbm,
  ddr,
  cxl,
  persistent,
  /// Set apart by the firmware for programs that ask for it: HBM or CXL, the figures decide.
  special_purpose,
};

/// Gives each node of `machine` its tier, from its hint, else from the figures. `hints` is parallel
/// to machine.nodes, whose `cpus` are all processors, usable or not.
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
