// SPDX-License-Identifier: Apache-2.0
#include "statistics.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "dsa/queue.hpp"
#include "engine_state.hpp"

namespace headrace::engine {
ChannelCounts& EngineState::begin_channel(const DsaQueue& queue) {
  const Lock lock(channels_mutex_);
  const auto is_free = [&](const ChannelCounts& counts) {
    return counts.queue == &queue && !counts.in_use;
  };
  auto found = std::ranges::find_if(channel_counts_, is_free);
  if (found == channel_counts_.end()) found = channel_counts_.emplace(found);
  found->queue = &queue;
  found->in_use = true;
  return *found;
}

void EngineState::end_channel(ChannelCounts& counts) noexcept {
  const Lock lock(channels_mutex_);
  counts.in_use = false;
}

EngineStatistics EngineState::statistics() const {
  EngineStatistics totals;
  for_each_thread([&](const ThreadState& thread) { thread.statistics.add_to(totals); });
  // After a fork the lock may be held for ever by a thread of the parent.
  if (!is_forked()) {
    const Lock lock(channels_mutex_);
    for (const ChannelCounts& counts : channel_counts_) counts.add_to(totals);
  }
  for (const OperationStatistics& kind : totals.operations) {
    totals.jobs_done += kind.jobs_done;
    totals.bytes_moved += kind.bytes;
    totals.bytes_by_device += kind.bytes_by_device;
    totals.jobs_fell_back += kind.fallbacks;
  }
  return totals;
}

std::vector<DeviceStatistics> EngineState::device_statistics() const {
  std::vector<DeviceStatistics> totals;
  totals.reserve(movers_.size());
  for (const std::unique_ptr<Mover>& mover : movers_) totals.push_back(mover->statistics());
  if (is_forked()) return totals;  // As in statistics().
  const Lock lock(channels_mutex_);
  for (const ChannelCounts& counts : channel_counts_) {
    const auto is_its = [&](const std::unique_ptr<Mover>& mover) {
      return mover.get() == counts.queue;
    };
    const auto mover = std::ranges::find_if(movers_, is_its);
    totals[static_cast<std::size_t>(mover - movers_.begin())].descriptors +=
        counts.descriptors.value();
  }
  return totals;
}

std::chrono::nanoseconds EngineStatistics::latency_max(std::size_t latency_class) {
  const double ticks = std::ldexp(1.0, static_cast<int>(latency_class));
  return std::chrono::nanoseconds(
      static_cast<std::int64_t>(ticks / platform::ticks_per_second() * 1e9));
}

/// Publishes one row for the engine and one for each device queue.
void EngineState::publish_statistics() {
  telemetry_ = std::make_unique<telemetry::Source>("engine", [this](std::uint64_t number) {
    const EngineStatistics all = statistics();
    std::uint64_t retries = 0;
    std::uint64_t page_faults = 0;
    for (const OperationStatistics& each : all.operations) {
      retries += each.retries;
      page_faults += each.page_faults;
    }
    std::vector<telemetry::Row> rows{{.kind = "engine",
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
                                                 {"page_faults", page_faults}}}};
    const std::vector<DeviceStatistics> devices = device_statistics();
    for (std::size_t i = 0; i < devices.size(); ++i) {
      const DeviceStatistics& device = devices[i];
      if (!infos_[i].hardware) continue;
      rows.push_back({.kind = "device",
                      .name = infos_[i].name,
                      .values = {{"engine", number},
                                 {"emulated", infos_[i].emulated ? 1U : 0U},
                                 {"descriptors", device.descriptors},
                                 {"retries", device.retries},
                                 {"page_faults", device.page_faults},
                                 {"errors", device.errors},
                                 {"lost", device.lost},
                                 {"bytes_on_cpu", device.bytes_on_cpu}}});
    }
    return rows;
  });
}

}  // namespace headrace::engine
