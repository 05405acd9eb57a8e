// SPDX-License-Identifier: Apache-2.0
// From topology and facts to Machine. Every gap becomes a note. Never reads the running system, so
// that a record is described as the machine itself would be.
#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <utility>

#include "facts.hpp"

namespace headrace::topo {
namespace {

/// Figures beyond these are errors in a firmware table or a broken record.
constexpr double kBandwidthMax = 1e15;
constexpr std::uint64_t kLatencyNsMax = 1'000'000'000;
constexpr std::uint64_t kBytesPerMebibyte = 1U << 20U;  // hwloc's bandwidths are MiB/s.

const char* info(hwloc_obj_t object, const char* name) {
  return hwloc_obj_get_info_by_name(object, name);
}

bool is_word(const char* text, const char* word) {
  return text != nullptr && ::strcasecmp(text, word) == 0;
}

/// Reads hwloc 2.x's names. hwloc's guess of HBM from bandwidths looks the same as a statement of
/// the firmware, so both count as stated.
TierHint hint_of(hwloc_obj_t node) {
  const char* subtype = node->subtype;
  const char* dax_type = info(node, "DAXType");
  const std::string_view kind = subtype != nullptr ? subtype : "";
  if (is_word(subtype, "NVM") || is_word(subtype, "CXL-NVM") || is_word(dax_type, "NVM")) {
    return TierHint::persistent;
  }
  if (kind.starts_with("CXL") || info(node, "CXLDevice") != nullptr) return TierHint::cxl;
  if (is_word(subtype, "HBM") || is_word(subtype, "MCDRAM")) return TierHint::hbm;
  if (is_word(subtype, "DRAM")) return TierHint::ddr;
  if (is_word(subtype, "SPM") || is_word(dax_type, "SPM")) return TierHint::special_purpose;
  return TierHint::none;
}

const NodeFacts* facts_of(const Facts& facts, NodeId id) {
  const auto found = std::ranges::find(facts.nodes, id, &NodeFacts::id);
  return found != facts.nodes.end() ? &*found : nullptr;
}

/// All processors of each node. hwloc lists for a memory-only node the processors that it is local
/// to. So without the kernel's list, each processor goes to one node: not to stated special memory
/// if there is another node, then to the node local to fewest processors, then to the first (the
/// kernel numbers nodes with processors first).
std::map<std::uint32_t, Bitmap> owned_cpus(const Topology& topology,
                                           const std::vector<hwloc_obj_t>& nodes,
                                           const Facts& facts) {
  std::map<std::uint32_t, Bitmap> owned;
  hwloc_const_bitmap_t all = hwloc_topology_get_topology_cpuset(topology.get());
  const Bitmap open(hwloc_bitmap_dup(all));
  std::vector<hwloc_obj_t> unlisted;
  for (hwloc_obj_t node : nodes) {
    const NodeFacts* known = facts_of(facts, NodeId(node->os_index));
    if (known == nullptr || !known->cpus.has_value()) {
      unlisted.push_back(node);
      continue;
    }
    Bitmap cpus = to_bitmap(*known->cpus);
    hwloc_bitmap_and(cpus.get(), cpus.get(), open.get());
    hwloc_bitmap_andnot(open.get(), open.get(), cpus.get());
    owned[node->os_index] = std::move(cpus);
  }
  const auto rank = [](hwloc_obj_t node) {
    const TierHint hint = hint_of(node);
    return std::tuple(hint != TierHint::none && hint != TierHint::ddr,
                      hwloc_bitmap_weight(node->cpuset), node->os_index);
  };
  std::ranges::sort(unlisted, {}, rank);
  for (hwloc_obj_t node : unlisted) {
    Bitmap cpus = make_bitmap();
    hwloc_bitmap_and(cpus.get(), node->cpuset, open.get());
    hwloc_bitmap_andnot(open.get(), open.get(), cpus.get());
    owned[node->os_index] = std::move(cpus);
  }
  return owned;
}

std::optional<std::uint32_t> package_of(const Topology& topology, hwloc_obj_t node) {
  for (hwloc_obj_t above = node->parent; above != nullptr; above = above->parent) {
    if (above->type == HWLOC_OBJ_PACKAGE && above->os_index != HWLOC_UNKNOWN_INDEX) {
      return above->os_index;
    }
  }
  // On a machine with one package hwloc attaches the memory to the machine.
  if (hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_PACKAGE) != 1) return std::nullopt;
  hwloc_obj_t only = hwloc_get_obj_by_type(topology.get(), HWLOC_OBJ_PACKAGE, 0);
  return only->os_index != HWLOC_UNKNOWN_INDEX ? std::optional(only->os_index) : std::nullopt;
}

Bytes memory_side_cache_of(hwloc_obj_t node) {
  std::uint64_t largest = 0;
  for (hwloc_obj_t above = node->parent; above != nullptr && above->type == HWLOC_OBJ_MEMCACHE;
       above = above->parent) {
    largest = std::max<std::uint64_t>(largest, above->attr->cache.size);
  }
  return Bytes(largest);
}

std::vector<HugePages> huge_pages_of(hwloc_obj_t node, const Facts& facts) {
  if (const NodeFacts* known = facts_of(facts, NodeId(node->os_index)); known != nullptr) {
    return known->huge_pages;
  }
  std::vector<HugePages> pools;
  const auto& memory = node->attr->numanode;
  for (unsigned index = 0; index < memory.page_types_len; ++index) {
    // hwloc does not know how many are free; report 0, the safe value.
    const auto& type = memory.page_types[index];
    if (type.size > facts.page_bytes.count()) pools.push_back({Bytes(type.size), type.count, 0});
  }
  return pools;
}

/// Value of the first of `attributes` that is known from `initiator`, or 0.
std::uint64_t figure(const Topology& topology, const std::array<hwloc_memattr_id_e, 2>& attributes,
                     hwloc_bitmap_t initiator, hwloc_obj_t target) {
  hwloc_location location{};
  location.type = HWLOC_LOCATION_TYPE_CPUSET;
  location.location.cpuset = initiator;
  for (const hwloc_memattr_id_e attribute : attributes) {
    hwloc_uint64_t value = 0;
    if (hwloc_memattr_get_value(topology.get(), attribute, target, &location, 0, &value) == 0 &&
        value != 0) {
      return value;
    }
  }
  return 0;
}

/// SLIT distances by (initiator, target); empty if the firmware has none.
std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> distances(
    const Topology& topology) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> found;
  unsigned count = 1;
  hwloc_distances_s* matrix = nullptr;
  if (hwloc_distances_get_by_name(topology.get(), "NUMALatency", &count, &matrix, 0) != 0 ||
      count == 0 || matrix == nullptr) {
    return found;
  }
  for (unsigned from = 0; from < matrix->nbobjs; ++from) {
    for (unsigned to = 0; to < matrix->nbobjs; ++to) {
      const std::uint64_t value = matrix->values[from * matrix->nbobjs + to];
      if (matrix->objs[from] == nullptr || matrix->objs[to] == nullptr) continue;
      if (value == 0 || value > std::numeric_limits<std::uint32_t>::max()) continue;
      found[{matrix->objs[from]->os_index, matrix->objs[to]->os_index}] =
          static_cast<std::uint32_t>(value);
    }
  }
  hwloc_distances_release(topology.get(), matrix);
  return found;
}

void add_accesses(Machine& machine, const Topology& topology,
                  const std::vector<hwloc_obj_t>& objects,
                  const std::map<std::uint32_t, Bitmap>& owned, const Facts& facts) {
  const auto slit = distances(topology);
  std::size_t absurd_count = 0;
  bool any_figure = false;
  for (const Node& initiator : machine.nodes) {
    if (initiator.cpus.empty()) continue;
    hwloc_bitmap_t cpus = owned.at(initiator.id.value()).get();
    for (hwloc_obj_t target : objects) {
      Access access;
      access.initiator = initiator.id;
      access.target = NodeId(target->os_index);
      const std::uint64_t mebibytes_per_s = figure(
          topology, {HWLOC_MEMATTR_ID_READ_BANDWIDTH, HWLOC_MEMATTR_ID_BANDWIDTH}, cpus, target);
      const std::uint64_t latency_ns =
          figure(topology, {HWLOC_MEMATTR_ID_READ_LATENCY, HWLOC_MEMATTR_ID_LATENCY}, cpus, target);
      const double bandwidth = static_cast<double>(mebibytes_per_s) * kBytesPerMebibyte;
      if (bandwidth > kBandwidthMax || latency_ns > kLatencyNsMax) ++absurd_count;
      if (bandwidth != 0 && bandwidth <= kBandwidthMax) {
        access.bandwidth = BytesPerSecond(bandwidth);
      }
      if (latency_ns != 0 && latency_ns <= kLatencyNsMax) {
        access.latency = std::chrono::nanoseconds(latency_ns);
      }
      if (access.bandwidth.has_value() || access.latency.has_value()) {
        access.evidence = facts.evidence;
      }
      for (const Access& measured : facts.measured) {
        if (measured.initiator == access.initiator && measured.target == access.target) {
          access = measured;
        }
      }
      any_figure = any_figure || access.evidence != Evidence::unknown;
      const auto distance = slit.find({access.initiator.value(), access.target.value()});
      if (distance != slit.end()) access.distance = distance->second;
      if (access.evidence != Evidence::unknown || access.distance != 0) {
        machine.accesses.push_back(access);
      }
    }
  }
  if (!any_figure) {
    machine.notes.emplace_back(
        "Bandwidth and latency are unknown: the firmware describes neither (no HMAT).");
  }
  if (absurd_count != 0) {
    machine.notes.push_back(fmt::format(
        "{} bandwidth or latency figures are implausible and were left out.", absurd_count));
  }
}

std::vector<CpuCache> cpu_caches(const Topology& topology) {
  constexpr std::array kTypes{HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE,
                              HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L5CACHE};
  std::vector<CpuCache> caches;
  for (const hwloc_obj_type_t type : kTypes) {
    const int count = hwloc_get_nbobjs_by_type(topology.get(), type);
    if (count <= 0) continue;
    const auto& first = hwloc_get_obj_by_type(topology.get(), type, 0)->attr->cache;
    caches.push_back(
        {first.depth, Bytes(first.size), first.linesize, static_cast<std::uint32_t>(count)});
  }
  return caches;
}

/// Compares the memory of the nodes with that of the system. On some virtual machines the kernel
/// assigns only part of its memory to a node (hot-plugged memory).
void check_memory(Machine& machine, const Topology& topology, const Facts& facts) {
  // A smaller excess is memory that the kernel reserves.
  constexpr double kClearlyMoreRatio = 1.05;
  const Bytes counted_bytes(hwloc_get_root_obj(topology.get())->total_memory);
  if (!facts.system_memory.has_value() ||
      static_cast<double>(facts.system_memory->count()) <=
          static_cast<double>(counted_bytes.count()) * kClearlyMoreRatio) {
    return;
  }
  if (topology.nodes().size() == 1 && machine.nodes.size() == 1) {
    Node& only = machine.nodes.front();
    machine.notes.push_back(
        fmt::format("The kernel counts {} to node {}, its only node, of the {} of the system: the "
                    "node is assumed to have all of it.",
                    to_text(only.capacity), only.id.value(), to_text(*facts.system_memory)));
    only.capacity = *facts.system_memory;
    return;
  }
  machine.notes.push_back(fmt::format(
      "{} of the memory of the system belongs to no node: its nodes have {} together, the system "
      "has {}.",
      to_text(Bytes(facts.system_memory->count() - counted_bytes.count())), to_text(counted_bytes),
      to_text(*facts.system_memory)));
}

/// Restricts the description to the processors that the process may use.
void restrict_cpus(Machine& machine, const Topology& topology, const Facts& facts) {
  const Bitmap usable(hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(topology.get())));
  if (facts.usable_cpus.has_value()) {
    const Bitmap listed = to_bitmap(*facts.usable_cpus);
    hwloc_bitmap_and(usable.get(), usable.get(), listed.get());
  }
  std::size_t all_count = 0;
  std::size_t kept_count = 0;
  for (Node& node : machine.nodes) {
    all_count += node.cpus.size();
    std::erase_if(node.cpus,
                  [&](CpuId cpu) { return hwloc_bitmap_isset(usable.get(), cpu.value()) == 0; });
    kept_count += node.cpus.size();
  }
  if (kept_count == all_count) return;
  machine.notes.push_back(
      fmt::format("This process may use {} of {} processors.", kept_count, all_count));
  std::erase_if(machine.accesses,
                [&](const Access& access) { return machine.node(access.initiator)->cpus.empty(); });
}

}  // namespace

Result<Machine> describe(const Topology& topology, const Facts& facts) {
  Machine machine;
  machine.origin = facts.origin;
  machine.page_bytes = facts.page_bytes;
  machine.notes = facts.notes;
  hwloc_obj_t root = hwloc_get_root_obj(topology.get());
  const char* model = info(root, "CPUModel");
  if (hwloc_obj_t package = hwloc_get_obj_by_type(topology.get(), HWLOC_OBJ_PACKAGE, 0);
      model == nullptr && package != nullptr) {
    model = info(package, "CPUModel");
  }
  if (model != nullptr) machine.cpu_model = model;

  std::vector<hwloc_obj_t> objects = topology.nodes();
  const std::map<std::uint32_t, Bitmap> owned = owned_cpus(topology, objects, facts);
  hwloc_const_bitmap_t allowed = hwloc_topology_get_allowed_nodeset(topology.get());
  std::erase_if(objects, [&](hwloc_obj_t object) {
    if (hwloc_bitmap_isset(allowed, object->os_index) != 0) return false;
    machine.notes.push_back(
        fmt::format("Node {} is left out: this process may not use it.", object->os_index));
    return true;
  });
  if (objects.empty()) {
    return fail(Code::unsupported, "describe the machine", "it has no node that may be used",
                "check the cpuset of this process or the record");
  }

  std::vector<TierHint> hints;
  for (hwloc_obj_t object : objects) {
    Node node;
    node.id = NodeId(object->os_index);
    node.capacity = Bytes(object->attr->numanode.local_memory);
    node.memory_side_cache = memory_side_cache_of(object);
    node.cpus = to_cpus(owned.at(object->os_index).get());
    node.package = package_of(topology, object);
    node.huge_pages = huge_pages_of(object, facts);
    if (node.capacity.count() == 0) {
      machine.notes.push_back(fmt::format("Node {} has no memory.", object->os_index));
    }
    hints.push_back(hint_of(object));
    machine.nodes.push_back(std::move(node));
  }
  check_memory(machine, topology, facts);
  add_accesses(machine, topology, objects, owned, facts);
  set_tiers(machine, hints, facts.evidence);
  restrict_cpus(machine, topology, facts);
  machine.cpu_caches = cpu_caches(topology);
  machine.dsa_devices = facts.movers.dsa_devices;
  machine.mover_discovery = facts.movers.discovery;
  if (!facts.movers.note.empty()) machine.notes.push_back(facts.movers.note);
  return machine;
}

}  // namespace headrace::topo
