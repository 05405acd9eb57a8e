// SPDX-License-Identifier: Apache-2.0
// Model: the figures of a machine that a simulation needs, read from the `model` of its record
// (docs/reference/machine.md). Not for: discovered hardware, which is topo::Machine.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/result.hpp"
#include "headrace/topo/machine.hpp"

namespace headrace::sim {

/// A rate of 1 is 1 GB/s, one byte per nanosecond.
struct NodeModel {
  std::uint32_t node = 0;
  std::uint32_t socket = 0;
  std::string kind;                ///< "ddr", "hbm", "cxl" or "optane".
  double peak_gb_per_s = 0;        ///< Peak of the bus, which devices reach.
  double read_gb_per_s = 0;        ///< Reads only, by all cores of the socket.
  double mixed_gb_per_s = 0;       ///< Reads and writes 1:1, both counted.
  double write_gb_per_s = 0;       ///< Writes only; 0: derived from the other rates.
  double latency_ns = 0;           ///< Idle, from a core of the same socket.
  double remote_latency_ns = 0;    ///< Idle, from another socket; 0 if there is none.
  double side_cache_gb_per_s = 0;  ///< Of a memory-side cache; 0 if there is none.

  /// The `write` of the shared ceiling: reads r and writes w fit if r / read + w / write <= 1. 0 if
  /// reads and writes have separate ceilings (mixed >= read), which are then `read` and half of
  /// `mixed`.
  [[nodiscard]] double shared_write_gb_per_s() const;
};

struct SocketModel {
  std::uint32_t socket = 0;
  double mesh_read_gb_per_s = 0;  ///< Most that the socket's cores read from all its memory.
  double core_count = 0;
  double l2_bytes = 0;
  double l3_bytes = 0;
  double l3_ways = 0;
  double ddio_ways = 0;
};

/// Between two sockets; the rate is per direction.
struct LinkModel {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  double gb_per_s = 0;
};

/// A cache of which up to `bytes` are used, as one core sees it.
struct LevelModel {
  double bytes = 0;
  double core_count = 1;  ///< Cores that share the cache.
  double read_gb_per_s = 0;
  double fill_gb_per_s = 0;
  double copy_gb_per_s = 0;
  // Of all sharing cores together; 0: core_count times the rate of one.
  double read_all_gb_per_s = 0;
  double fill_all_gb_per_s = 0;
  double copy_all_gb_per_s = 0;
};

/// Rates of one core in its own node's memory, by calls of `bytes`.
struct CallModel {
  double bytes = 0;
  double fill_gb_per_s = 0;
  double copy_gb_per_s = 0;
};

struct CoreModel {
  double copy_gb_per_s = 0;      ///< One core, long copies, own node.
  double call_ns = 0;            ///< Of a copy of 0 bytes.
  double overlapped_bytes = 0;   ///< Copies up to this size overlap with the one before ...
  double exposed_ns = 0;         ///< ... and longer ones wait for their first bytes.
  double outstanding_lines = 0;  ///< Most outstanding misses of one core.
  double queueing_share = 0;     ///< Latency under a load u is idle x (1 + share x u).
  // 0 or empty if not measured.
  double fill_gb_per_s = 0;        ///< One core, own node.
  double update_gb_per_s = 0;      ///< One core, in its first cache.
  double compute_gb_per_s = 0;     ///< Query 6 on columns in a cache.
  double handover_ns = 0;          ///< One line from one core to another and back, halved ...
  double handover_gb_per_s = 0;    ///< ... and the rate of further lines.
  double wake_ns = 0;              ///< Until a sleeping thread runs that another wakes ...
  double waking_ns = 0;            ///< ... and the other's time for it.
  double look_ns = 0;              ///< Until a worker that looks for work has copied a line ...
  double looking_ns = 0;           ///< ... and the time of the submission to it, ...
  double asking_ns = 0;            ///< ... or if an engine asks whether its memory is mapped.
  std::vector<LevelModel> levels;  ///< Caches, smallest first.
  std::vector<CallModel> calls;    ///< Smallest first; rates between two are interpolated.
};

/// Holds for every DSA device of the machine.
struct DsaModel {
  double fabric_gb_per_s = 0;      ///< Per device, its link to the mesh.
  double read_buffer_bytes = 0;    ///< Per device, all engines.
  double shared_submit_ns = 0;     ///< ENQCMD, occupies the submitting thread.
  double dedicated_submit_ns = 0;  ///< MOVDIR64B.
  double alone_ns = 0;             ///< From submission to completion of a transfer of 0 bytes.
  double descriptor_ns = 0;        ///< A device begins one per this time.
  double engine_depth = 0;         ///< Descriptors in flight per engine.
  double translated_bytes = 0;     ///< Longer transfers wait once for the next translation ...
  double translation_ns = 0;       ///< ... for this time.
  double random_ns = 0;            ///< Added to each descriptor if pages are random.
  double misaligned_ns = 0;        ///< Occupies the data path after a target not at 64 bytes.
  double half_aligned_ns = 0;      ///< ... at 32, not at 64 bytes.
  double iotlb_miss_ns = 0;        ///< Per page, like those below.
  double fault_retry_ns = 0;       ///< Fault reported, resolved by the CPU, resubmitted.
  double fault_block_ns = 0;       ///< Block on fault.
  double fault_major_ns = 0;
  double touch_ns = 0;         ///< The CPU touches a page first.
  double touch_huge_ns = 0;    ///< As touch_ns, for a page of 2 MiB.
  double read_back_share = 0;  ///< Share of the rate left with the read-back flag.
  double leak_reads = 0;       ///< Memory reads per byte evicted from the DDIO ways.
};

/// Persistent memory; rates are per DIMM.
struct OptaneModel {
  double dimm_count = 0;
  double read_gb_per_s = 0;
  double write_gb_per_s = 0;
  double grain_bytes = 0;
  double entry_ns = 0;         ///< Per entry of a ring: flushes and fences.
  double stream_gb_per_s = 0;  ///< One thread, non-temporal stores, interleaved.
  double cached_entry_ns = 0;  ///< One entry of 4 KiB by clflush.
  double remote_share = 0;     ///< Time on a remote node over that on the local one.
  double paged_share = 0;      ///< Time through the page cache over that with DAX.
};

/// Network, processor and caches of the injection study.
struct InjectionModel {
  double line_gb_per_s = 0;  ///< The NIC's.
  double interrupt_ns = 0;   ///< Interrupt and kernel path of one message.
  double poll_ns = 0;        ///< A poll of the user's queue.
  double host_ns = 0;        ///< Protocol processing on the host.
  double nic_ns = 0;         ///< Protocol processing on the NIC.
  double l1_bytes = 0;
  double l2_bytes = 0;
  double l3_bytes = 0;
  double l1_ns = 0;
  double l2_ns = 0;
  double l3_ns = 0;
  double snoop_ns = 0;  ///< From another core's L2.
  double memory_ns = 0;
  double work_ns = 0;        ///< Computation per line.
  double working_bytes = 0;  ///< Read again by each computation phase.
};

/// Threading: immutable once read.
struct Model {
  std::string path;
  topo::Machine machine;
  std::vector<NodeModel> nodes;
  std::vector<SocketModel> sockets;
  std::vector<LinkModel> links;
  CoreModel core;
  /// False if the record has none; a scenario that needs it then fails.
  bool has_dsa = false;
  DsaModel dsa;
  bool has_optane = false;
  OptaneModel optane;
  bool has_injection = false;
  InjectionModel injection;

  /// DSA devices that a scenario can use.
  [[nodiscard]] std::uint32_t device_count() const {
    return has_dsa ? static_cast<std::uint32_t>(machine.dsa_devices.size()) : 0;
  }
  /// Nodes of DDR of a socket, which share its cores and its last-level cache evenly; at least 1.
  [[nodiscard]] double ddr_node_count(std::uint32_t socket) const;
  [[nodiscard]] const NodeModel* node(std::uint32_t number) const;
  [[nodiscard]] const SocketModel& socket(std::uint32_t number) const;
};

/// Reads the record at `path`.
///
/// Fails: as topo::replay(); not_found if the record has no `model`; corrupt_data if its content is
/// wrong, naming field, line and remedy.
[[nodiscard]] Result<Model> read_model(const std::string& path);

/// As read_model(), from the text of a record whose machine is known.
[[nodiscard]] Result<Model> parse_model(const std::string& text, const std::string& path,
                                        topo::Machine machine);

/// Line, counted from 1, of the member at `way` ("model.nodes[2].read"), or of its innermost
/// existing ancestor.
[[nodiscard]] std::size_t line_of(std::string_view text, std::string_view way);

}  // namespace headrace::sim
