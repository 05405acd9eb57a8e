// SPDX-License-Identifier: Apache-2.0
#include "json.hpp"

namespace headrace::topo {
namespace {

constexpr int kSchemaVersion = 1;

template <typename T>
Json value_or_null(const std::optional<T>& id) {
  return id.has_value() ? Json(id->value()) : Json(nullptr);
}

Json to_json_value(const Node& node) {
  Json json;
  json["node"] = node.id.value();
  json["tier"] = name(node.tier);
  json["tier_evidence"] = name(node.tier_evidence);
  json["capacity_bytes"] = node.capacity.count();
  json["memory_side_cache_bytes"] = node.memory_side_cache.count();
  json["cpus"] = Json::array();
  for (const CpuId cpu : node.cpus) json["cpus"].push_back(cpu.value());
  json["package"] = node.package.has_value() ? Json(*node.package) : Json(nullptr);
  json["huge_pages"] = to_json_value(node.huge_pages);
  return json;
}

Json to_json_value(const Access& access) {
  Json json;
  json["initiator"] = access.initiator.value();
  json["target"] = access.target.value();
  json["bandwidth_bytes_per_s"] =
      access.bandwidth.has_value() ? Json(access.bandwidth->count()) : Json(nullptr);
  json["latency_ns"] = access.latency.has_value() ? Json(access.latency->count()) : Json(nullptr);
  json["evidence"] = name(access.evidence);
  json["distance"] = access.distance;
  return json;
}

Json to_json_value(const CpuCache& cache) {
  return {{"level", cache.level},
          {"capacity_bytes", cache.capacity.count()},
          {"line_bytes", cache.line_bytes},
          {"instance_count", cache.instance_count}};
}

}  // namespace

Json to_json_value(const std::vector<HugePages>& pools) {
  Json json = Json::array();
  for (const HugePages& pool : pools) {
    json.push_back({{"page_bytes", pool.page_bytes.count()},
                    {"total_count", pool.total_count},
                    {"free_count", pool.free_count}});
  }
  return json;
}

Json to_json_value(const std::vector<DsaDevice>& devices) {
  Json json = Json::array();
  for (const DsaDevice& device : devices) {
    Json queues = Json::array();
    for (const DsaQueue& queue : device.queues) {
      queues.push_back({{"queue", queue.id.value()},
                        {"mode", queue.mode},
                        {"state", queue.state},
                        {"type", queue.type},
                        {"device_name", queue.device_name},
                        {"entry_count", queue.entry_count},
                        {"transfer_bytes_max", queue.transfer_max.count()},
                        {"batch_max", queue.batch_max},
                        {"block_on_fault", queue.block_on_fault ? 1 : 0}});
    }
    json.push_back({{"device", device.id.value()},
                    {"node", value_or_null(device.node)},
                    {"state", device.state},
                    {"engine_count", device.engine_count},
                    {"queues", std::move(queues)}});
  }
  return json;
}

std::string dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

std::string to_json(const Machine& machine) {
  Json json;
  json["schema"] = {{"name", "headrace-machine"}, {"version", kSchemaVersion}};
  json["origin"] = machine.origin;
  json["cpu_model"] = machine.cpu_model;
  json["page_bytes"] = machine.page_bytes.count();
  json["nodes"] = Json::array();
  for (const Node& node : machine.nodes) json["nodes"].push_back(to_json_value(node));
  json["accesses"] = Json::array();
  for (const Access& access : machine.accesses) json["accesses"].push_back(to_json_value(access));
  json["cpu_caches"] = Json::array();
  for (const CpuCache& cache : machine.cpu_caches) {
    json["cpu_caches"].push_back(to_json_value(cache));
  }
  json["mover_discovery"] = name(machine.mover_discovery);
  json["dsa_devices"] = to_json_value(machine.dsa_devices);
  json["has_faster_tier"] = machine.has_faster_tier();
  json["faster_nodes"] = Json::array();
  for (const Node& node : machine.nodes) {
    const std::vector<NodeId> faster = machine.faster_nodes(node.id);
    if (faster.empty()) continue;
    Json ids = Json::array();
    for (const NodeId id : faster) ids.push_back(id.value());
    json["faster_nodes"].push_back({{"initiator", node.id.value()}, {"nodes", std::move(ids)}});
  }
  json["notes"] = machine.notes;
  return dump(json);
}

}  // namespace headrace::topo
