// SPDX-License-Identifier: Apache-2.0
// Sums the counts of an engine and its channels when a caller asks. Not for: counting.
#include <cmath>

#include "channel_state.hpp"
#include "engine_state.hpp"
#include "headrace/platform/ticks.hpp"

namespace headrace::engine {

EngineStatistics EngineState::statistics() const {
  // In a child another thread of the parent may hold the lock for ever; the channels are the
  // parent's.
  if (is_forked()) return count_with({});
  const Lock lock(channels_mutex_);
  return count_with(channels_);
}

EngineStatistics EngineState::count_with(std::span<const ChannelState* const> channels) const {
  // Together they are not one instant, so no order between them is needed.
  EngineStatistics totals{.jobs_submitted = jobs_submitted_.load_relaxed(),
                          .jobs_failed = jobs_failed_.load_relaxed(),
                          .jobs_stopped = jobs_stopped_.load_relaxed(),
                          .submissions_refused = submissions_refused_.load_relaxed(),
                          .jobs_held_back = jobs_held_back_.load_relaxed()};
  for (const ChannelState* const channel : channels) {
    totals.submissions_refused += channel->refused();
  }
  for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
    const KindCounts& counts = kinds_[kind];
    OperationStatistics& sums = totals.operations[kind];
    const std::uint64_t runs_done = counts.runs_done.load_relaxed();
    totals.jobs_submitted += runs_done;
    sums.jobs_done = counts.jobs_done.load_relaxed() + runs_done;
    sums.bytes = counts.bytes.load_relaxed();
    sums.bytes_by_device = counts.bytes_by_device.load_relaxed();
    sums.retries = counts.retries.load_relaxed();
    sums.page_faults = counts.page_faults.load_relaxed();
    sums.fallbacks = counts.fallbacks.load_relaxed();
    for (std::size_t i = 0; i < counts.latencies.size(); ++i) {
      sums.latency_counts[i] = counts.latencies[i].load_relaxed();
    }
    const bool copies = kind == static_cast<std::size_t>(OperationKind::copy);
    if (copies || kind == kOperationKindCount) {
      for (const ChannelState* const channel : channels) {
        const ChannelState::Counts more = copies ? channel->copies() : channel->lists();
        totals.jobs_submitted += more.submitted;
        sums.jobs_done += more.done;
        sums.bytes += more.bytes;
        sums.bytes_by_device += more.bytes;
        for (std::size_t i = 0; i < more.latency_counts.size(); ++i) {
          sums.latency_counts[i] += more.latency_counts[i];
        }
      }
    }
    totals.jobs_done += sums.jobs_done;
    totals.bytes_moved += sums.bytes;
    totals.bytes_by_device += sums.bytes_by_device;
    totals.jobs_fell_back += sums.fallbacks;
  }
  return totals;
}

std::chrono::nanoseconds EngineStatistics::latency_max(std::size_t latency_class) {
  const double ticks = std::ldexp(1.0, static_cast<int>(latency_class));
  return std::chrono::nanoseconds(
      static_cast<std::int64_t>(ticks / platform::ticks_per_second() * 1e9));
}

}  // namespace headrace::engine
