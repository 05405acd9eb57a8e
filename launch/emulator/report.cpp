// SPDX-License-Identifier: Apache-2.0
#include "launch/emulator/report.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "headrace/dsa/descriptor.hpp"

namespace headrace::emu {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchemaVersion = 1;

Json queue_json(const QueueStatistics& queue) {
  return {{"name", queue.name},
          {"accepted", queue.accepted_count},
          {"retried", queue.retried_count},
          {"dropped", queue.dropped_count},
          {"written", queue.written_count},
          {"aborted", queue.aborted_count},
          {"occupancy_max", queue.occupancy_max}};
}

Json engine_json(const EngineStatistics& engine) {
  return {{"name", engine.name},
          {"descriptors", engine.descriptor_count},
          {"batches", engine.batch_count},
          {"bytes_read", engine.bytes_read},
          {"bytes_written", engine.bytes_written},
          {"into_cache", engine.cache_control_count},
          {"page_faults", engine.page_fault_count},
          {"errors", engine.error_count},
          {"busy_ns", engine.busy_ns}};
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
  std::uint64_t operations = 0;
  std::uint64_t batches = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
  std::uint64_t into_cache = 0;
  std::uint64_t page_faults = 0;
  std::uint64_t errors = 0;
  std::uint64_t accepted = 0;
  std::uint64_t retried = 0;
  std::uint64_t dropped = 0;
  std::uint64_t aborted = 0;
  std::uint64_t injected = 0;
  for (const DeviceStatistics& device : statistics.devices) {
    Json queues = Json::array();
    for (const QueueStatistics& queue : device.queues) {
      queues.push_back(queue_json(queue));
      accepted += queue.accepted_count;
      retried += queue.retried_count;
      dropped += queue.dropped_count;
      aborted += queue.aborted_count;
    }
    Json engines = Json::array();
    for (const EngineStatistics& engine : device.engines) {
      engines.push_back(engine_json(engine));
      operations += engine.descriptor_count;
      batches += engine.batch_count;
      bytes_read += engine.bytes_read;
      bytes_written += engine.bytes_written;
      into_cache += engine.cache_control_count;
      page_faults += engine.page_fault_count;
      errors += engine.error_count;
    }
    injected += device.injected_fault_count;
    devices.push_back({{"name", device.name},
                       {"queues", queues},
                       {"engines", engines},
                       {"operations", opcodes_json(device)},
                       {"injected_faults", device.injected_fault_count}});
  }
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
      {"summary",
       {{"operations", operations},
        {"batches", batches},
        {"submissions", accepted},
        {"retries", retried},
        {"dropped", dropped},
        {"aborted", aborted},
        {"bytes_read", bytes_read},
        {"bytes_written", bytes_written},
        {"into_cache", into_cache},
        {"page_faults", page_faults},
        {"errors", errors},
        {"injected_faults", injected},
        {"clients", statistics.client_count},
        {"lost_clients", statistics.lost_client_count}}}};
  return document.dump(2) + "\n";
}

}  // namespace headrace::emu
