// SPDX-License-Identifier: Apache-2.0
#include "sim/policies.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "engine/parts.hpp"
#include "headrace/engine/route.hpp"

namespace headrace::sim {

Result<std::vector<std::uint32_t>> choose_devices(const Model& model, const std::string& policy,
                                                  std::size_t count, std::uint32_t source,
                                                  std::uint32_t target, std::size_t bytes,
                                                  std::uint64_t turn) {
  const auto known = engine::movers::named();
  const auto found = std::ranges::find(known, policy, &engine::movers::Named::name);
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
  const engine::MoverPolicy chosen_policy = found->choose;
  const engine::Route route =
      engine::route({.kind = engine::OperationKind::copy, .byte_count = bytes, .turn = turn},
                    {.source_node = NodeId(source), .target_node = NodeId(target)},
                    {.movers = movers, .packages = packages, .policy = &chosen_policy});
  if (route.by != engine::Route::By::movers) {
    return fail(Code::unsupported, fmt::format("choose devices by '{}'", policy),
                fmt::format("the engine uses no device for {} bytes", bytes), "move more bytes");
  }
  const auto chosen = route.movers.chosen();
  return std::vector<std::uint32_t>(chosen.begin(), chosen.end());
}

std::vector<double> split(double bytes, std::size_t count) {
  const auto total = static_cast<std::size_t>(bytes);
  const std::size_t parts = engine::detail::part_count(total, count);
  // Only the address matters; nothing is accessed, so any address will do.
  const std::span<std::byte> none(reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40U), total);
  const engine::Operation copy = engine::Operation::copy(none, none);
  std::vector<double> sizes;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < parts; ++i) {
    const std::size_t end = engine::detail::part_end(copy, i, parts);
    sizes.push_back(static_cast<double>(end - begin));
    begin = end;
  }
  return sizes;
}

std::string_view path_of(double bytes, std::size_t in_batch, bool waits) {
  const auto byte_count = static_cast<std::size_t>(bytes);
  const engine::PathThresholds thresholds;
  if (waits) {
    const bool by_device =
        engine::is_run_by_device(byte_count, engine::Path::automatic, thresholds);
    return by_device ? "device" : "calling thread";
  }
  const std::array<engine::MoverInfo, 2> movers{
      {{.name = "cpu", .batches = true}, {.name = "dsa", .hardware = true, .batches = true}}};
  const auto copy = engine::OperationSet().with(engine::OperationKind::copy);
  engine::Workload work{.kind = engine::OperationKind::copy, .byte_count = byte_count};
  if (in_batch != 0) {
    work = {.kinds = copy, .byte_count = byte_count * in_batch, .operation_count = in_batch};
  }
  const engine::Route route =
      engine::route(work, {}, {.movers = movers, .processor_count = 1, .thresholds = thresholds});
  if (route.by != engine::Route::By::movers) return "calling thread";
  return route.movers.chosen().front() == 0 ? "processor" : "device";
}

}  // namespace headrace::sim
