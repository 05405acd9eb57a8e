// SPDX-License-Identifier: Apache-2.0
// Model: the figures of a machine that a simulation needs, read from the `model` of its record
// (docs/reference/machine.md). Not for: what discovery finds, which is topo::Machine.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/result.hpp"
#include "headrace/topo/machine.hpp"

namespace headrace::sim {

/// A rate of 1 is 1 GB/s is one byte per nanosecond.
struct NodeModel {
  std::uint32_t node = 0;
  std::uint32_t socket = 0;
  std::string kind;                ///< "ddr", "hbm", "cxl" or "optane".
  double peak_gb_per_s = 0;        ///< Of the bus; what devices reach.
  double read_gb_per_s = 0;        ///< Reads alone, by all cores of the socket.
  double mixed_gb_per_s = 0;       ///< Reads and writes, 1:1, both counted.
  double write_gb_per_s = 0;       ///< Writes alone; 0: what the others say.
  double latency_ns = 0;           ///< Idle, from a core of the same socket.
  double remote_latency_ns = 0;    ///< Idle, from another socket; 0 where there is none.
  double side_cache_gb_per_s = 0;  ///< Of a memory-side cache in front; 0 for none.

  /// Of what writes take of a shared ceiling: reads r and writes w fit if r / read + w / write
  /// <= 1. 0 if reads and writes have ceilings of their own (mixed >= read), which then are `read`
  /// and half of `mixed`.
  [[nodiscard]] double shared_write_gb_per_s() const;
};

struct SocketModel {
  std::uint32_t socket = 0;
  double mesh_read_gb_per_s = 0;  ///< What the cores of the socket can read of all its memory.
  double core_count = 0;
  double l2_bytes = 0;
  double l3_bytes = 0;
  double l3_ways = 0;
  double ddio_ways = 0;
};

/// Between two sockets; each direction has the rate for itself.
struct LinkModel {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  double gb_per_s = 0;
};

/// What one core gets of a cache.
struct LevelModel {
  double bytes = 0;
  double core_count = 1;  ///< That share it.
  double read_gb_per_s = 0;
  double fill_gb_per_s = 0;
  double copy_gb_per_s = 0;
  // Of all cores that share it together; 0: as many times as much.
  double read_all_gb_per_s = 0;
  double fill_all_gb_per_s = 0;
  double copy_all_gb_per_s = 0;
};

/// What one core gets of its own node's memory by calls of so many bytes.
struct CallModel {
  double bytes = 0;
  double fill_gb_per_s = 0;
  double copy_gb_per_s = 0;
};

struct CoreModel {
  double copy_gb_per_s = 0;      ///< One core, long copies, own node.
  double call_ns = 0;            ///< Of a copy of no bytes.
  double overlapped_bytes = 0;   ///< Copies up to this size overlap with the one before ...
  double exposed_ns = 0;         ///< ... and longer ones wait for their first bytes.
  double outstanding_lines = 0;  ///< Misses of one core that are under way at a time.
  double queueing_share = 0;     ///< Latency under a load u is idle x (1 + share x u).
  // What was not measured of a machine is 0 or empty.
  double fill_gb_per_s = 0;     ///< One core, own node.
  double compute_gb_per_s = 0;  ///< Query 6 on columns in a cache.
  double handover_ns = 0;       ///< Of one line from one core to another, and its answer's half ...
  double handover_gb_per_s = 0;    ///< ... and of more, which are read and written again.
  std::vector<LevelModel> levels;  ///< Of caches, the smallest first.
  std::vector<CallModel> calls;    ///< The smallest first; between two it is interpolated.
};

/// Of all DSA devices of the machine.
struct DsaModel {
  double fabric_gb_per_s = 0;      ///< Of one device, its link to the mesh.
  double read_buffer_bytes = 0;    ///< Of one device, all engines.
  double shared_submit_ns = 0;     ///< ENQCMD, held by the submitting thread.
  double dedicated_submit_ns = 0;  ///< MOVDIR64B.
  double alone_ns = 0;             ///< From submission to completion of a transfer of no bytes.
  double descriptor_ns = 0;        ///< A device begins one in this time.
  double engine_depth = 0;         ///< Descriptors that one engine has under way.
  double translated_bytes = 0;     ///< Longer transfers wait once for the next translation ...
  double translation_ns = 0;       ///< ... for so long.
  double random_ns = 0;            ///< And so much with every descriptor if pages are random.
  double misaligned_ns = 0;        ///< The data path is held after a target not at 64 bytes.
  double half_aligned_ns = 0;      ///< ... at 32, not at 64 bytes.
  double iotlb_miss_ns = 0;        ///< Per page, as are the following.
  double fault_retry_ns = 0;       ///< Reported, resolved by the CPU, submitted again.
  double fault_block_ns = 0;       ///< Block on fault.
  double fault_major_ns = 0;
  double touch_ns = 0;         ///< The CPU touches a page first.
  double touch_huge_ns = 0;    ///< As touch_ns, of 2 MiB.
  double read_back_share = 0;  ///< Of the rate, with the read-back flag.
  double leak_reads = 0;       ///< Reads of memory per byte that is pushed out of the DDIO ways.
};

/// Of each DIMM of persistent memory.
struct OptaneModel {
  double dimm_count = 0;
  double read_gb_per_s = 0;
  double write_gb_per_s = 0;
  double grain_bytes = 0;
  double entry_ns = 0;         ///< Of one entry of a ring: flushes and fences.
  double stream_gb_per_s = 0;  ///< One thread, non-temporal stores, interleaved.
  double cached_entry_ns = 0;  ///< One entry of 4 KiB by clflush.
  double remote_share = 0;     ///< Time on the wrong node over that on the right one.
  double paged_share = 0;      ///< Time through the page cache over that with DAX.
};

/// Network, processor and caches of the injection study.
struct InjectionModel {
  double line_gb_per_s = 0;  ///< The NIC's.
  double interrupt_ns = 0;   ///< Interrupt and kernel path of one message.
  double poll_ns = 0;        ///< A poll of the user's queue.
  double host_ns = 0;        ///< Of the protocol's work, on the host.
  double nic_ns = 0;         ///< The same on the NIC.
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
  /// Absent where the record has none: a scenario that needs it says so.
  bool has_dsa = false;
  DsaModel dsa;
  bool has_optane = false;
  OptaneModel optane;
  bool has_injection = false;
  InjectionModel injection;

  [[nodiscard]] const NodeModel* node(std::uint32_t number) const;
  [[nodiscard]] const SocketModel& socket(std::uint32_t number) const;
};

/// Reads the record at `path`.
///
/// Fails: as topo::replay(); not_found if the record has no `model`; corrupt_data for what is in
/// it, naming field, line and remedy.
[[nodiscard]] Result<Model> read_model(const std::string& path);

/// As read_model(), of the text of a record whose machine is known.
[[nodiscard]] Result<Model> parse_model(const std::string& text, const std::string& path,
                                        topo::Machine machine);

/// Line, from 1 on, of the member at `way` ("model.nodes[2].read"), or of the innermost that is
/// there.
[[nodiscard]] std::size_t line_of(std::string_view text, std::string_view way);

}  // namespace headrace::sim
