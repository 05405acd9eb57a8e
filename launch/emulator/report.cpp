// SPDX-License-Identifier: Apache-2.0
#include "launch/emulator/report.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <span>

#include "headrace/dsa/descriptor.hpp"

namespace headrace::emu {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchemaVersion = 1;

/// A statistic of a WQ or an engine, and the name of its sum in the summary, or null.
template <typename Part>
struct Figure {
  const char* name;
  std::uint64_t Part::* field;
  const char* sum;
};
constexpr Figure<QueueStatistics> kQueueFigures[] = {
    {"accepted", &QueueStatistics::accepted_count, "submissions"},
    {"retried", &QueueStatistics::retried_count, "retries"},
    {"dropped", &QueueStatistics::dropped_count, "dropped"},
    {"written", &QueueStatistics::written_count, nullptr},
    {"aborted", &QueueStatistics::aborted_count, "aborted"},
    {"unfinished", &QueueStatistics::unfinished_count, "unfinished"},
    {"occupancy_max", &QueueStatistics::occupancy_max, nullptr}};
constexpr Figure<EngineStatistics> kEngineFigures[] = {
    {"descriptors", &EngineStatistics::descriptor_count, "operations"},
    {"batches", &EngineStatistics::batch_count, "batches"},
    {"bytes_read", &EngineStatistics::bytes_read, "bytes_read"},
    {"bytes_written", &EngineStatistics::bytes_written, "bytes_written"},
    {"into_cache", &EngineStatistics::cache_control_count, "into_cache"},
    {"page_faults", &EngineStatistics::page_fault_count, "page_faults"},
    {"errors", &EngineStatistics::error_count, "errors"},
    {"busy_ns", &EngineStatistics::busy_ns, nullptr}};

template <typename Part>
Json parts_json(const std::vector<Part>& parts, std::span<const Figure<Part>> figures,
                Json& summary) {
  Json all = Json::array();
  for (const Part& part : parts) {
    Json& one = all.emplace_back(Json{{"name", part.name}});
    for (const Figure<Part>& each : figures) {
      const std::uint64_t value = part.*each.field;
      one[each.name] = value;
      if (each.sum == nullptr) continue;
      summary[each.sum] = summary.value(each.sum, std::uint64_t{0}) + value;
    }
  }
  return all;
}

Json opcodes_json(const DeviceStatistics& device) {
  Json opcodes = Json::object();
  for (std::size_t opcode = 0; opcode < device.operations_by_opcode.size(); ++opcode) {
    const std::uint64_t count = device.operations_by_opcode[opcode];
    if (count == 0) continue;
    const std::string_view known = dsa::name(static_cast<dsa::Opcode>(opcode));
    opcodes[known == "unknown" ? fmt::format("{:#04x}", opcode) : std::string(known)] = count;
  }
  return opcodes;
}

}  // namespace

std::string statistics_document(const Statistics& statistics, const RunFacts& facts) {
  Json devices = Json::array();
  Json summary = Json::object();
  std::uint64_t injected = 0;
  for (const DeviceStatistics& device : statistics.devices) {
    injected += device.injected_fault_count;
    devices.push_back(
        {{"name", device.name},
         {"numa_node", device.numa_node},
         {"queues", parts_json<QueueStatistics>(device.queues, kQueueFigures, summary)},
         {"engines", parts_json<EngineStatistics>(device.engines, kEngineFigures, summary)},
         {"operations", opcodes_json(device)},
         {"injected_faults", device.injected_fault_count}});
  }
  summary["injected_faults"] = injected;
  summary["clients"] = statistics.client_count;
  summary["lost_clients"] = statistics.lost_client_count;
  utsname system{};
  ::uname(&system);
  Json command = {{"seconds", facts.seconds}};
  command["exit_code"] = facts.exit_code < 0 ? Json(nullptr) : Json(facts.exit_code);
  command["signal"] = facts.signal_number == 0 ? Json(nullptr) : Json(facts.signal_number);
  const Json document = {
      {"schema", {{"name", "headrace-emulate-statistics"}, {"version", kSchemaVersion}}},
      {"machine",
       {{"system", fmt::format("{} {} {}", system.sysname, system.release, system.machine)},
        {"processors", ::sysconf(_SC_NPROCESSORS_ONLN)}}},
      {"results",
       {{"command", command},
        {"deterministic", facts.deterministic},
        {"devices", devices},
        {"clients", statistics.client_count},
        {"lost_clients", statistics.lost_client_count}}},
      {"summary", summary}};
  return document.dump(2) + "\n";
}

}  // namespace headrace::emu
