// SPDX-License-Identifier: Apache-2.0
// Gathers facts from this system or from a record, for describe().
#include <fmt/format.h>

#include "facts.hpp"
#include "headrace/platform/descriptor.hpp"
#include "headrace/platform/memory.hpp"
#include "headrace/platform/node.hpp"
#include "headrace/platform/thread.hpp"

namespace headrace::topo {
namespace {

/// Records of the largest known machines have a few MiB.
constexpr std::size_t kRecordBytesMax = 8U << 20U;

NodeFacts gather_node(NodeId id) {
  NodeFacts node;
  node.id = id;
  if (const auto list = platform::node_cpu_list(id); list.has_value()) {
    node.cpus = parse_list(*list);
  }
  for (const platform::HugePagePool& pool :
       platform::node_huge_pages(id).value_or(std::vector<platform::HugePagePool>{})) {
    node.huge_pages.push_back({pool.page_bytes, pool.total_count, pool.free_count});
  }
  return node;
}

Facts gather(const Topology& topology, const DiscoverOptions& options) {
  Facts facts;
  facts.origin = "discovered";
  facts.page_bytes = Bytes(platform::page_bytes());
  if (!topology.is_this_machine()) {
    // HWLOC_XMLFILE or HWLOC_SYNTHETIC: facts of this system do not apply to that machine.
    facts.evidence = Evidence::declared;
    facts.notes.emplace_back(
        "The environment replaces this machine by another one (HWLOC_XMLFILE or HWLOC_SYNTHETIC): "
        "processors in use, huge pages and movers are not examined.");
    return facts;
  }
  facts.system_memory = platform::system_memory();
  facts.usable_cpus = platform::allowed_cpus();
  for (hwloc_obj_t node : topology.nodes()) {
    facts.nodes.push_back(gather_node(NodeId(node->os_index)));
  }
  if (options.find_movers) facts.movers = find_movers();
  return facts;
}

}  // namespace

Result<Machine> discover(const DiscoverOptions& options) {
  HEADRACE_TAKE(topology, Topology::load_this_machine());
  return describe(*topology, gather(*topology, options));
}

Result<Recording> make_record(const DiscoverOptions& options) {
  HEADRACE_TAKE(topology, Topology::load_this_machine());
  const Facts facts = gather(*topology, options);
  HEADRACE_TAKE(machine, describe(*topology, facts));
  HEADRACE_TAKE(xml, topology->to_xml());
  Record recorded{facts, std::move(*xml)};
  recorded.facts.origin =
      fmt::format("recorded on a machine with {}",
                  machine->cpu_model.empty() ? "processors of unknown model" : machine->cpu_model);
  return Recording{std::move(*machine), to_text(recorded)};
}

Result<Machine> replay(const std::string& path) {
  const std::string tried = fmt::format("replay the machine record '{}'", path);
  const Result<std::string> text = platform::load_file(path, kRecordBytesMax);
  // The path is in the error already.
  if (!text.has_value()) return fail(text.error().within("replay a machine record"));
  HEADRACE_TAKE(record, parse_record(*text, path));
  const Result<Topology> topology = Topology::load_xml(record->hwloc_xml);
  if (!topology.has_value()) {
    Error error = topology.error().within(tried);
    error.cause = "field 'hwloc_xml': " + error.cause;
    return fail(std::move(error));
  }
  return describe(*topology, record->facts);
}

}  // namespace headrace::topo
