// SPDX-License-Identifier: Apache-2.0
// Descriptions and records of a machine as JSON text. Records are untrusted when read. Schema:
// docs/reference/machine.md.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>

#include "facts.hpp"
#include "headrace/json/field.hpp"
#include "headrace/topo/machine.hpp"

namespace headrace::topo {

using json::Field;
using json::Json;

namespace {

constexpr int kSchemaVersion = 1;

template <typename T>
Json value_or_null(const std::optional<T>& id) {
  return id.has_value() ? Json(id->value()) : Json(nullptr);
}

Json to_json_value(const std::vector<HugePages>& pools) {
  Json json = Json::array();
  for (const HugePages& pool : pools) {
    json.push_back({{"page_bytes", pool.page_bytes.count()},
                    {"total_count", pool.total_count},
                    {"free_count", pool.free_count}});
  }
  return json;
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

/// Never throws: replaces invalid UTF-8.
std::string dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

constexpr std::string_view kRecordName = "headrace-machine-record";
constexpr std::uint64_t kRecordVersion = 1;
// Far above any machine, but too small to exhaust memory.
constexpr std::size_t kNodeCountMax = 4096;
constexpr std::size_t kDeviceCountMax = 1024;
constexpr std::size_t kQueueCountMax = 1024;
constexpr std::size_t kPoolCountMax = 64;
constexpr std::size_t kPairCountMax = 65536;
constexpr double kGbPerSMax = 1e6;
constexpr double kRecordLatencyNsMax = 1e9;
constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 60U;
constexpr std::uint64_t kCountMax = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint64_t kDefaultPageBytes = 4096;

std::vector<CpuId> parse_cpus(const Field& field) {
  const std::string list = field.text();
  std::optional<std::vector<CpuId>> parsed = parse_list(list);
  if (parsed.has_value()) return std::move(*parsed);
  field.refuse(fmt::format("is not an ascending list such as '0-11,24' of processors below {}",
                           kCpuCountMax),
               {});
  return {};
}

/// Reads the figures that 'headrace topo --measure' keeps in the model.
std::vector<Access> parse_measured(const Field& root) {
  std::map<std::pair<NodeId, NodeId>, Access> found;
  if (!root["model"].is_present() || !root["model"]["measured"].is_present()) return {};
  for (const Field& field : root["model"]["measured"]["pairs"].elements(kPairCountMax)) {
    Access access;
    access.initiator = NodeId(field["initiator"].index());
    access.target = NodeId(field["target"].index());
    access.bandwidth = BytesPerSecond(field["read_gb_per_s"].figure(kGbPerSMax) * 1e9);
    access.latency = std::chrono::nanoseconds(
        static_cast<std::int64_t>(field["latency_ns"].figure(kRecordLatencyNsMax)));
    access.evidence = Evidence::measured;
    // Measured by one processor and by all of the node: take the highest bandwidth.
    Access& most = found[{access.initiator, access.target}];
    if (!most.bandwidth.has_value() || *most.bandwidth < *access.bandwidth) most = access;
  }
  std::vector<Access> accesses;
  accesses.reserve(found.size());
  for (const auto& [pair, access] : found) accesses.push_back(access);
  return accesses;
}

NodeFacts parse_node(const Field& field) {
  NodeFacts node;
  node.id = NodeId(field["node"].index());
  if (field["cpus"].is_present()) node.cpus = parse_cpus(field["cpus"]);
  for (const Field& pool : field["huge_pages"].elements(kPoolCountMax)) {
    HugePages pages;
    pages.page_bytes = Bytes(pool["page_bytes"].number(kBytesMax));
    pages.total_count = pool["total_count"].number(kCountMax);
    pages.free_count = pool["free_count"].number(pages.total_count);
    node.huge_pages.push_back(pages);
  }
  return node;
}

DsaDevice parse_device(const Field& field) {
  DsaDevice device;
  device.id = DeviceId(field["device"].index());
  if (field["node"].is_present()) device.node = NodeId(field["node"].index());
  device.state = field["state"].text();
  device.engine_count = field["engine_count"].index();
  for (const Field& inner : field["queues"].elements(kQueueCountMax)) {
    DsaQueue queue;
    queue.id = QueueId(inner["queue"].index());
    queue.mode = inner["mode"].text();
    queue.state = inner["state"].text();
    queue.type = inner["type"].text();
    queue.device_name = inner["device_name"].text();
    queue.entry_count = inner["entry_count"].index();
    queue.transfer_max = Bytes(inner["transfer_bytes_max"].number(kBytesMax));
    inner["batch_max"].take(queue.batch_max, kCountMax);
    if (inner["block_on_fault"].is_present()) {
      queue.block_on_fault = inner["block_on_fault"].index() != 0;
    }
    device.queues.push_back(std::move(queue));
  }
  return device;
}

Movers parse_movers(const Field& field) {
  Movers movers;
  if (!field.is_present()) return movers;
  movers.discovery = field["discovery"].enumerator<MoverDiscovery>();
  field["note"].take(movers.note);
  for (const Field& device : field["dsa_devices"].elements(kDeviceCountMax)) {
    movers.dsa_devices.push_back(parse_device(device));
  }
  return movers;
}

/// FNV-1a, 64 bits, in hexadecimal. hwloc can crash on damaged XML, so damage must be found before
/// hwloc parses it.
std::string checksum(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char letter : text) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3U;
  }
  return fmt::format("{:016x}", hash);
}

std::string parse_xml(const Field& root) {
  std::string xml = root["hwloc_xml"].text();
  const std::string sum = checksum(xml);
  const Field field = root["hwloc_xml_fnv1a64"];
  if (const std::string stated = field.text(); stated != sum) {
    field.refuse(fmt::format("is '{}', but hwloc_xml has '{}': it was damaged, or changed by hand "
                             "(if on purpose, write the latter)",
                             stated, sum),
                 {});
  }
  return xml;
}

}  // namespace

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

std::string to_text(const Record& record) {
  const Facts& facts = record.facts;
  Json json;
  json["schema"] = {{"name", kRecordName}, {"version", kRecordVersion}};
  json["origin"] = facts.origin;
  json["evidence"] = name(facts.evidence);
  json["page_bytes"] = facts.page_bytes.count();
  if (facts.system_memory.has_value()) json["system_memory_bytes"] = facts.system_memory->count();
  if (facts.usable_cpus.has_value()) json["usable_cpus"] = to_list(*facts.usable_cpus);
  json["nodes"] = Json::array();
  for (const NodeFacts& node : facts.nodes) {
    Json inner;
    inner["node"] = node.id.value();
    if (node.cpus.has_value()) inner["cpus"] = to_list(*node.cpus);
    inner["huge_pages"] = to_json_value(node.huge_pages);
    json["nodes"].push_back(std::move(inner));
  }
  json["movers"] = {{"discovery", name(facts.movers.discovery)},
                    {"dsa_devices", to_json_value(facts.movers.dsa_devices)}};
  if (!facts.movers.note.empty()) json["movers"]["note"] = facts.movers.note;
  json["hwloc_xml_fnv1a64"] = checksum(record.hwloc_xml);
  json["hwloc_xml"] = record.hwloc_xml;
  return dump(json);
}

Result<Record> parse_record(const std::string& text, const std::string& path) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    std::string cause = error.what();
    if (const std::size_t tag = cause.find("] "); tag != std::string::npos) {
      cause.erase(0, tag + 2);
    }
    return fail(Code::corrupt_data, fmt::format("read the machine record '{}'", path),
                "it is not valid JSON: " + cause, "record it again with 'headrace topo --record'");
  }

  const std::array evidences{name(Evidence::firmware), name(Evidence::declared),
                             name(Evidence::measured)};
  Field::State state{.tried = fmt::format("read the machine record '{}'", path),
                     .remedy = "correct it, or record it again with 'headrace topo --record'"};
  const Field root(state, &json, "");
  json::check_schema(root["schema"], kRecordName, kRecordVersion);
  if (state.error.has_value()) return fail(std::move(*state.error));
  Record record;
  Facts& facts = record.facts;
  facts.origin = root["origin"].text();
  facts.evidence = *find_name<Evidence>(root["evidence"].one_of(evidences));
  facts.page_bytes = Bytes(root["page_bytes"].is_present() ? root["page_bytes"].number(kBytesMax)
                                                           : kDefaultPageBytes);
  if (root["system_memory_bytes"].is_present()) {
    facts.system_memory = Bytes(root["system_memory_bytes"].number(kBytesMax));
  }
  if (root["usable_cpus"].is_present()) facts.usable_cpus = parse_cpus(root["usable_cpus"]);
  std::set<NodeId> seen;
  for (const Field& field : root["nodes"].elements(kNodeCountMax)) {
    facts.nodes.push_back(parse_node(field));
    if (!seen.insert(facts.nodes.back().id).second) field["node"].refuse("appears twice", {});
  }
  facts.movers = parse_movers(root["movers"]);
  facts.measured = parse_measured(root);
  record.hwloc_xml = parse_xml(root);
  if (state.error.has_value()) return fail(std::move(*state.error));
  return record;
}

}  // namespace headrace::topo
