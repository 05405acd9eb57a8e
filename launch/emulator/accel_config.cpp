// SPDX-License-Identifier: Apache-2.0
#include "launch/emulator/accel_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "launch/emulator/values.hpp"

namespace headrace::emu {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kNameMax = 63;
constexpr std::uint64_t kSixteen = 15;

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

/// A JSON object and its path; reads fields one by one and tracks which remain.
class Object {
 public:
  Object(const Json& json, std::string path) : json_(json), path_(std::move(path)) {}

  [[nodiscard]] Error error(std::string_view field, std::string found, std::string remedy) const {
    const std::string place = field.empty() ? path_ : fmt::format("{}.{}", path_, field);
    return Error{.code = Code::corrupt_data,
                 .os_errno = 0,
                 .tried = "",
                 .cause = fmt::format("{}: {}", place, found),
                 .remedy = std::move(remedy)};
  }
  [[nodiscard]] const std::string& path() const { return path_; }

  /// Reads a whole number from `least` to `most` into `into`, if the field exists.
  template <typename T>
  Result<void> take(const char* field, T& into, std::uint64_t least, std::uint64_t most) {
    known_.insert(field);
    if (!json_.contains(field)) return {};
    const Json& value = json_[field];
    const auto allowed = [&] {
      return fmt::format("use a whole number from {} to {}", least, most);
    };
    if (!value.is_number_unsigned()) {
      return fail(error(field, fmt::format("{} is not a valid number", value.dump()), allowed()));
    }
    const auto number = value.get<std::uint64_t>();
    if (number < least || number > most) {
      return fail(error(field, fmt::format("{} is out of range", number), allowed()));
    }
    into = static_cast<T>(number);
    return {};
  }
  /// Reads a number that is 0 or 1.
  Result<void> take(const char* field, bool& into) {
    std::uint32_t number = into ? 1 : 0;
    auto taken = take(field, number, 0, 1);
    into = number != 0;
    return taken;
  }
  Result<void> take(const char* field, std::string& into) {
    known_.insert(field);
    if (!json_.contains(field)) return {};
    if (!json_[field].is_string()) {
      return fail(error(field, fmt::format("{} is not a string", json_[field].dump()),
                        "put it in quotation marks"));
    }
    into = json_[field].get<std::string>();
    return {};
  }
  /// Calls `read` with each object of a list. Returns their number: 0 if the field does not exist.
  template <typename Read>
  Result<std::size_t> each(const char* field, Read read) {
    known_.insert(field);
    if (!json_.contains(field)) return 0;
    const Json& value = json_[field];
    if (!value.is_array()) return fail(error(field, "it is not a list", "use [ ... ]"));
    for (std::size_t i = 0; i < value.size(); ++i) {
      const std::string path = fmt::format("{}.{}[{}]", path_, field, i);
      if (!value[i].is_object()) {
        return fail(Object(value, path).error("", "it is not an object", "use { ... }"));
      }
      Object object(value[i], path);
      if (auto done = read(object); !done) return fail(done.error());
    }
    return value.size();
  }
  /// Fails if a field was not read.
  [[nodiscard]] Result<void> check_known() const {
    for (const auto& [field, ignored] : json_.items()) {
      if (!known_.contains(field)) {
        std::string all;
        for (const std::string& each : known_) all += (all.empty() ? "" : ", ") + each;
        return fail(error(field, "there is no such field", "use one of " + all));
      }
    }
    return {};
  }
  [[nodiscard]] bool has(const char* field) const { return json_.contains(field); }

 private:
  const Json& json_;
  std::string path_;
  std::set<std::string> known_;
};

/// "wq0.3" with kind "wq" and device 0: 3.
std::optional<std::uint32_t> parse_member(std::string_view name, std::string_view kind,
                                          std::uint32_t device, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) {
    if (name == fmt::format("{}{}.{}", kind, device, i)) return i;
  }
  return std::nullopt;
}

/// Reads the configuration of one device.
class Reader {
 public:
  Reader(std::uint32_t device, DeviceConfig& config, DeviceExtras& extras,
         std::vector<std::string>& left_out)
      : device_(device), config_(config), extras_(extras), left_out_(left_out) {}

  Result<void> read(Object& object);

 private:
  Result<std::uint32_t> member(Object& object, const char* kind, std::uint32_t count);
  Result<void> read_group(Object& object);
  Result<void> read_queue(Object& object, std::optional<std::uint32_t> group);
  Result<void> read_engine(Object& object, std::optional<std::uint32_t> group);
  Result<void> read_group_id(Object& object, std::optional<std::uint32_t> group,
                             std::uint32_t& into);
  [[nodiscard]] Result<void> check_queue(const Object& object, const QueueConfig& queue) const;

  std::uint32_t device_;
  DeviceConfig& config_;
  DeviceExtras& extras_;
  std::vector<std::string>& left_out_;
  std::set<std::string> seen_;
};

#define HEADRACE_TRY(expression)                                          \
  do {                                                                    \
    if (auto tried_ = (expression); !tried_) return fail(tried_.error()); \
  } while (false)

Result<std::uint32_t> Reader::member(Object& object, const char* kind, std::uint32_t count) {
  std::string name;
  HEADRACE_TRY(object.take("dev", name));
  const auto index = parse_member(name, kind, device_, count);
  if (!index) {
    return fail(object.error(
        "dev", fmt::format("'{}' is no {} of dsa{}", name, kind, device_),
        fmt::format("use {}{}.0 to {}{}.{}", kind, device_, kind, device_, count - 1)));
  }
  if (!seen_.insert(name).second) {
    return fail(object.error("dev", fmt::format("{} appears twice", name), "name it once"));
  }
  return *index;
}

Result<void> Reader::read_group_id(Object& object, std::optional<std::uint32_t> group,
                                   std::uint32_t& into) {
  std::uint32_t said = group.value_or(kNoGroup);
  // -1 if ungrouped.
  const Result<void> taken = object.take("group_id", said, 0, kGroupMax - 1);
  if (group) {
    HEADRACE_TRY(taken);
    if (said != *group) {
      return fail(object.error("group_id",
                               fmt::format("{} is not the group that contains it", said),
                               fmt::format("use {}, or move it", *group)));
    }
  }
  into = group.value_or(kNoGroup);
  return {};
}

Result<void> Reader::read_queue(Object& object, std::optional<std::uint32_t> group) {
  const auto index = member(object, "wq", kQueueMax);
  if (!index) return fail(index.error());
  QueueConfig& queue = config_.queues[*index];
  std::string mode = "dedicated";
  std::string opcodes;
  HEADRACE_TRY(read_group_id(object, group, queue.group));
  HEADRACE_TRY(object.take("mode", mode));
  HEADRACE_TRY(object.take("size", queue.size, 0, kEntryMax));
  HEADRACE_TRY(object.take("threshold", queue.threshold, 0, kEntryMax));
  HEADRACE_TRY(object.take("priority", queue.priority, 0, kSixteen));
  HEADRACE_TRY(object.take("block_on_fault", queue.block_on_fault));
  HEADRACE_TRY(object.take("max_batch_size", queue.batch_max, 1, kBatchMax));
  HEADRACE_TRY(object.take("max_transfer_size", queue.transfer_bytes_max, 1, kTransferBytesMax));
  HEADRACE_TRY(object.take("type", queue.type));
  HEADRACE_TRY(object.take("name", queue.name));
  HEADRACE_TRY(object.take("driver_name", queue.driver_name));
  HEADRACE_TRY(object.take("ats_disable", extras_.ats_disable[*index]));
  HEADRACE_TRY(object.take("prs_disable", extras_.prs_disable[*index]));
  HEADRACE_TRY(object.take("op_config", opcodes));
  HEADRACE_TRY(object.check_known());
  if (queue.type != "none" && queue.type != "user") {
    left_out_.push_back(
        fmt::format("{}: wq{}.{} of type {} ignored: only WQs of type user are emulated",
                    object.path(), device_, *index, queue.type));
    queue = {};
    return {};
  }
  queue.batch_max = std::bit_ceil(queue.batch_max);
  queue.transfer_bytes_max = std::bit_ceil(queue.transfer_bytes_max);
  if (mode != "shared" && mode != "dedicated") {
    return fail(object.error("mode", fmt::format("there is no mode '{}'", mode),
                             "use shared or dedicated"));
  }
  queue.mode = mode == "shared" ? dsa::QueueMode::shared : dsa::QueueMode::dedicated;
  if (!opcodes.empty()) {
    const auto bits = parse_bitmap(opcodes);
    if (!bits) {
      return fail(object.error("op_config", fmt::format("'{}' is not a bitmap", opcodes),
                               "use up to eight words of hexadecimal digits with commas between"));
    }
    queue.op_config = *bits;
  }
  return check_queue(object, queue);
}

Result<void> Reader::check_queue(const Object& object, const QueueConfig& queue) const {
  if (queue.size == 0 || queue.type == "none") {
    return {};
  }
  if (queue.group == kNoGroup) {
    return fail(object.error("", "a WQ of type user needs a group",
                             "put it into the grouped_workqueues of one"));
  }
  if (queue.priority == 0) {
    return fail(object.error("priority", "a WQ of type user needs one", "use 1 to 15"));
  }
  if (queue.name.empty() || queue.name.size() > kNameMax) {
    return fail(object.error("name", "a WQ of type user needs one",
                             fmt::format("use 1 to {} characters", kNameMax)));
  }
  if (queue.driver_name.empty()) {
    return fail(
        object.error("driver_name", "it is missing, and a WQ of type user needs one", "use user"));
  }
  if (queue.driver_name != "user") {
    return fail(object.error("driver_name", fmt::format("'{}' is not emulated", queue.driver_name),
                             "use user"));
  }
  const bool shared = queue.mode == dsa::QueueMode::shared;
  if (shared && (queue.threshold == 0 || queue.threshold > queue.size)) {
    return fail(object.error(
        "threshold",
        fmt::format("{} does not suit a shared WQ of size {}", queue.threshold, queue.size),
        fmt::format("use 1 to {}", queue.size)));
  }
  if (!shared && queue.threshold != 0) {
    return fail(object.error("threshold", "a dedicated WQ has none", "use 0, or leave it out"));
  }
  return {};
}

Result<void> Reader::read_engine(Object& object, std::optional<std::uint32_t> group) {
  const auto index = member(object, "engine", kEngineMax);
  if (!index) return fail(index.error());
  HEADRACE_TRY(read_group_id(object, group, config_.engine_groups[*index]));
  return object.check_known();
}

Result<void> Reader::read_group(Object& object) {
  const auto index = member(object, "group", kGroupMax);
  if (!index) return fail(index.error());
  GroupExtras& extras = extras_.groups[*index];
  for (const GroupField& each : kGroupFields) {
    for (const char* name : {each.name, each.former_name}) {
      if (name != nullptr) HEADRACE_TRY(object.take(name, extras.*each.field, 0, each.most));
    }
  }
  HEADRACE_TRY(
      object.each("grouped_workqueues", [&](Object& queue) { return read_queue(queue, *index); }));
  const auto engine_count =
      object.each("grouped_engines", [&](Object& engine) { return read_engine(engine, *index); });
  if (!engine_count) return fail(engine_count.error());
  HEADRACE_TRY(object.check_known());
  const auto is_in_use = [&](const QueueConfig& queue) {
    return queue.group == *index && queue.size != 0;
  };
  if (std::ranges::any_of(config_.queues, is_in_use) && *engine_count == 0) {
    return fail(
        object.error("grouped_engines", "a group with WQs has no engine", "give it at least one"));
  }
  return {};
}

Result<void> Reader::read(Object& object) {
  for (const char* field : {"read_buffer_limit", "token_limit"}) {
    HEADRACE_TRY(object.take(field, config_.read_buffer_limit, 0, kReadBufferMax));
  }
  HEADRACE_TRY(object.each("groups", [&](Object& group) { return read_group(group); }));
  HEADRACE_TRY(object.each("ungrouped_workqueues",
                           [&](Object& queue) { return read_queue(queue, std::nullopt); }));
  HEADRACE_TRY(object.each("ungrouped_engines",
                           [&](Object& engine) { return read_engine(engine, std::nullopt); }));
  HEADRACE_TRY(object.check_known());
  std::uint64_t total = 0;
  for (const QueueConfig& queue : config_.queues) total += queue.size;
  if (total <= kEntryMax) return {};
  return fail(object.error(
      "groups", fmt::format("the sizes of the WQs of dsa{} add up to {}", device_, total),
      fmt::format("use {} at most", kEntryMax)));
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

Result<AccelConfig> parse_devices(const Json& json) {
  AccelConfig config;
  if (!json.is_array() || json.empty()) {
    return fail(
        Object(json, "the whole").error("", "it is not a list of devices", "use [ {...} ]"));
  }
  std::set<std::uint32_t> seen;
  for (std::size_t i = 0; i < json.size(); ++i) {
    Object object(json[i], fmt::format("[{}]", i));
    if (!json[i].is_object()) return fail(object.error("", "it is not an object", "use { ... }"));
    std::string name;
    HEADRACE_TRY(object.take("dev", name));
    if (is_iax(name)) {
      config.left_out.push_back(fmt::format("[{}]: {} ignored: only DSAs are emulated", i, name));
      continue;
    }
    const auto device = parse_device(name);
    if (!device) {
      return fail(object.error("dev", fmt::format("'{}' is not a DSA device", name),
                               fmt::format("use dsa0 to dsa{}", kDeviceMax - 1)));
    }
    if (!seen.insert(*device).second) {
      return fail(object.error("dev", fmt::format("{} appears twice", name), "name it once"));
    }
    if (config.devices.size() <= *device) {
      config.devices.resize(*device + 1);
      config.extras.resize(*device + 1);
    }
    Reader reader(*device, config.devices[*device], config.extras[*device], config.left_out);
    HEADRACE_TRY(reader.read(object));
  }
  if (config.devices.empty()) {
    return fail(Object(json, "the whole")
                    .error("", "it has no DSA", "name one: dsa0, with its groups and WQs"));
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
  auto config = parse_devices(parsed);
  if (!config) {
    Error error = config.error();
    error.tried = tried;
    return fail(std::move(error));
  }
  for (std::string& sentence : config->left_out) {
    sentence = fmt::format("'{}', {}", file_name, sentence);
  }
  return config;
}

}  // namespace headrace::emu
