// SPDX-License-Identifier: Apache-2.0
// Parses a fault script. Every error names file, line, field and allowed values.
#include <algorithm>
#include <array>
#include <limits>
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

namespace headrace::emu {
namespace {

/// Fields that apply to some kinds only.
struct KindField {
  std::string_view name;
  std::array<FaultKind, 2> kinds;
};
constexpr std::array kKindFields{
    KindField{"at_byte", {FaultKind::page_fault, FaultKind::page_fault}},
    KindField{"write", {FaultKind::page_fault, FaultKind::page_fault}},
    KindField{"delay_ns", {FaultKind::page_fault, FaultKind::slow}},
    KindField{"status", {FaultKind::status, FaultKind::status}}};
constexpr std::array<std::string_view, 3> kWhenFields{"probability", "every", "nth"};
constexpr std::string_view kFields =
    "kind, device, queue, opcode, probability, every, nth, at_byte, delay_ns, status, write";

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
constexpr std::int32_t kOpcodeEnd = 64;

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
  for (std::int32_t code = 0; code < kOpcodeEnd; ++code) {
    if (text != "unknown" && dsa::name(static_cast<dsa::Opcode>(code)) == text) return code;
  }
  return std::nullopt;
}

std::string opcode_names() {
  std::string names;
  for (std::int32_t code = 0; code < kOpcodeEnd; ++code) {
    const std::string_view name = dsa::name(static_cast<dsa::Opcode>(code));
    if (name != "unknown") names += std::string(name) + ", ";
  }
  return names;
}

/// "kind 'page_fault' or 'slow'": the kinds that a field applies to.
std::string kinds_of(const KindField& field) {
  std::string names = "kind '" + std::string(enumerator_name(field.kinds[0])) + "'";
  if (field.kinds[1] != field.kinds[0]) {
    names += " or '" + std::string(enumerator_name(field.kinds[1])) + "'";
  }
  return names;
}

/// Reads the fields of one [[fault]]; keeps the first error.
class RuleReader {
 public:
  RuleReader(const toml::table& table, std::string file_name)
      : table_(table), file_name_(std::move(file_name)) {}

  [[nodiscard]] Result<FaultRule> read() {
    FaultRule rule;
    for (const auto& [key, node] : table_) {
      const std::string_view field = key.str();
      if (field == "kind") {
        read_kind(node, rule);
      } else if (field == "device") {
        rule.device = static_cast<std::int32_t>(integer(field, node, 0, kDeviceMax - 1));
      } else if (field == "queue") {
        rule.queue = static_cast<std::int32_t>(integer(field, node, 0, kQueueMax - 1));
      } else if (field == "opcode") {
        read_opcode(node, rule);
      } else if (field == "probability") {
        read_probability(node, rule);
      } else if (field == "every") {
        rule.every = static_cast<std::uint64_t>(integer(field, node, 1, kLargest));
      } else if (field == "nth") {
        rule.nth = static_cast<std::uint64_t>(integer(field, node, 1, kLargest));
      } else if (field == "at_byte") {
        rule.at_byte = static_cast<std::uint64_t>(
            integer(field, node, 0, static_cast<std::int64_t>(kTransferBytesMax)));
      } else if (field == "delay_ns") {
        rule.delay_ns = static_cast<std::uint64_t>(integer(field, node, 0, kLongestNs));
      } else if (field == "status") {
        rule.raw_status = static_cast<std::uint8_t>(integer(field, node, 1, 255));
      } else if (field == "write") {
        if (const auto value = node.value<bool>()) {
          rule.write = *value;
        } else {
          wrong(node, field, "true or false");
        }
      } else {
        refuse(node, "there is no field '" + std::string(field) + "'",
               "use one of " + std::string(kFields));
      }
    }
    check_whole(rule);
    if (error_) return fail(*error_);
    return rule;
  }

 private:
  static constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
  static constexpr std::int64_t kLongestNs = 3'600'000'000'000;  // An hour.

  /// The first error wins.
  void refuse(const toml::node& node, const std::string& cause, std::string remedy) {
    if (error_) return;
    std::ostringstream at;
    at << file_name_ << ", line " << node.source().begin.line << ": ";
    error_ =
        Error{Code::corrupt_data, 0, "read the fault script", at.str() + cause, std::move(remedy)};
  }
  void wrong(const toml::node& node, std::string_view field, const std::string& allowed) {
    std::ostringstream found;
    if (const auto text = node.value<std::string_view>()) {
      found << "'" << *text << "'";
    } else {
      node.visit([&](const auto& value) { found << value; });
    }
    refuse(node, "field '" + std::string(field) + "' is " + found.str() + ", which is invalid",
           "write " + allowed);
  }
  void missing(std::string_view field, const std::string& remedy) {
    refuse(table_, "field '" + std::string(field) + "' is missing", remedy);
  }
  std::int64_t integer(std::string_view field, const toml::node& node, std::int64_t least,
                       std::int64_t most) {
    const auto value = node.is_integer() ? node.value<std::int64_t>() : std::nullopt;
    if (value && *value >= least && *value <= most) return *value;
    wrong(node, field, "an integer of " + std::to_string(least) + " to " + std::to_string(most));
    return least;
  }
  void read_kind(const toml::node& node, FaultRule& rule) {
    const auto value = node.value<std::string_view>();
    std::string names;
    for (unsigned each = 0; each <= static_cast<unsigned>(FaultKind::lost_completion); ++each) {
      const auto kind = static_cast<FaultKind>(each);
      const std::string_view name = enumerator_name(kind);
      if (value == name) {
        rule.kind = kind;
        has_kind_ = true;
        return;
      }
      names += (names.empty() ? "one of " : ", ") + std::string(name);
    }
    wrong(node, "kind", names);
  }
  void read_opcode(const toml::node& node, FaultRule& rule) {
    if (node.is_string()) {
      if (const auto code = opcode_named(*node.value<std::string_view>())) {
        rule.opcode = *code;
      } else {
        wrong(node, "opcode",
              "one of " + opcode_names() + "a name of <linux/idxd.h>, or an integer of 0 to 63");
      }
      return;
    }
    rule.opcode = static_cast<std::int32_t>(integer("opcode", node, 0, 63));
  }
  void read_probability(const toml::node& node, FaultRule& rule) {
    const auto value = node.is_number() ? node.value<double>() : std::nullopt;
    if (value && *value > 0 && *value <= 1) {
      rule.probability = *value;
    } else {
      wrong(node, "probability", "a number above 0, at most 1");
    }
  }
  void check_whole(const FaultRule& rule) {
    if (error_) return;
    if (!has_kind_) return missing("kind", "set the kind, such as kind = 'page_fault'");
    for (const KindField& field : kKindFields) {
      const toml::node* given = table_.get(field.name);
      if (given == nullptr || std::ranges::count(field.kinds, rule.kind) != 0) continue;
      refuse(*given,
             "field '" + std::string(field.name) + "' does not apply to a fault of kind '" +
                 std::string(enumerator_name(rule.kind)) + "'",
             "leave it out; " + kinds_of(field) + " has it");
    }
    std::string_view first;
    for (const std::string_view field : kWhenFields) {
      const toml::node* given = table_.get(field);
      if (given == nullptr) continue;
      if (!first.empty()) {
        refuse(*given,
               "field '" + std::string(field) + "' is set together with '" + std::string(first) +
                   "', but only one can say when the fault occurs",
               "write one of probability, every and nth");
      }
      first = field;
    }
    if (rule.kind == FaultKind::status && rule.raw_status == 0) {
      missing("status", "write the status byte of the record, 1 to 255");
    }
    if (rule.kind == FaultKind::slow && rule.delay_ns == 0) {
      missing("delay_ns", "write how much longer the descriptor takes, in nanoseconds from 1");
    }
  }

  const toml::table& table_;
  const std::string file_name_;
  bool has_kind_ = false;
  std::optional<Error> error_;
};

}  // namespace

Result<FaultScript> parse_fault_script(std::string_view text, const std::string& file_name) {
  const std::string tried = "read the fault script";
  const toml::parse_result parsed = toml::parse(text, file_name);
  if (!parsed) {
    return fail(Code::corrupt_data, tried,
                file_name + ", line " + std::to_string(parsed.error().source().begin.line) + ": " +
                    std::string(parsed.error().description()),
                "write TOML: a table [[fault]] for each fault");
  }
  FaultScript script;
  for (const auto& [key, node] : parsed.table()) {
    const toml::array* rules = node.as_array();
    if (key.str() != "fault" || rules == nullptr) {
      return fail(Code::corrupt_data, tried,
                  file_name + ", line " + std::to_string(node.source().begin.line) + ", field '" +
                      std::string(key.str()) + "' is unknown",
                  "write tables [[fault]] and nothing else");
    }
    if (rules->size() > kFaultRuleMax) {
      return fail(Code::corrupt_data, tried,
                  file_name + ": " + std::to_string(rules->size()) + " faults",
                  "write at most " + std::to_string(kFaultRuleMax));
    }
    for (const toml::node& rule : *rules) {
      const toml::table* table = rule.as_table();
      if (table == nullptr) {
        return fail(Code::corrupt_data, tried,
                    file_name + ", line " + std::to_string(rule.source().begin.line) +
                        ", field 'fault' holds something that is not a table",
                    "write each fault as [[fault]]");
      }
      auto read = RuleReader(*table, file_name).read();
      if (!read) return fail(read.error());
      script.rules[script.rule_count++] = *read;
    }
  }
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
