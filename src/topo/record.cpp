// SPDX-License-Identifier: Apache-2.0
// The record as JSON text: written by us, read with suspicion. Schema: docs/reference/machine.md.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>

#include "facts.hpp"
#include "json.hpp"

namespace headrace::topo {
namespace {

constexpr std::string_view kSchemaName = "headrace-machine-record";
constexpr std::uint64_t kSchemaVersion = 1;
// Far above any machine; below what would exhaust memory.
constexpr std::size_t kNodeCountMax = 4096;
constexpr std::size_t kDeviceCountMax = 1024;
constexpr std::size_t kQueueCountMax = 1024;
constexpr std::size_t kPoolCountMax = 64;
constexpr std::size_t kPairCountMax = 65536;
constexpr double kGbPerSMax = 1e6;
constexpr double kLatencyNsMax = 1e9;
constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 60U;
constexpr std::uint64_t kCountMax = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint64_t kDefaultPageBytes = 4096;

/// One value of the record with the way to it, for messages: "nodes[3].cpus".
///
/// After the first failure everything reads as zero or empty; the caller asks once, at the end.
class Field {
 public:
  struct State {
    std::string path;
    std::optional<Error> error;
  };
  Field(State& state, const Json* json, std::string way)
      : state_(&state), json_(json), way_(std::move(way)) {}

  [[nodiscard]] bool is_present() const { return json_ != nullptr && !json_->is_null(); }

  void refuse(const std::string& cause, Code code = Code::corrupt_data) const {
    if (state_->error.has_value()) return;
    state_->error = Error{code, 0, fmt::format("read the machine record '{}'", state_->path),
                          (way_.empty() ? "it" : fmt::format("field '{}'", way_)) + " " + cause,
                          "correct it, or record it again with 'headrace topo --record'"};
  }

  [[nodiscard]] Field operator[](const char* key) const {
    const Json* inner = nullptr;
    if (json_ != nullptr && json_->is_object()) {
      if (const auto found = json_->find(key); found != json_->end()) inner = &*found;
    } else if (json_ != nullptr) {
      refuse("is not an object");
    }
    return {*state_, inner, way_.empty() ? key : way_ + "." + key};
  }

  [[nodiscard]] std::vector<Field> elements(std::size_t count_max) const {
    std::vector<Field> fields;
    if (!is_present()) return fields;
    if (!json_->is_array()) {
      refuse("is not a list");
    } else if (json_->size() > count_max) {
      refuse(fmt::format("has {} elements, more than the {} allowed", json_->size(), count_max));
    } else {
      for (std::size_t index = 0; index < json_->size(); ++index) {
        fields.emplace_back(*state_, &(*json_)[index], fmt::format("{}[{}]", way_, index));
      }
    }
    return fields;
  }

  [[nodiscard]] std::string text() const {
    if (!is_present()) {
      refuse("is missing");
      return {};
    }
    if (!json_->is_string()) {
      refuse("is not a text");
      return {};
    }
    return json_->get<std::string>();
  }

  [[nodiscard]] std::uint64_t number(std::uint64_t most) const {
    if (!is_present()) {
      refuse("is missing");
      return 0;
    }
    if (!json_->is_number_unsigned()) {
      refuse("is not a whole number from 0 on");
      return 0;
    }
    const auto value = json_->get<std::uint64_t>();
    if (value > most) {
      refuse(fmt::format("is {}, more than the {} allowed", value, most));
      return 0;
    }
    return value;
  }
  /// A number above 0, up to `most`.
  [[nodiscard]] double figure(double most) const {
    const double value = is_present() && json_->is_number() ? json_->get<double>() : 0;
    if (value > 0 && value <= most) return value;
    refuse(fmt::format("is not a number above 0 and up to {}", most));
    return 1;
  }
  [[nodiscard]] std::uint32_t index() const {
    return static_cast<std::uint32_t>(number(kCountMax));
  }

  template <typename Enum, std::size_t count>
  [[nodiscard]] Enum one_of(const std::array<Enum, count>& choices) const {
    const std::string word = text();
    std::string known;
    for (const Enum choice : choices) {
      if (name(choice) == word) return choice;
      known += (known.empty() ? "" : ", ") + std::string(name(choice));
    }
    refuse(fmt::format("is '{}', not one of {}", word, known));
    return choices.front();
  }

  [[nodiscard]] std::vector<CpuId> cpus() const {
    const std::string list = text();
    std::optional<std::vector<CpuId>> parsed = parse_list(list);
    if (!parsed.has_value()) {
      refuse(fmt::format("is not an ascending list such as '0-11,24' of processors below {}",
                         kCpuCountMax));
      return {};
    }
    return std::move(*parsed);
  }

 private:
  State* state_;
  const Json* json_;
  std::string way_;
};

/// What 'headrace topo --measure' keeps beside the model that it makes of it.
std::vector<Access> parse_measured(const Field& root) {
  std::map<std::pair<NodeId, NodeId>, Access> found;
  if (!root["model"].is_present() || !root["model"]["measured"].is_present()) return {};
  for (const Field& field : root["model"]["measured"]["pairs"].elements(kPairCountMax)) {
    Access access;
    access.initiator = NodeId(field["initiator"].index());
    access.target = NodeId(field["target"].index());
    access.bandwidth = BytesPerSecond(field["read_gb_per_s"].figure(kGbPerSMax) * 1e9);
    access.latency = std::chrono::nanoseconds(
        static_cast<std::int64_t>(field["latency_ns"].figure(kLatencyNsMax)));
    access.evidence = Evidence::measured;
    // By one processor and by all of the node: the most counts.
    Access& most = found[{access.initiator, access.target}];
    if (!most.bandwidth.has_value() || *most.bandwidth < *access.bandwidth) most = access;
  }
  std::vector<Access> accesses;
  for (const auto& [pair, access] : found) accesses.push_back(access);
  return accesses;
}

NodeFacts parse_node(const Field& field) {
  NodeFacts node;
  node.id = NodeId(field["node"].index());
  if (field["cpus"].is_present()) node.cpus = field["cpus"].cpus();
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
    if (inner["batch_max"].is_present()) queue.batch_max = inner["batch_max"].index();
    if (inner["block_on_fault"].is_present()) {
      queue.block_on_fault = inner["block_on_fault"].index() != 0;
    }
    device.queues.push_back(std::move(queue));
  }
  return device;
}

Movers parse_movers(const Field& field) {
  constexpr std::array kDiscoveries{MoverDiscovery::not_tried, MoverDiscovery::library_absent,
                                    MoverDiscovery::library_failed, MoverDiscovery::done};
  Movers movers;
  if (!field.is_present()) return movers;
  movers.discovery = field["discovery"].one_of(kDiscoveries);
  if (field["note"].is_present()) movers.note = field["note"].text();
  for (const Field& device : field["dsa_devices"].elements(kDeviceCountMax)) {
    movers.dsa_devices.push_back(parse_device(device));
  }
  return movers;
}

/// FNV-1a, 64 bits, in hexadecimal. hwloc crashes on XML that is damaged in places, so damage has
/// to be found before hwloc sees it.
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
    field.refuse(
        fmt::format("is '{}', but hwloc_xml has '{}': it was damaged, or changed by hand "
                    "(if on purpose, write the latter)",
                    stated, sum));
  }
  return xml;
}

void check_schema(const Field& schema) {
  const std::string schema_name = schema["name"].text();
  if (schema_name != kSchemaName) {
    schema["name"].refuse(fmt::format("is '{}', not '{}'", schema_name, kSchemaName));
    return;
  }
  const std::uint64_t version = schema["version"].number(kCountMax);
  if (version != kSchemaVersion) {
    schema["version"].refuse(
        fmt::format("is {}, and this program reads version {}", version, kSchemaVersion),
        Code::version_mismatch);
  }
}

}  // namespace

std::string to_text(const Record& record) {
  const Facts& facts = record.facts;
  Json json;
  json["schema"] = {{"name", kSchemaName}, {"version", kSchemaVersion}};
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
                "it is not whole, correct JSON: " + cause,
                "record it again with 'headrace topo --record'");
  }

  constexpr std::array kEvidences{Evidence::firmware, Evidence::declared, Evidence::measured};
  Field::State state{path, std::nullopt};
  const Field root(state, &json, "");
  check_schema(root["schema"]);
  if (state.error.has_value()) return fail(std::move(*state.error));
  Record record;
  Facts& facts = record.facts;
  facts.origin = root["origin"].text();
  facts.evidence = root["evidence"].one_of(kEvidences);
  facts.page_bytes = Bytes(root["page_bytes"].is_present() ? root["page_bytes"].number(kBytesMax)
                                                           : kDefaultPageBytes);
  if (root["system_memory_bytes"].is_present()) {
    facts.system_memory = Bytes(root["system_memory_bytes"].number(kBytesMax));
  }
  if (root["usable_cpus"].is_present()) facts.usable_cpus = root["usable_cpus"].cpus();
  std::set<NodeId> seen;
  for (const Field& field : root["nodes"].elements(kNodeCountMax)) {
    facts.nodes.push_back(parse_node(field));
    if (!seen.insert(facts.nodes.back().id).second) field["node"].refuse("appears twice");
  }
  facts.movers = parse_movers(root["movers"]);
  facts.measured = parse_measured(root);
  record.hwloc_xml = parse_xml(root);
  if (state.error.has_value()) return fail(std::move(*state.error));
  return record;
}

}  // namespace headrace::topo
