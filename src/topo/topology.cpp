// SPDX-License-Identifier: Apache-2.0
#include "topology.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

namespace headrace::topo {
namespace {

/// Private facts about one machine or run that hwloc records: left out of records.
constexpr std::array<std::string_view, 6> kPrivateInfos{"HostName", "LinuxCgroup", "ProcessName",
                                                        "Serial",   "UUID",        "AssetTag"};

bool is_private(std::string_view line) {
  constexpr std::string_view kOpening = "<info name=\"";
  const std::size_t begin = line.find(kOpening);
  if (begin == std::string_view::npos) return false;
  const std::string_view rest = line.substr(begin + kOpening.size());
  const std::string_view name = rest.substr(0, rest.find('"'));
  return std::ranges::any_of(kPrivateInfos, [&](std::string_view word) {
    return name.find(word) != std::string_view::npos;
  });
}

}  // namespace

Bitmap make_bitmap() {
  Bitmap bitmap(hwloc_bitmap_alloc());
  if (bitmap == nullptr) throw std::bad_alloc();
  return bitmap;
}

std::vector<CpuId> to_cpus(hwloc_const_bitmap_t bitmap) {
  std::vector<CpuId> cpus;
  // An infinite bitmap has no last bit: hwloc makes finite ones, a broken record may not.
  if (bitmap == nullptr || hwloc_bitmap_weight(bitmap) < 0) return cpus;
  for (int cpu = hwloc_bitmap_first(bitmap); cpu >= 0; cpu = hwloc_bitmap_next(bitmap, cpu)) {
    cpus.emplace_back(static_cast<std::uint32_t>(cpu));
  }
  return cpus;
}

Bitmap to_bitmap(const std::vector<CpuId>& cpus) {
  Bitmap bitmap = make_bitmap();
  for (const CpuId cpu : cpus) hwloc_bitmap_set(bitmap.get(), cpu.value());
  return bitmap;
}

std::string to_list(const std::vector<CpuId>& cpus) {
  const Bitmap bitmap = to_bitmap(cpus);
  std::string list(static_cast<std::size_t>(hwloc_bitmap_list_snprintf(nullptr, 0, bitmap.get())),
                   '\0');
  hwloc_bitmap_list_snprintf(list.data(), list.size() + 1, bitmap.get());
  return list;
}

// Not hwloc's parser: it accepts malformed lists ("1x", "3-"), and allocates by the number read.
std::optional<std::vector<CpuId>> parse_list(const std::string& list) {
  std::vector<CpuId> cpus;
  std::size_t at = 0;
  const auto number = [&]() -> std::optional<std::uint32_t> {
    std::uint32_t value = 0;
    const std::size_t begin = at;
    while (at < list.size() && list[at] >= '0' && list[at] <= '9') {
      value = value * 10 + static_cast<std::uint32_t>(list[at++] - '0');
      if (value >= kCpuCountMax) return std::nullopt;
    }
    return at == begin ? std::nullopt : std::optional(value);
  };
  while (at < list.size()) {
    const auto first = number();
    auto last = first;
    if (first.has_value() && at < list.size() && list[at] == '-') {
      ++at;
      last = number();
    }
    if (!first.has_value() || !last.has_value() || *last < *first) return std::nullopt;
    if (!cpus.empty() && *first <= cpus.back().value()) return std::nullopt;
    for (std::uint32_t cpu = *first; cpu <= *last; ++cpu) cpus.emplace_back(cpu);
    if (at == list.size()) break;
    if (list[at] != ',' || at + 1 == list.size()) return std::nullopt;
    ++at;
  }
  return cpus;
}

Result<Topology::Handle> Topology::make_handle() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) {
    return fail(Code::unsupported, "start the topology library (hwloc)", "it does not start",
                "check its version with 'lstopo --version'", errno);
  }
  Handle topology(raw);
  hwloc_topology_set_all_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_ALL);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_type_filter(raw, HWLOC_OBJ_MISC, HWLOC_TYPE_FILTER_KEEP_NONE);
  // Keep disallowed objects for the notes; describe() leaves them out.
  hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  return topology;
}

Result<Topology> Topology::load_this_machine() {
  HEADRACE_TAKE(topology, make_handle());
  if (hwloc_topology_load(topology->get()) != 0) {
    return fail(Code::unsupported, "discover this machine", "hwloc cannot load its topology",
                "unset HWLOC_XMLFILE, HWLOC_SYNTHETIC and HWLOC_COMPONENTS if they are set", errno);
  }
  return Topology(std::move(*topology));
}

Result<Topology> Topology::load_xml(const std::string& xml) {
  const auto refuse = [] {
    return fail(Code::corrupt_data, "load the topology", "hwloc does not accept the XML",
                "record it again with 'headrace topo --record'");
  };
  HEADRACE_TAKE(topology, make_handle());
  if (xml.size() >= INT_MAX) return refuse();
  // The length includes the terminating zero.
  if (hwloc_topology_set_xmlbuffer(topology->get(), xml.c_str(),
                                   static_cast<int>(xml.size() + 1)) != 0 ||
      hwloc_topology_load(topology->get()) != 0) {
    return refuse();
  }
  return Topology(std::move(*topology));
}

bool Topology::is_this_machine() const {
  return hwloc_topology_is_thissystem(get()) != 0;
}

Result<std::string> Topology::to_xml() const {
  char* buffer = nullptr;
  int byte_count = 0;
  if (hwloc_topology_export_xmlbuffer(get(), &buffer, &byte_count, 0) != 0) {
    return fail(Code::unsupported, "export the topology as XML", "hwloc failed",
                "install hwloc with XML support", errno);
  }
  std::string_view rest(buffer, static_cast<std::size_t>(byte_count) - 1);
  std::string xml;
  xml.reserve(rest.size());
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size() - 1) + 1;
    if (!is_private(rest.substr(0, end))) xml += rest.substr(0, end);
    rest.remove_prefix(end);
  }
  hwloc_free_xmlbuffer(get(), buffer);
  return xml;
}

std::vector<hwloc_obj_t> Topology::nodes() const {
  std::vector<hwloc_obj_t> nodes;
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(get(), HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
    nodes.push_back(node);
  }
  std::ranges::sort(nodes, {}, &hwloc_obj::os_index);
  return nodes;
}

}  // namespace headrace::topo
