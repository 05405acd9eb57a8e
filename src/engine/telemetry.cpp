// SPDX-License-Identifier: Apache-2.0
// What an engine publishes of itself: a row, and one for each of its device queues.
#include "headrace/telemetry/telemetry.hpp"

#include <string>
#include <vector>

#include "engine_state.hpp"

namespace headrace::engine {
namespace {

telemetry::Row row_of(const EngineStatistics& all, std::uint64_t number) {
  std::uint64_t retries = 0;
  std::uint64_t page_faults = 0;
  for (const OperationStatistics& each : all.operations) {
    retries += each.retries;
    page_faults += each.page_faults;
  }
  return {.kind = "engine",
          .name = "engine" + std::to_string(number),
          .values = {{"jobs_submitted", all.jobs_submitted},
                     {"jobs_done", all.jobs_done},
                     {"jobs_failed", all.jobs_failed},
                     {"jobs_stopped", all.jobs_stopped},
                     {"submissions_refused", all.submissions_refused},
                     {"bytes_moved", all.bytes_moved},
                     {"bytes_by_device", all.bytes_by_device},
                     {"jobs_fell_back", all.jobs_fell_back},
                     {"jobs_held_back", all.jobs_held_back},
                     {"retries", retries},
                     {"page_faults", page_faults}}};
}

telemetry::Row row_of(const DeviceStatistics& all, const MoverInfo& info, std::uint64_t engine) {
  return {.kind = "device",
          .name = info.name,
          .values = {{"engine", engine},
                     {"emulated", info.emulated ? 1U : 0U},
                     {"descriptors", all.descriptors},
                     {"retries", all.retries},
                     {"page_faults", all.page_faults},
                     {"errors", all.errors},
                     {"lost", all.lost},
                     {"bytes_on_cpu", all.bytes_on_cpu}}};
}

}  // namespace

void EngineState::publish_statistics() {
  telemetry_ = std::make_unique<telemetry::Source>("engine", [this](std::uint64_t number) {
    std::vector<telemetry::Row> rows{row_of(statistics(), number)};
    const std::vector<DeviceStatistics> devices = device_statistics();
    for (std::size_t i = 0; i < devices.size(); ++i) {
      if (infos_[i].hardware) rows.push_back(row_of(devices[i], infos_[i], number));
    }
    return rows;
  });
}

}  // namespace headrace::engine
