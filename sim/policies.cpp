// SPDX-License-Identifier: Apache-2.0
#include "sim/policies.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "headrace/engine/mover.hpp"

namespace headrace::sim {

Result<std::vector<std::uint32_t>> choose_devices(const Model& model, const std::string& policy,
                                                  std::size_t count, std::uint32_t source,
                                                  std::uint32_t target) {
  const auto known = engine::movers::named();
  const auto found = std::find_if(known.begin(), known.end(),
                                  [&](const auto& each) { return each.name == policy; });
  if (found == known.end()) {
    return fail(Code::not_found, fmt::format("choose devices by '{}'", policy),
                "the library has no such policy", "use all, smart_copy or push_pull");
  }
  std::vector<engine::MoverInfo> movers;
  for (std::size_t i = 0; i < count; ++i) {
    const topo::DsaDevice& device = model.machine.dsa_devices[i];
    movers.push_back(
        {.name = fmt::format("dsa{}", device.id.value()), .node = device.node, .hardware = true});
  }
  std::vector<engine::NodePackage> packages;
  for (const NodeModel& node : model.nodes) {
    const NodeId id(node.node);
    packages.push_back({id, node.socket, model.machine.nearest_with_cpus(id)});
  }
  engine::MoverChoice choice;
  found->choose({.movers = movers,
                 .source_node = NodeId(source),
                 .target_node = NodeId(target),
                 .byte_count = std::size_t{1} << 30U,
                 .packages = packages},
                choice);
  const auto chosen = choice.chosen();
  return std::vector<std::uint32_t>(chosen.begin(), chosen.end());
}

}  // namespace headrace::sim
