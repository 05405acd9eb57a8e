// SPDX-License-Identifier: Apache-2.0
#include "statistics.hpp"

#include <cmath>

namespace headrace::engine {

void Statistics::keep(const ChannelCounts& counts, std::size_t kind_index) noexcept {
  // Counts of their own; under the lock of the channels together.
  KindCounts& kind = kinds_[kind_index];
  submitted_.fetch_add_relaxed(counts.submitted);
  kind.jobs_done.fetch_add_relaxed(counts.done);
  kind.bytes.fetch_add_relaxed(counts.bytes);
  kind.bytes_by_device.fetch_add_relaxed(counts.bytes);
  for (std::size_t i = 0; i < kind.latencies.size(); ++i) {
    kind.latencies[i].fetch_add_relaxed(counts.latency_counts[i]);
  }
}

EngineStatistics Statistics::read() const {
  // Together they are not one instant, so no order between them is needed.
  EngineStatistics totals{.jobs_submitted = submitted_.load_relaxed(),
                          .jobs_failed = failed_.load_relaxed(),
                          .jobs_stopped = stopped_.load_relaxed(),
                          .submissions_refused = refused_.load_relaxed(),
                          .jobs_held_back = held_back_.load_relaxed()};
  for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
    const KindCounts& counts = kinds_[kind];
    OperationStatistics& sums = totals.operations[kind];
    const std::uint64_t runs_done = counts.runs_done.load_relaxed();
    sums.jobs_done = counts.jobs_done.load_relaxed() + runs_done;
    sums.bytes = counts.bytes.load_relaxed();
    sums.bytes_by_device = counts.bytes_by_device.load_relaxed();
    sums.retries = counts.retries.load_relaxed();
    sums.page_faults = counts.page_faults.load_relaxed();
    sums.fallbacks = counts.fallbacks.load_relaxed();
    for (std::size_t i = 0; i < counts.latencies.size(); ++i) {
      sums.latency_counts[i] = counts.latencies[i].load_relaxed();
    }
    totals.jobs_submitted += runs_done;
    totals.jobs_done += sums.jobs_done;
    totals.bytes_moved += sums.bytes;
    totals.bytes_by_device += sums.bytes_by_device;
    totals.jobs_fell_back += sums.fallbacks;
  }
  return totals;
}

void add_to(EngineStatistics& totals, const ChannelCounts& counts, std::size_t kind_index) {
  OperationStatistics& sums = totals.operations[kind_index];
  totals.jobs_submitted += counts.submitted;
  for (std::uint64_t* const done : {&sums.jobs_done, &totals.jobs_done}) *done += counts.done;
  for (std::uint64_t* const bytes :
       {&sums.bytes, &sums.bytes_by_device, &totals.bytes_moved, &totals.bytes_by_device}) {
    *bytes += counts.bytes;
  }
  for (std::size_t i = 0; i < counts.latency_counts.size(); ++i) {
    sums.latency_counts[i] += counts.latency_counts[i];
  }
}

std::chrono::nanoseconds EngineStatistics::latency_max(std::size_t latency_class) {
  const double ticks = std::ldexp(1.0, static_cast<int>(latency_class));
  return std::chrono::nanoseconds(
      static_cast<std::int64_t>(ticks / platform::ticks_per_second() * 1e9));
}

}  // namespace headrace::engine
