// SPDX-License-Identifier: Apache-2.0
#include "launch/emulator/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include "headrace/base/units.hpp"
#include "headrace/platform/attribute.hpp"

namespace headrace::emu {
namespace {

constexpr std::size_t kQueueNameMax = 63;
constexpr double kLatencyNsMax = 1e10;

Failure wrong_use(std::string sentence) {
  return fail(Code::invalid_argument, "read the options", std::move(sentence), "");
}

/// Parses a whole number from `least` to `most`.
template <typename T>
Result<void> take_count(std::string_view option, const std::string& text, std::uint64_t least,
                        std::uint64_t most, std::optional<T>& into) {
  const auto count = headrace::platform::parse_number(text);
  if (!count || *count < least || *count > most) {
    return wrong_use(
        fmt::format("{}: '{}' is not a whole number from {} to {}", option, text, least, most));
  }
  into = static_cast<T>(*count);
  return {};
}

/// Parses "0,1,-1": the NUMA node of each device, -1 for none.
Result<void> take_nodes(const std::string& text, std::vector<int>& into) {
  into.clear();
  const char* next = text.data();
  const char* const end = next + text.size();
  for (;;) {
    int node = 0;
    const auto [stopped, error] = std::from_chars(next, end, node);
    if (error != std::errc() || (stopped != end && *stopped != ',') || node < -1 ||
        node > kNodeMax || into.size() == kDeviceMax) {
      return wrong_use(
          fmt::format("--device-nodes: '{}' is not a list such as 0,1,2 of 1 to {} nodes, each "
                      "from -1 (none) to {}",
                      text, kDeviceMax, kNodeMax));
    }
    into.push_back(node);
    if (stopped == end) return {};
    next = stopped + 1;
  }
}

struct Unit {
  std::string_view name;
  double factor;
};
constexpr std::array<Unit, 4> kTimeUnits{{{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}};
constexpr std::array<Unit, 4> kRateUnits{{{"KB/s", 1e3}, {"MB/s", 1e6}, {"GB/s", 1e9}, {"B/s", 1}}};

/// Parses a finite, non-negative number with one of `units`, which 0 may omit.
std::optional<double> parse_quantity(std::string_view text, std::span<const Unit> units) {
  double number = 0;
  const auto [stopped, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number) || number < 0) return std::nullopt;
  const std::string_view unit(stopped,
                              static_cast<std::size_t>(text.data() + text.size() - stopped));
  for (const Unit& each : units) {
    if (each.name == unit) return number * each.factor;
  }
  if (unit.empty() && number == 0) return 0;
  return std::nullopt;
}

/// In the order of QueueChoice.
constexpr std::array<std::string_view, 3> kModes{"shared", "dedicated", "both"};

/// Options that conflict with --config.
constexpr std::array<std::string_view, 3> kSaidByConfig{"--wq", "--wq-name", "--engines"};

struct Parser {
  Options options;
  std::string said_by_config;

  Result<void> take(const std::string& option, const std::string& value);
};

Result<void> Parser::take(const std::string& option, const std::string& value) {
  if (std::ranges::find(kSaidByConfig, option) != kSaidByConfig.end()) said_by_config = option;
  const auto path = [&](std::optional<std::string>& field) -> Result<void> {
    if (value.empty()) {
      return wrong_use(fmt::format("{}: '' is not a path; give one, or leave it out", option));
    }
    field = value;
    return {};
  };
  if (option == "--devices") return take_count(option, value, 1, kDeviceMax, options.device_count);
  if (option == "--device-nodes") return take_nodes(value, options.device_nodes);
  if (option == "--engines") return take_count(option, value, 1, kEngineMax, options.engine_count);
  if (option == "--seed") return take_count(option, value, 0, ~std::uint64_t{0}, options.seed);
  if (option == "--wq") {
    const auto* mode = std::ranges::find(kModes, value);
    if (mode == kModes.end()) {
      return wrong_use(
          fmt::format("--wq: there is no mode '{}'; use shared, dedicated or both", value));
    }
    options.queues = static_cast<QueueChoice>(mode - kModes.begin());
    return {};
  }
  if (option == "--wq-name") {
    const bool good = !value.empty() && value.size() <= kQueueNameMax &&
                      value.find_first_of(" \t\n/") == std::string::npos;
    if (!good) {
      return wrong_use(
          fmt::format("--wq-name: '{}' is not a name of 1 to {} characters without "
                      "blanks and slashes",
                      value, kQueueNameMax));
    }
    options.queue_name = value;
    return {};
  }
  if (option == "--pace") {
    HEADRACE_TAKE(pace, parse_pace(value));
    options.pace = *pace;
    return {};
  }
  if (option == "--config") return path(options.config_path);
  if (option == "--faults") return path(options.faults_path);
  if (option == "--stats") return path(options.statistics_path);
  if (option == "--trace") return path(options.trace_path);
  if (option == "--preload") return path(options.preload_path);
  return wrong_use(fmt::format("there is no option '{}'", option));
}

}  // namespace

Result<Pace> parse_pace(const std::string& text) {
  const auto refuse = [&] {
    return wrong_use(
        fmt::format("--pace: '{}' is not LATENCY,RATE such as '2us,30GB/s': a time up to "
                    "10 s in ns, us, ms or s, and a rate in B/s, KB/s, MB/s or GB/s, each "
                    "with its unit; 0 for none",
                    text));
  };
  const std::size_t comma = text.find(',');
  if (comma == std::string::npos) return refuse();
  const std::string_view whole = text;
  const auto latency_ns = parse_quantity(whole.substr(0, comma), kTimeUnits);
  const auto rate = parse_quantity(whole.substr(comma + 1), kRateUnits);
  if (!latency_ns || !rate || *latency_ns > kLatencyNsMax || *rate > 1e15) return refuse();
  if (*rate > 0 && *rate < 1) return refuse();
  return Pace{.latency_ns = static_cast<std::uint64_t>(*latency_ns),
              .bytes_per_second = static_cast<std::uint64_t>(*rate)};
}

Result<Options> parse_options(std::span<char* const> arguments) {
  Parser parser;
  std::size_t next = 0;
  for (; next < arguments.size(); ++next) {
    std::string option = arguments[next];
    if (option == "--") {
      ++next;
      break;
    }
    if (option.empty() || option[0] != '-') break;
    bool* const flag = option == "--help"                ? &parser.options.help
                       : option == "--version"           ? &parser.options.version
                       : option == "--refuse-mmap"       ? &parser.options.refuse_mmap
                       : option == "--force-access-trap" ? &parser.options.force_access_trap
                                                         : nullptr;
    if (flag != nullptr) {
      *flag = true;
      continue;
    }
    const std::size_t equals = option.find('=');
    std::string value;
    if (equals != std::string::npos) {
      value = option.substr(equals + 1);
      option.resize(equals);
    } else if (next + 1 < arguments.size()) {
      value = arguments[++next];
    } else {
      return wrong_use(fmt::format("{}: a value is missing", option));
    }
    HEADRACE_TRY(parser.take(option, value));
  }
  for (; next < arguments.size(); ++next) parser.options.command.emplace_back(arguments[next]);
  if (parser.options.help || parser.options.version) return std::move(parser.options);
  if (parser.options.config_path && !parser.said_by_config.empty()) {
    return wrong_use(
        fmt::format("{} cannot be given with --config, whose file sets it", parser.said_by_config));
  }
  Options& options = parser.options;
  if (!options.device_nodes.empty() && !options.config_path) {
    const std::size_t count = options.device_count.value_or(options.device_nodes.size());
    if (count != options.device_nodes.size()) {
      return wrong_use(fmt::format("--device-nodes: it has {} for {}; give a node for each",
                                   counted(options.device_nodes.size(), "node"),
                                   counted(count, "device")));
    }
    options.device_count = static_cast<std::uint32_t>(count);
  }
  if (options.queue_name.starts_with(kDpdkPrefix) && options.queues == QueueChoice::shared) {
    return wrong_use(
        fmt::format("--wq-name: '{}' would name no WQ: DPDK takes every WQ whose name begins with "
                    "'{}' for a dedicated one, and --wq shared makes none; give --wq dedicated or "
                    "both, or another name",
                    options.queue_name, kDpdkPrefix));
  }
  const bool is_paced = options.pace.latency_ns != 0 || options.pace.bytes_per_second != 0;
  if (is_paced && options.seed) {
    return wrong_use(
        "--pace has no effect with --seed, whose clock counts steps; leave one of them out");
  }
  if (options.statistics_path && options.statistics_path == options.trace_path) {
    return wrong_use(fmt::format("--stats and --trace: both name '{}'; give each a separate file",
                                 *options.trace_path));
  }
  if (parser.options.command.empty()) {
    return wrong_use("there is no command to run; give it after '--'");
  }
  return std::move(parser.options);
}

std::string help_text() {
  return R"(Usage: headrace-emulator [OPTIONS] -- CMD [ARGUMENTS]

Runs CMD on emulated Intel DSA devices; 'headrace emulate' is the usual way to start it.

  --devices N          1 to 16 devices; if not given, 1 or as many as --config
                       has
  --device-nodes LIST  NUMA node of each device, such as 0,1,2; -1 for none; 0 if
                       not given
  --config FILE        devices as 'accel-config save-config' writes them
  --wq MODE            shared, dedicated or both; both if not given
  --wq-name NAME       WQs are named NAME0, NAME1, ...; names that begin with
                       'dpdk_' go to dedicated WQs only, because DPDK uses
                       every WQ of that name as one
  --engines N          1 to 4 engines of a device; 4 if not given
  --seed S             run single-threaded, scheduled by seed S
  --faults FILE        faults to inject, in TOML
  --pace LATENCY,RATE  completions delayed to a model, for example 2us,30GB/s;
                       not with --seed
  --stats FILE         statistics of the devices, as JSON, at the end; - is stdout
  --trace FILE         every event, a line of JSON each; - is stdout
  --refuse-mmap        portals cannot be mapped: programs have to use write()
  --force-access-trap  trap the access to the portal, not the instruction
  --preload FILE       libheadrace-dsa-trap.so, if not beside this program

Example: headrace-emulator --wq shared --stats stats.json -- ./my_dsa_program
)";
}

}  // namespace headrace::emu
