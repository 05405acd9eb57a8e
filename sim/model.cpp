// SPDX-License-Identifier: Apache-2.0
#include "sim/model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "headrace/json/field.hpp"
#include "headrace/platform/descriptor.hpp"

namespace headrace::sim {
namespace {

enum class Kind : std::uint8_t { rate, time, size, plain };

struct Unit {
  Kind kind;
  std::string_view suffix;
  double factor;
};
constexpr std::array<Unit, 11> kUnits{{{Kind::rate, "GB/s", 1},
                                       {Kind::rate, "GiB/s", 1.073741824},
                                       {Kind::rate, "MiB/s", 1.048576e-3},
                                       {Kind::time, "ns", 1},
                                       {Kind::time, "us", 1e3},
                                       {Kind::time, "ms", 1e6},
                                       {Kind::size, "B", 1},
                                       {Kind::size, "KiB", 1024},
                                       {Kind::size, "MiB", 1048576},
                                       {Kind::size, "GiB", 1073741824},
                                       {Kind::plain, "", 1}}};

std::string units_of(Kind kind) {
  std::string known;
  for (const Unit& unit : kUnits) {
    if (unit.kind != kind) continue;
    known += (known.empty() ? "" : ", ") + std::string(unit.suffix);
  }
  return known;
}

using json::Field;

constexpr std::size_t kElementMax = 4096;

std::vector<Field> elements(const Field& field) {
  return field.elements(kElementMax);
}

/// Parses a number with its unit.
double number(const Field& field, Kind kind, bool may_be_zero) {
  const std::string text = field.text(fmt::format("write it with its unit ({})", units_of(kind)));
  double amount = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), amount);
  std::string_view suffix(end, static_cast<std::size_t>(text.data() + text.size() - end));
  while (suffix.starts_with(' ')) suffix.remove_prefix(1);
  if (code != std::errc() || !std::isfinite(amount)) {
    field.refuse(fmt::format("is '{}', which does not begin with a number", text),
                 "write it as in \"52.9 GB/s\"");
    return 1;
  }
  for (const Unit& unit : kUnits) {
    if (unit.kind != kind || unit.suffix != suffix) continue;
    if (amount > 0 || (may_be_zero && amount == 0)) return amount * unit.factor;
    field.refuse(fmt::format("is '{}'", text), "write a value above 0");
    return 1;
  }
  field.refuse(
      fmt::format("is '{}', which {}", text,
                  suffix.empty() ? "has no unit" : fmt::format("has the unit '{}'", suffix)),
      kind == Kind::plain ? "write it without unit"
                          : fmt::format("write one of the units {}", units_of(kind)));
  return 1;
}

/// {"value": "52.9 GB/s", "source": "..."}; a fitted number may name its series instead.
double quantity(const Field& field, Kind kind, bool may_be_zero = false) {
  if (!field.is_present()) {
    field.refuse("is missing", R"(write {"value": "...", "source": "..."})");
    return 1;
  }
  const std::string remedy = R"(say where the value comes from, or "assumed")";
  const Field source = field["source"];
  const Field fitted = field["fitted_to"];
  const Field& from = fitted.is_present() ? fitted : source;
  if (from.text(remedy).empty()) from.refuse("is missing", remedy);
  return number(field["value"], kind, may_be_zero);
}

/// 0 if absent.
double optional(const Field& field, const char* key, Kind kind) {
  const Field member = field[key];
  return member.json() != nullptr ? quantity(member, kind) : 0;
}

NodeModel parse_node(const Field& field) {
  NodeModel node;
  node.node = field["node"].index();
  node.socket = field["socket"].index();
  node.kind = field["kind"].one_of(std::array{"ddr", "hbm", "cxl", "optane"});
  node.peak_gb_per_s = quantity(field["peak"], Kind::rate);
  node.read_gb_per_s = quantity(field["read"], Kind::rate);
  node.mixed_gb_per_s = quantity(field["mixed"], Kind::rate);
  node.write_gb_per_s = optional(field, "write", Kind::rate);
  node.latency_ns = quantity(field["latency"], Kind::time);
  node.remote_latency_ns = optional(field, "remote_latency", Kind::time);
  node.side_cache_gb_per_s = optional(field, "side_cache", Kind::rate);
  if (node.read_gb_per_s > node.peak_gb_per_s || node.mixed_gb_per_s > node.peak_gb_per_s) {
    field["peak"].refuse("is less than 'read' or 'mixed'", "write the rate of the bus");
  }
  if (node.mixed_gb_per_s > 2 * node.read_gb_per_s) {
    field["mixed"].refuse("is more than twice 'read'", "half of the mixed bytes are read");
  }
  if (node.mixed_gb_per_s < node.read_gb_per_s / 2) {
    field["mixed"].refuse("is less than half of 'read'",
                          "write what is read and written together, both counted");
  }
  return node;
}

SocketModel parse_socket(const Field& field) {
  SocketModel socket;
  socket.socket = field["socket"].index();
  socket.mesh_read_gb_per_s = quantity(field["mesh_read"], Kind::rate);
  socket.core_count = quantity(field["cores"], Kind::plain);
  socket.l2_bytes = quantity(field["l2"], Kind::size);
  socket.l3_bytes = quantity(field["l3"], Kind::size);
  socket.l3_ways = quantity(field["l3_ways"], Kind::plain);
  socket.ddio_ways = quantity(field["ddio_ways"], Kind::plain);
  if (socket.ddio_ways > socket.l3_ways) {
    field["ddio_ways"].refuse("is more than 'l3_ways'", "they are some of them");
  }
  return socket;
}

/// Requires ascending `bytes` in a list.
template <typename Each>
void check_ascending(const std::vector<Each>& all, const Field& last) {
  if (all.size() > 1 && all.back().bytes <= all[all.size() - 2].bytes) {
    last["bytes"].refuse("is no more than that of the element before", "write the smallest first");
  }
}

LevelModel parse_level(const Field& field) {
  return {.bytes = quantity(field["bytes"], Kind::size),
          .core_count = quantity(field["cores"], Kind::plain),
          .read_gb_per_s = quantity(field["read"], Kind::rate),
          .fill_gb_per_s = quantity(field["fill"], Kind::rate),
          .copy_gb_per_s = quantity(field["copy"], Kind::rate),
          .read_all_gb_per_s = optional(field, "read_all", Kind::rate),
          .fill_all_gb_per_s = optional(field, "fill_all", Kind::rate),
          .copy_all_gb_per_s = optional(field, "copy_all", Kind::rate)};
}

CallModel parse_call(const Field& field) {
  return {.bytes = quantity(field["bytes"], Kind::size),
          .fill_gb_per_s = quantity(field["fill"], Kind::rate),
          .copy_gb_per_s = quantity(field["copy"], Kind::rate)};
}

CoreModel parse_core(const Field& field) {
  CoreModel core{.copy_gb_per_s = quantity(field["copy"], Kind::rate),
                 .call_ns = quantity(field["call"], Kind::time),
                 .overlapped_bytes = quantity(field["overlapped"], Kind::size),
                 .exposed_ns = quantity(field["exposed"], Kind::time),
                 .outstanding_lines = quantity(field["outstanding_lines"], Kind::plain),
                 .queueing_share = quantity(field["queueing_share"], Kind::plain, true),
                 .fill_gb_per_s = optional(field, "fill", Kind::rate),
                 .update_gb_per_s = optional(field, "update", Kind::rate),
                 .compute_gb_per_s = optional(field, "compute", Kind::rate),
                 .handover_ns = optional(field, "handover", Kind::time),
                 .handover_gb_per_s = optional(field, "handover_rate", Kind::rate),
                 .wake_ns = optional(field, "wake", Kind::time),
                 .waking_ns = optional(field, "waking", Kind::time),
                 .look_ns = optional(field, "look", Kind::time),
                 .looking_ns = optional(field, "looking", Kind::time),
                 .asking_ns = optional(field, "asking", Kind::time),
                 .levels = {},
                 .calls = {}};
  for (const Field& level : elements(field["levels"])) {
    core.levels.push_back(parse_level(level));
    check_ascending(core.levels, level);
  }
  for (const Field& call : elements(field["calls"])) {
    core.calls.push_back(parse_call(call));
    check_ascending(core.calls, call);
  }
  return core;
}

DsaModel parse_dsa(const Field& field) {
  return {.fabric_gb_per_s = quantity(field["fabric"], Kind::rate),
          .read_buffer_bytes = quantity(field["read_buffers"], Kind::size),
          .shared_submit_ns = quantity(field["shared_submit"], Kind::time),
          .dedicated_submit_ns = quantity(field["dedicated_submit"], Kind::time),
          .alone_ns = quantity(field["alone"], Kind::time),
          .descriptor_ns = quantity(field["per_descriptor"], Kind::time),
          .engine_depth = quantity(field["engine_depth"], Kind::plain),
          .translated_bytes = quantity(field["translated"], Kind::size),
          .translation_ns = quantity(field["translation"], Kind::time),
          .random_ns = quantity(field["random"], Kind::time),
          .misaligned_ns = quantity(field["misaligned"], Kind::time),
          .half_aligned_ns = quantity(field["half_aligned"], Kind::time),
          .iotlb_miss_ns = quantity(field["iotlb_miss"], Kind::time),
          .fault_retry_ns = quantity(field["fault_retry"], Kind::time),
          .fault_block_ns = quantity(field["fault_block"], Kind::time),
          .fault_major_ns = quantity(field["fault_major"], Kind::time),
          .touch_ns = quantity(field["touch"], Kind::time),
          .touch_huge_ns = quantity(field["touch_huge"], Kind::time),
          .read_back_share = quantity(field["read_back_share"], Kind::plain),
          .leak_reads = quantity(field["leak_reads"], Kind::plain, true)};
}

OptaneModel parse_optane(const Field& field) {
  return {.dimm_count = quantity(field["dimms"], Kind::plain),
          .read_gb_per_s = quantity(field["read"], Kind::rate),
          .write_gb_per_s = quantity(field["write"], Kind::rate),
          .grain_bytes = quantity(field["grain"], Kind::size),
          .entry_ns = quantity(field["entry"], Kind::time),
          .stream_gb_per_s = quantity(field["stream"], Kind::rate),
          .cached_entry_ns = quantity(field["cached_entry"], Kind::time),
          .remote_share = quantity(field["remote_share"], Kind::plain),
          .paged_share = quantity(field["paged_share"], Kind::plain)};
}

InjectionModel parse_injection(const Field& field) {
  return {.line_gb_per_s = quantity(field["line"], Kind::rate),
          .interrupt_ns = quantity(field["interrupt"], Kind::time),
          .poll_ns = quantity(field["poll"], Kind::time),
          .host_ns = quantity(field["host"], Kind::time),
          .nic_ns = quantity(field["nic"], Kind::time),
          .l1_bytes = quantity(field["l1"], Kind::size),
          .l2_bytes = quantity(field["l2"], Kind::size),
          .l3_bytes = quantity(field["l3"], Kind::size),
          .l1_ns = quantity(field["l1_latency"], Kind::time),
          .l2_ns = quantity(field["l2_latency"], Kind::time),
          .l3_ns = quantity(field["l3_latency"], Kind::time),
          .snoop_ns = quantity(field["snoop_latency"], Kind::time),
          .memory_ns = quantity(field["memory_latency"], Kind::time),
          .work_ns = quantity(field["work"], Kind::time),
          .working_bytes = quantity(field["working_set"], Kind::size)};
}

constexpr std::uint32_t kEnginesOfDevice = 4;
constexpr std::uint32_t kEntriesOfDevice = 128;

/// Refuses contradictory models.
void check(const Model& model, const Field& root) {
  std::set<std::uint32_t> sockets;
  for (const SocketModel& socket : model.sockets) sockets.insert(socket.socket);
  const auto nodes = elements(root["nodes"]);
  std::set<std::uint32_t> seen;
  for (std::size_t i = 0; i < model.nodes.size(); ++i) {
    const NodeModel& node = model.nodes[i];
    if (!seen.insert(node.node).second) nodes[i]["node"].refuse("appears twice", "keep one");
    if (model.machine.node(NodeId(node.node)) == nullptr) {
      nodes[i]["node"].refuse(fmt::format("is {}, and the machine has no such node", node.node),
                              "use a node of the record's 'nodes'");
    }
    if (!sockets.contains(node.socket)) {
      nodes[i]["socket"].refuse(fmt::format("is {}, which 'model.sockets' lacks", node.socket),
                                "describe the socket, or name another");
    }
  }
  const auto links = elements(root["links"]);
  for (std::size_t i = 0; i < model.links.size(); ++i) {
    for (const auto& [key, socket] :
         {std::pair{"from", model.links[i].from}, std::pair{"to", model.links[i].to}}) {
      if (!sockets.contains(socket)) {
        links[i][key].refuse(fmt::format("is {}, which 'model.sockets' lacks", socket),
                             "link existing sockets");
      }
    }
  }
  if (!model.has_dsa) return;
  for (const topo::DsaDevice& device : model.machine.dsa_devices) {
    std::uint32_t entry_count = 0;
    for (const topo::DsaQueue& queue : device.queues) entry_count += queue.entry_count;
    const Field field = root["dsa"];
    const auto name = fmt::format("belongs to device {}, which has", device.id.value());
    if (device.engine_count > kEnginesOfDevice) {
      field.refuse(fmt::format("{} {} engines", name, device.engine_count),
                   fmt::format("a device has at most {}: correct 'movers'", kEnginesOfDevice));
    }
    if (entry_count > kEntriesOfDevice) {
      field.refuse(fmt::format("{} queues of {} entries", name, entry_count),
                   fmt::format("a device has {} in all: correct 'movers'", kEntriesOfDevice));
    }
    if (!device.node || model.node(device.node->value()) == nullptr) {
      field.refuse(fmt::format("{} no node of the model", name), "give it one in 'movers'");
    }
  }
}

}  // namespace

double NodeModel::shared_write_gb_per_s() const {
  const double half = mixed_gb_per_s / 2;
  const double left = 1 - half / read_gb_per_s;
  return mixed_gb_per_s <= read_gb_per_s ? std::max(half / left, write_gb_per_s) : 0;
}

double Model::ddr_node_count(std::uint32_t socket) const {
  return std::max(1.0, static_cast<double>(std::ranges::count_if(nodes, [&](const NodeModel& node) {
                    return node.kind == "ddr" && node.socket == socket;
                  })));
}

const NodeModel* Model::node(std::uint32_t number) const {
  const auto found = std::ranges::find(nodes, number, &NodeModel::node);
  return found == nodes.end() ? nullptr : &*found;
}

const SocketModel& Model::socket(std::uint32_t number) const {
  return *std::ranges::find(sockets, number, &SocketModel::socket);
}

/// Parses the text again and keeps the way to the current value.
std::size_t line_of(std::string_view text, std::string_view way) {
  using Event = json::Json::parse_event_t;
  std::istringstream stream{std::string(text)};
  std::vector<std::string> ways;                         // By depth.
  std::vector<std::optional<std::size_t>> next_indexes;  // Of lists.
  std::ptrdiff_t best_end = 0;
  std::size_t best_length = 0;
  const auto look = [&](int depth, Event event, const json::Json& parsed) {
    const auto at = static_cast<std::size_t>(depth);
    ways.resize(at + 1);
    next_indexes.resize(at + 1);
    if (event == Event::object_end || event == Event::array_end) return true;
    const std::string above = at == 0 ? "" : ways[at - 1];
    if (event == Event::key) {
      ways[at] = above + (above.empty() ? "" : ".") + parsed.get<std::string>();
    } else if (next_indexes[at]) {
      ways[at] = fmt::format("{}[{}]", above, (*next_indexes[at])++);
    }
    if (event == Event::array_start) next_indexes.emplace_back(0);
    const std::string& here = ways[at];
    const std::string_view rest = way.substr(std::min(here.size(), way.size()));
    const bool leads = rest.empty() || rest.starts_with('.') || rest.starts_with('[');
    if (leads && way.starts_with(here) && here.size() > best_length) {
      best_length = here.size();
      best_end = stream.tellg();
    }
    return true;
  };
  [[maybe_unused]] const json::Json parsed = json::Json::parse(stream, look, false);
  return 1 + static_cast<std::size_t>(std::count(text.begin(), text.begin() + best_end, '\n'));
}

Result<Model> parse_model(const std::string& text, const std::string& path, topo::Machine machine) {
  const json::Json json = json::Json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object() || !json.contains("model")) {
    return fail(Code::not_found, fmt::format("read the model of '{}'", path),
                "the record has no field 'model'",
                "use a machine of 'headrace sim list', or add the field (docs/reference/machine)");
  }
  Field::State state{.tried = fmt::format("read the model of '{}'", path),
                     .remedy = {},
                     .place = [&text](std::string_view way) {
                       return fmt::format("line {}: ", line_of(text, way));
                     }};
  const Field root(state, &json["model"], "model");
  Model model;
  model.path = path;
  model.machine = std::move(machine);
  for (const Field& field : elements(root["nodes"])) model.nodes.push_back(parse_node(field));
  for (const Field& field : elements(root["sockets"])) {
    model.sockets.push_back(parse_socket(field));
  }
  for (const Field& field : elements(root["links"])) {
    model.links.push_back({.from = field["from"].index(),
                           .to = field["to"].index(),
                           .gb_per_s = quantity(field["rate"], Kind::rate)});
  }
  if (model.nodes.empty()) root["nodes"].refuse("is missing or empty", "describe each node");
  model.core = parse_core(root["core"]);
  model.has_dsa = root["dsa"].json() != nullptr;
  if (model.has_dsa) model.dsa = parse_dsa(root["dsa"]);
  model.has_optane = root["optane"].json() != nullptr;
  if (model.has_optane) model.optane = parse_optane(root["optane"]);
  model.has_injection = root["injection"].json() != nullptr;
  if (model.has_injection) model.injection = parse_injection(root["injection"]);
  for (const char* const other : {"name", "measured"}) static_cast<void>(root[other]);
  root.refuse_unknown();
  if (!state.error.has_value()) check(model, root);
  if (state.error.has_value()) return fail(std::move(*state.error));
  return model;
}

Result<Model> read_model(const std::string& path) {
  HEADRACE_TAKE(machine, topo::replay(path));
  constexpr std::size_t kRecordBytesMax = std::size_t{64} << 20U;  // As replay().
  HEADRACE_TAKE(text, platform::load_file(path, kRecordBytesMax));
  return parse_model(*text, path, std::move(*machine));
}

}  // namespace headrace::sim
