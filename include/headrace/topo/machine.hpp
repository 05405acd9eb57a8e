// SPDX-License-Identifier: Apache-2.0
// Machine: the memory, processors and movers of a machine, as a value that can be recorded,
// replayed and made by hand. Not for: changing anything, or the current load.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/export.hpp"
#include "headrace/base/names.hpp"
#include "headrace/base/result.hpp"
#include "headrace/base/units.hpp"

namespace headrace::topo {

using headrace::name;

/// Class of memory. Whether a node is near or far depends on the initiator: see Machine::access.
enum class Tier : std::uint8_t { hbm, ddr, cxl, persistent, unknown };

/// Source of a figure or a tier.
enum class Evidence : std::uint8_t {
  unknown,
  firmware,  ///< HMAT or SRAT, through the kernel or hwloc.
  declared,  ///< Written into the record by hand, from a data sheet or a publication.
  measured,  ///< Measured on this machine on request.
  inferred,  ///< Derived from other facts, such as the tier from the bandwidth.
};

/// A pool of huge pages of one size on one node.
struct HugePages {
  Bytes page_bytes;
  std::uint64_t total_count = 0;
  std::uint64_t free_count = 0;
};

/// One NUMA node.
struct Node {
  NodeId id;
  Tier tier = Tier::unknown;
  Evidence tier_evidence = Evidence::unknown;
  Bytes capacity;
  /// Memory-side cache in front of this node (HBM in cache mode), the largest if there are several,
  /// 0 if unknown.
  Bytes memory_side_cache;
  /// Processors of this node that this process may use; empty for a node without processors.
  std::vector<CpuId> cpus;
  /// Physical package of the node, if known.
  std::optional<std::uint32_t> package;
  std::vector<HugePages> huge_pages;
};

/// Performance of the memory of one node as seen by the processors of another, or of the same.
struct Access {
  NodeId initiator;  ///< A node with processors.
  NodeId target;
  std::optional<BytesPerSecond> bandwidth;          ///< Read bandwidth; higher is better.
  std::optional<std::chrono::nanoseconds> latency;  ///< Idle load latency; lower is better.
  Evidence evidence = Evidence::unknown;            ///< Of bandwidth and latency.
  /// SLIT distance: 10 is local, higher is farther; 0 if the firmware has none.
  std::uint32_t distance = 0;
};

/// One level of processor cache.
struct CpuCache {
  std::uint32_t level = 0;
  Bytes capacity;
  std::uint32_t line_bytes = 0;
  std::uint32_t instance_count = 0;
};

/// One work queue of a DSA device, as configured.
struct DsaQueue {
  QueueId id;
  std::string mode;   ///< "shared" or "dedicated".
  std::string state;  ///< "enabled", "disabled", ...
  std::string type;   ///< "user", "kernel", ...
  std::string device_name;
  std::uint32_t entry_count = 0;
  Bytes transfer_max;
  std::uint32_t batch_max = 0;  ///< Descriptors of one batch; 0 if a record lacks it.
  bool block_on_fault = false;
};

/// A DSA: moves bytes without a core.
struct DsaDevice {
  DeviceId id;
  std::optional<NodeId> node;
  std::string state;
  std::uint32_t engine_count = 0;
  std::vector<DsaQueue> queues;
};

/// How the list of movers was obtained.
enum class MoverDiscovery : std::uint8_t {
  not_tried,       ///< Not asked for, or replayed from a record without movers.
  library_absent,  ///< Of old records: libaccel-config was missing; devices, if any, are unknown.
  library_failed,  ///< Of old records: libaccel-config failed.
  done,            ///< The list, which may be empty, is complete.
};

/// A machine as seen by one process: in a restricted cpuset, what that process may use.
///
/// Threading: immutable once discovered; copies are deep.
struct HEADRACE_API Machine {
  std::string cpu_model;
  /// Source of this description: "discovered", or the `origin` field of the record.
  std::string origin;
  Bytes page_bytes;
  std::vector<Node> nodes;  ///< Ascending by id; never empty.
  std::vector<Access>
      accesses;  ///< By initiator, then target; pairs without any known figure are absent.
  std::vector<CpuCache> cpu_caches;
  std::vector<DsaDevice> dsa_devices;
  MoverDiscovery mover_discovery = MoverDiscovery::not_tried;
  /// What discovery guessed or left out, one sentence each.
  std::vector<std::string> notes;

  [[nodiscard]] const Node* node(NodeId id) const;
  [[nodiscard]] const Access* access(NodeId initiator, NodeId target) const;
  /// Node of `cpu`, if this process may use that processor.
  [[nodiscard]] std::optional<NodeId> node_of(CpuId cpu) const;
  /// True if one node is of a faster tier than another, so that there is a tier to prefetch into.
  [[nodiscard]] bool has_faster_tier() const;
  /// Nodes that are faster for processors of `initiator` than their local memory: higher bandwidth,
  /// or hbm next to ddr if no bandwidth is known. Best first; empty on a machine with one kind of
  /// memory.
  [[nodiscard]] std::vector<NodeId> faster_nodes(NodeId initiator) const;
  /// The node with processors nearest to `target`: `target` if it has any. Compared by SLIT
  /// distance, then by package; nothing if no node has processors.
  [[nodiscard]] std::optional<NodeId> nearest_with_cpus(NodeId target) const;
};

struct DiscoverOptions {
  /// List DSA devices.
  bool find_movers = true;
};

/// Describes this machine. Missing facts (no firmware tables, restricted cpuset, one node,
/// containers) give notes, not errors. A pinned calling thread sees only the processors that it may
/// use. HWLOC_XMLFILE and HWLOC_SYNTHETIC replace this machine by another, with a note.
///
/// Threading: shared.
/// Fails: unsupported if the topology library itself cannot start.
/// Cost: milliseconds; reads sysfs.
[[nodiscard]] HEADRACE_API Result<Machine> discover(const DiscoverOptions& options = {});

/// A machine, and the text of its record.
struct Recording {
  Machine machine;
  std::string text;
};

/// Describes this machine and makes its record: JSON with the hwloc XML and the facts that hwloc
/// lacks, without host name and serial numbers (schema "headrace-machine-record", see
/// docs/reference/machine.md).
///
/// Fails: as discover().
[[nodiscard]] HEADRACE_API Result<Recording> make_record(const DiscoverOptions& options = {});

/// Reads a record, by the same code as discover(), so that records are fixtures for it.
///
/// Fails: not_found, permission_denied, io_failed or capacity_exceeded for the file; corrupt_data
///        or version_mismatch for its contents, naming the file and the field; unsupported if no
///        node may be used.
[[nodiscard]] HEADRACE_API Result<Machine> replay(const std::string& path);

/// `machine` as JSON text (schema "headrace-machine", see docs/reference/machine.md).
[[nodiscard]] HEADRACE_API std::string to_json(const Machine& machine);

}  // namespace headrace::topo
