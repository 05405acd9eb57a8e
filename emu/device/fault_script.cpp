// SPDX-License-Identifier: Apache-2.0
// Parses a fault script. Every error names file, line, field and allowed values.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include "emu/device/config.hpp"
#include "emu/device/faults.hpp"
#include "headrace/base/names.hpp"
#include "headrace/dsa/descriptor.hpp"
#include "headrace/json/field.hpp"

namespace headrace::emu {
namespace {

using json::Field;
using json::Json;

/// Fields that apply to some kinds only.
struct KindField {
  const char* name;
  std::array<FaultKind, 2> kinds;
};
constexpr std::array kKindFields{
    KindField{"at_byte", {FaultKind::page_fault, FaultKind::page_fault}},
    KindField{"write", {FaultKind::page_fault, FaultKind::page_fault}},
    KindField{"delay_ns", {FaultKind::page_fault, FaultKind::slow}},
    KindField{"status", {FaultKind::status, FaultKind::status}}};

/// Names of <linux/idxd.h> (DSA_OPCODE_...) that differ from ours.
struct KernelName {
  std::string_view name;
  dsa::Opcode opcode;
};
constexpr std::array kKernelNames{KernelName{"memmove", dsa::Opcode::move},
                                  KernelName{"memfill", dsa::Opcode::fill},
                                  KernelName{"compval", dsa::Opcode::compare_pattern},
                                  KernelName{"cr_delta", dsa::Opcode::create_delta},
                                  KernelName{"ap_delta", dsa::Opcode::apply_delta},
                                  KernelName{"crcgen", dsa::Opcode::crc},
                                  KernelName{"dif_ins", dsa::Opcode::dif_insert},
                                  KernelName{"dif_strp", dsa::Opcode::dif_strip},
                                  KernelName{"dif_updt", dsa::Opcode::dif_update},
                                  KernelName{"cflush", dsa::Opcode::cache_flush}};
/// "move", "MEMMOVE" or "DSA_OPCODE_MEMMOVE"; nothing if no opcode has that name.
std::optional<std::int32_t> opcode_named(std::string_view given) {
  std::string text(given);
  std::ranges::transform(text, text.begin(), [](unsigned char letter) {
    return static_cast<char>(letter >= 'A' && letter <= 'Z' ? letter - 'A' + 'a' : letter);
  });
  constexpr std::string_view kPrefix = "dsa_opcode_";
  if (text.starts_with(kPrefix)) text.erase(0, kPrefix.size());
  const auto* kernel = std::ranges::find(kKernelNames, text, &KernelName::name);
  if (kernel != kKernelNames.end()) return static_cast<std::int32_t>(kernel->opcode);
  const std::optional<dsa::Opcode> named = find_name<dsa::Opcode>(text);
  return named ? std::optional(static_cast<std::int32_t>(*named)) : std::nullopt;
}

/// "kind 'page_fault' or 'slow'": the kinds that a field applies to.
std::string kinds_of(const KindField& field) {
  const std::string first = fmt::format("kind '{}'", headrace::name(field.kinds[0]));
  return field.kinds[1] == field.kinds[0]
             ? first
             : fmt::format("{} or '{}'", first, headrace::name(field.kinds[1]));
}

/// The line of each value, by its way.
using Lines = std::map<std::string, std::size_t, std::less<>>;

Json to_json(const toml::node& node, const std::string& way, Lines& lines) {
  lines[way] = node.source().begin.line;
  if (const toml::table* const table = node.as_table()) {
    Json made = Json::object();
    for (const auto& [key, value] : *table) {
      const std::string name(key.str());
      made[name] = to_json(value, way.empty() ? name : way + "." + name, lines);
    }
    return made;
  }
  if (const toml::array* const array = node.as_array()) {
    Json made = Json::array();
    for (const toml::node& value : *array) {
      made.push_back(to_json(value, fmt::format("{}[{}]", way, made.size()), lines));
    }
    return made;
  }
  if (const auto number = node.value_exact<std::int64_t>()) {
    return *number < 0 ? Json(*number) : Json(static_cast<std::uint64_t>(*number));
  }
  if (const auto number = node.value_exact<double>()) return *number;
  if (const auto flag = node.value_exact<bool>()) return *flag;
  std::ostringstream text;
  node.visit([&text](const auto& value) {
    if constexpr (toml::is_string<decltype(value)>) {
      text << value.get();
    } else {
      text << value;
    }
  });
  return text.str();
}

/// What must hold between the fields of a rule.
void check_whole(const Field& field, const FaultRule& rule) {
  for (const KindField& each : kKindFields) {
    const Field given = field[each.name];
    if (!given.is_present() || std::ranges::count(each.kinds, rule.kind) != 0) continue;
    given.refuse(fmt::format("does not apply to a fault of kind '{}'", headrace::name(rule.kind)),
                 fmt::format("leave it out; {} has it", kinds_of(each)));
  }
  std::string_view first;
  for (const char* const when : {"probability", "every", "nth"}) {
    const Field given = field[when];
    if (!given.is_present()) continue;
    if (!first.empty()) {
      given.refuse(fmt::format("is set together with '{}', but only one can say when the fault "
                               "occurs",
                               first),
                   "write one of probability, every and nth");
    }
    first = when;
  }
  if (rule.kind == FaultKind::status && rule.raw_status == 0) {
    field["status"].refuse("is missing", "write the status byte of the record, 1 to 255");
  }
  if (rule.kind == FaultKind::slow && rule.delay_ns == 0) {
    field["delay_ns"].refuse("is missing",
                             "write how much longer the descriptor takes, in nanoseconds from 1");
  }
}

/// Reads one [[fault]].
FaultRule read_rule(const Field& field) {
  constexpr std::uint64_t kLargest = std::numeric_limits<std::int64_t>::max();
  constexpr std::uint64_t kLongestNs = 3'600'000'000'000;  // An hour.
  FaultRule rule;
  rule.kind = field["kind"].enumerator<FaultKind>();
  field["device"].take(rule.device, kDeviceMax - 1);
  field["queue"].take(rule.queue, kQueueMax - 1);
  field["every"].take(rule.every, kLargest, 1);
  field["nth"].take(rule.nth, kLargest, 1);
  field["at_byte"].take(rule.at_byte, kTransferBytesMax);
  field["delay_ns"].take(rule.delay_ns, kLongestNs);
  field["status"].take(rule.raw_status, 255, 1);
  if (field["probability"].is_present()) rule.probability = field["probability"].figure(1);
  if (const Field opcode = field["opcode"]; opcode.is_present() && opcode.json()->is_string()) {
    const auto code = opcode_named(opcode.text());
    if (!code) {
      opcode.refuse(fmt::format("is '{}', which is no opcode", opcode.text()),
                    fmt::format("write one of {}, a name of <linux/idxd.h>, or an integer of 0 to "
                                "63",
                                list_names<dsa::Opcode>()));
    }
    rule.opcode = code.value_or(0);
  } else {
    opcode.take(rule.opcode, 63);
  }
  if (field["write"].is_present()) rule.write = field["write"].truth();
  check_whole(field, rule);
  return rule;
}

}  // namespace

Result<FaultScript> parse_fault_script(std::string_view text, const std::string& file_name) {
  const std::string tried = "read the fault script";
  const toml::parse_result parsed = toml::parse(text, file_name);
  if (!parsed) {
    return fail(Code::corrupt_data, tried,
                fmt::format("{}, line {}: {}", file_name, parsed.error().source().begin.line,
                            parsed.error().description()),
                "write TOML: a table [[fault]] for each fault");
  }
  Lines lines;
  const Json json = to_json(parsed.table(), "", lines);
  Field::State state{.tried = tried, .remedy = {}, .place = [&](std::string_view way) {
                       // A missing field is where the table around it begins.
                       while (!lines.contains(way)) way = way.substr(0, way.rfind('.'));
                       return fmt::format("{}, line {}: ", file_name, lines.find(way)->second);
                     }};
  const Field root(state, &json, "");
  FaultScript script;
  for (const Field& field : root["fault"].elements(kFaultRuleMax)) {
    script.rules[script.rule_count++] = read_rule(field);
  }
  root.refuse_unknown();
  if (state.error) return fail(std::move(*state.error));
  return script;
}

std::vector<std::string> faults_never_met(const EmulatorConfig& config) {
  std::vector<std::string> sentences;
  const auto devices = std::ssize(config.devices);
  for (std::uint32_t i = 0; i < config.faults.rule_count; ++i) {
    const FaultRule& rule = config.faults.rules[i];
    const std::string fault = "fault " + std::to_string(i + 1) + " of the script never happens: ";
    if (rule.device >= devices) {
      sentences.push_back(fault + "there is no dsa" + std::to_string(rule.device));
      continue;
    }
    if (rule.queue < 0) continue;
    const auto has_queue = [&rule](const DeviceConfig& device) {
      return device.queues[static_cast<std::size_t>(rule.queue)].size != 0;
    };
    const bool found = rule.device >= 0
                           ? has_queue(config.devices[static_cast<std::size_t>(rule.device)])
                           : std::ranges::any_of(config.devices, has_queue);
    if (found) continue;
    sentences.push_back(fault + "there is no wq" +
                        (rule.device >= 0 ? std::to_string(rule.device) : std::string("D")) + "." +
                        std::to_string(rule.queue));
  }
  return sentences;
}

}  // namespace headrace::emu
