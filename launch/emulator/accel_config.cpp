// SPDX-License-Identifier: Apache-2.0
#include "launch/emulator/accel_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <set>
#include <utility>

#include "headrace/json/field.hpp"
#include "launch/emulator/values.hpp"

namespace headrace::emu {
namespace {

using json::Field;
using json::Json;

constexpr std::size_t kNameMax = 63;
constexpr std::size_t kFieldsMax = 4096;
constexpr std::uint64_t kPriorityMax = 15;

/// Blanks out commas before a closing bracket, outside strings, without moving other characters.
std::string without_trailing_commas(std::string_view json) {
  std::string text(json);
  std::optional<std::size_t> comma;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
      continue;
    }
    if (c == ' ' || c == '\n' || c == '\t' || c == '\r') continue;
    if ((c == '}' || c == ']') && comma) text[*comma] = ' ';
    comma = c == ',' ? std::optional(i) : std::nullopt;
    in_string = c == '"';
  }
  return text;
}

/// "wq0.3" with kind "wq" and device 0: 3.
std::optional<std::uint32_t> parse_member(std::string_view name, std::string_view kind,
                                          std::uint32_t device, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) {
    if (name == fmt::format("{}{}.{}", kind, device, i)) return i;
  }
  return std::nullopt;
}

/// Reads the configuration of one device. The state of its fields keeps the first error.
class Reader {
 public:
  Reader(std::uint32_t device, DeviceConfig& config, DeviceExtras& extras,
         std::vector<std::string>& left_out)
      : device_(device), config_(config), extras_(extras), left_out_(left_out) {}

  void read(const Field& field);

 private:
  std::optional<std::uint32_t> member(const Field& field, const char* kind, std::uint32_t count);
  void read_group(const Field& field);
  void read_queue(const Field& field, std::optional<std::uint32_t> group);
  void read_engine(const Field& field, std::optional<std::uint32_t> group);
  static void check_group_id(const Field& field, std::optional<std::uint32_t> group);
  static void check_queue(const Field& field, const QueueConfig& queue);

  std::uint32_t device_;
  DeviceConfig& config_;
  DeviceExtras& extras_;
  std::vector<std::string>& left_out_;
  std::set<std::string> seen_;
};

std::optional<std::uint32_t> Reader::member(const Field& field, const char* kind,
                                            std::uint32_t count) {
  const std::string name = field["dev"].text();
  const auto index = parse_member(name, kind, device_, count);
  if (!index) {
    field["dev"].refuse(
        fmt::format("is '{}', which is no {} of dsa{}", name, kind, device_),
        fmt::format("use {}{}.0 to {}{}.{}", kind, device_, kind, device_, count - 1));
    field.ignore();
  } else if (!seen_.insert(name).second) {
    field["dev"].refuse(fmt::format("is '{}', which appears twice", name), "name it once");
  }
  return index;
}

/// Without a group the file says -1.
void Reader::check_group_id(const Field& field, std::optional<std::uint32_t> group) {
  if (!group || !field.is_present()) return;
  const std::uint64_t said = field.number(kGroupMax - 1);
  if (said == *group) return;
  field.refuse(fmt::format("is {}, not the group that contains it", said),
               fmt::format("use {}, or move it", *group));
}

void Reader::read_queue(const Field& field, std::optional<std::uint32_t> group) {
  const auto index = member(field, "wq", kQueueMax);
  if (!index) return;
  QueueConfig& queue = config_.queues[*index];
  queue.group = group.value_or(kNoGroup);
  check_group_id(field["group_id"], group);
  std::string mode = "dedicated";
  if (field["mode"].is_present()) mode = field["mode"].one_of(std::array{"shared", "dedicated"});
  queue.mode = mode == "shared" ? dsa::QueueMode::shared : dsa::QueueMode::dedicated;
  field["size"].take(queue.size, kEntryMax);
  field["threshold"].take(queue.threshold, kEntryMax);
  field["priority"].take(queue.priority, kPriorityMax);
  queue.block_on_fault =
      field["block_on_fault"].is_present() && field["block_on_fault"].number(1) != 0;
  field["max_batch_size"].take(queue.batch_max, kBatchMax, 1);
  field["max_transfer_size"].take(queue.transfer_bytes_max, kTransferBytesMax, 1);
  field["type"].take(queue.type);
  field["name"].take(queue.name);
  field["driver_name"].take(queue.driver_name);
  extras_.ats_disable[*index] =
      field["ats_disable"].is_present() && field["ats_disable"].number(1) != 0;
  extras_.prs_disable[*index] =
      field["prs_disable"].is_present() && field["prs_disable"].number(1) != 0;
  const Field opcodes = field["op_config"];
  if (queue.type != "none" && queue.type != "user") {
    left_out_.push_back(
        fmt::format("{}: wq{}.{} of type {} ignored: only WQs of type user are emulated",
                    field.way(), device_, *index, queue.type));
    queue = {};
    return;
  }
  queue.batch_max = std::bit_ceil(queue.batch_max);
  queue.transfer_bytes_max = std::bit_ceil(queue.transfer_bytes_max);
  if (opcodes.is_present()) {
    const std::string text = opcodes.text();
    if (const auto bits = parse_bitmap(text)) {
      queue.op_config = *bits;
    } else {
      opcodes.refuse(fmt::format("is '{}', which is not a bitmap", text),
                     "use up to eight words of hexadecimal digits with commas between");
    }
  }
  if (queue.size != 0 && queue.type == "user") check_queue(field, queue);
}

void Reader::check_queue(const Field& field, const QueueConfig& queue) {
  if (const auto lack = lack_of(queue)) {
    field.refuse(fmt::format("is of type user, but {}", lack->cause), lack->remedy);
  }
  const bool is_shared = queue.mode == dsa::QueueMode::shared;
  if (queue.name.size() > kNameMax) {
    field["name"].refuse("is too long", fmt::format("use 1 to {} characters", kNameMax));
  }
  if (queue.driver_name.empty()) {
    field["driver_name"].refuse("is missing, and a WQ of type user needs one", "use user");
  }
  if (queue.driver_name != "user") {
    field["driver_name"].refuse(fmt::format("is '{}', which is not emulated", queue.driver_name),
                                "use user");
  }
  if (is_shared && queue.threshold > queue.size) {
    field["threshold"].refuse(
        fmt::format("is {} for a shared WQ of size {}", queue.threshold, queue.size),
        fmt::format("use 1 to {}", queue.size));
  }
  if (!is_shared && queue.threshold != 0) {
    field["threshold"].refuse("is set for a dedicated WQ, which has none",
                              "use 0, or leave it out");
  }
}

void Reader::read_engine(const Field& field, std::optional<std::uint32_t> group) {
  const auto index = member(field, "engine", kEngineMax);
  if (!index) return;
  check_group_id(field["group_id"], group);
  config_.engine_groups[*index] = group.value_or(kNoGroup);
}

void Reader::read_group(const Field& field) {
  const auto index = member(field, "group", kGroupMax);
  if (!index) return;
  GroupExtras& extras = extras_.groups[*index];
  for (const GroupField& each : kGroupFields) {
    for (const char* name : {each.name, each.former_name}) {
      if (name != nullptr) field[name].take(extras.*each.field, each.most);
    }
  }
  for (const Field& queue : field["grouped_workqueues"].elements(kQueueMax)) {
    read_queue(queue, *index);
  }
  const std::vector<Field> engines = field["grouped_engines"].elements(kEngineMax);
  for (const Field& engine : engines) read_engine(engine, *index);
  const auto is_in_use = [&](const QueueConfig& queue) {
    return queue.group == *index && queue.size != 0;
  };
  if (engines.empty() && std::ranges::any_of(config_.queues, is_in_use)) {
    field["grouped_engines"].refuse("is empty, but the group has WQs", "give it at least one");
  }
}

void Reader::read(const Field& field) {
  // Not from save-config, which leaves out what load-config cannot set.
  field["numa_node"].take(config_.numa_node, kNodeMax);
  for (const char* name : {"read_buffer_limit", "token_limit"}) {
    field[name].take(config_.read_buffer_limit, kReadBufferMax);
  }
  for (const Field& group : field["groups"].elements(kGroupMax)) read_group(group);
  for (const Field& queue : field["ungrouped_workqueues"].elements(kQueueMax)) {
    read_queue(queue, std::nullopt);
  }
  for (const Field& engine : field["ungrouped_engines"].elements(kEngineMax)) {
    read_engine(engine, std::nullopt);
  }
  std::uint64_t total = 0;
  for (const QueueConfig& queue : config_.queues) total += queue.size;
  if (total <= kEntryMax) return;
  field["groups"].refuse(fmt::format("has WQs of dsa{} whose sizes add up to {}", device_, total),
                         fmt::format("use {} at most", kEntryMax));
}

/// Whether `name` is an IAA device (accel-config: iax), which files list beside the DSAs.
bool is_iax(std::string_view name) {
  return name.starts_with("iax") && name.size() > 3 &&
         name.find_first_not_of("0123456789", 3) == std::string_view::npos;
}

std::optional<std::uint32_t> parse_device(const std::string& name) {
  for (std::uint32_t d = 0; d < kDeviceMax; ++d) {
    if (name == fmt::format("dsa{}", d)) return d;
  }
  return std::nullopt;
}

AccelConfig parse_devices(const Field& whole) {
  AccelConfig config;
  const std::vector<Field> fields = whole.elements(kFieldsMax);
  std::set<std::uint32_t> seen;
  for (const Field& field : fields) {
    const std::string name = field["dev"].text();
    if (is_iax(name)) {
      field.ignore();
      config.left_out.push_back(
          fmt::format("{}: {} ignored: only DSAs are emulated", field.way(), name));
      continue;
    }
    const auto device = parse_device(name);
    if (!device) {
      field["dev"].refuse(fmt::format("is '{}', which is not a DSA device", name),
                          fmt::format("use dsa0 to dsa{}", kDeviceMax - 1));
      field.ignore();
      return config;
    }
    if (!seen.insert(*device).second) {
      field["dev"].refuse(fmt::format("is '{}', which appears twice", name), "name it once");
    }
    if (config.devices.size() <= *device) {
      config.devices.resize(*device + 1);
      config.extras.resize(*device + 1);
    }
    Reader(*device, config.devices[*device], config.extras[*device], config.left_out).read(field);
  }
  if (config.devices.empty()) {
    whole.refuse(fields.empty() ? "is not a list of devices" : "has no DSA",
                 "name one, as in [{\"dev\": \"dsa0\"}], with its groups and WQs");
  }
  return config;
}

}  // namespace

Result<AccelConfig> parse_accel_config(std::string_view json, const std::string& file_name) {
  const std::string tried = fmt::format("read the configuration '{}'", file_name);
  Json parsed;
  try {
    parsed = Json::parse(without_trailing_commas(json));
  } catch (const Json::parse_error& error) {
    const std::size_t place = std::min(error.byte, json.size());
    const auto line =
        1 + std::count(json.begin(), json.begin() + static_cast<std::ptrdiff_t>(place), '\n');
    return fail(Code::corrupt_data, tried, fmt::format("line {} is not JSON", line),
                "write one with 'accel-config save-config'");
  }
  Field::State state{.tried = tried, .remedy = {}};
  const Field whole(state, &parsed, "");
  AccelConfig config = parse_devices(whole);
  whole.refuse_unknown();
  if (state.error) return fail(std::move(*state.error));
  for (std::string& sentence : config.left_out) {
    sentence = fmt::format("'{}', {}", file_name, sentence);
  }
  return config;
}

}  // namespace headrace::emu
