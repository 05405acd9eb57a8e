// SPDX-License-Identifier: Apache-2.0
// Counters of an engine and its channels. dsa/queue.hpp has those of queues.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "headrace/base/atomic.hpp"
#include "headrace/engine/engine.hpp"
#include "headrace/platform/ticks.hpp"

namespace headrace::engine {

/// Counters of one kind of operation.
struct alignas(64) KindCounts {
  Atomic<std::uint64_t> jobs_done{0};
  Atomic<std::uint64_t> runs_done{0};  ///< Completed by Engine::run; added to jobs_done.
  Atomic<std::uint64_t> bytes{0};
  Atomic<std::uint64_t> bytes_by_device{0};
  Atomic<std::uint64_t> retries{0};
  Atomic<std::uint64_t> page_faults{0};
  Atomic<std::uint64_t> fallbacks{0};
  std::array<Atomic<std::uint64_t>, OperationStatistics::kLatencyClassCount> latencies;
  void add_to(OperationStatistics& sums) const noexcept {
    // Relaxed: the counts are not one snapshot.
    sums.jobs_done += jobs_done.load_relaxed() + runs_done.load_relaxed();
    sums.bytes += bytes.load_relaxed();
    sums.bytes_by_device += bytes_by_device.load_relaxed();
    sums.retries += retries.load_relaxed();
    sums.page_faults += page_faults.load_relaxed();
    sums.fallbacks += fallbacks.load_relaxed();
    for (std::size_t i = 0; i < latencies.size(); ++i) {
      sums.latency_counts[i] += latencies[i].load_relaxed();
    }
  }
};

/// Counters of the successive channels of one queue: copies, and lists of copies, completed by the
/// device. Their other operations are counted as jobs.
struct ChannelCounts {
  Atomic<std::uint64_t> descriptors{0};  ///< Copies and lists that the queue accepted.
  Atomic<std::uint64_t> converted{0};    ///< Of these, converted to stripes; the others succeeded.
  Atomic<std::uint64_t> refused{0};
  KindCounts copies;  ///< Here and in `lists` bytes_by_device is not counted: it equals `bytes`.
  KindCounts lists;
  const Mover* queue = nullptr;
  bool in_use = false;  ///< By an open channel.
  void add_to(EngineStatistics& totals) const noexcept {
    totals.jobs_submitted += descriptors.load_relaxed() - converted.load_relaxed();
    totals.submissions_refused += refused.load_relaxed();
    const auto add = [](const KindCounts& counts, OperationStatistics& sums) {
      counts.add_to(sums);
      sums.bytes_by_device += counts.bytes.load_relaxed();
    };
    add(copies, totals.operations[static_cast<std::size_t>(OperationKind::copy)]);
    add(lists, totals.operations[kOperationKindCount]);
  }
};

/// The counters are independent, so all accesses are relaxed. Exact for a thread that saw the job
/// complete, by the edge `job-ended`.
///
/// Threading: shared.
class Statistics {
 public:
  void count_submitted() noexcept { submitted_.fetch_add_relaxed(1); }    // As said above.
  void uncount_submitted() noexcept { submitted_.fetch_sub_relaxed(1); }  // As said above.
  void count_refused(std::uint64_t count = 1) noexcept {
    refused_.fetch_add_relaxed(count);  // As said above.
  }
  void count_held_back() noexcept { held_back_.fetch_add_relaxed(1); }  // As said above.
  /// A call found a queue full.
  void count_retry(OperationKind kind) noexcept {
    kinds_[static_cast<std::size_t>(kind)].retries.fetch_add_relaxed(1);  // As said above.
  }

  /// An operation that began at `begun_ticks` has completed.
  void count(std::size_t kind_index, const Completion& completion,
             std::uint64_t begun_ticks) noexcept {
    count_time(kind_index, begun_ticks);
    count_end(kind_index, completion);
  }
  void count_time(std::size_t kind_index, std::uint64_t begun_ticks) noexcept {
    // As said above.
    kinds_[kind_index].latencies[latency_class(begun_ticks)].fetch_add_relaxed(1);
  }
  /// count() for an operation that a device completed successfully.
  void count_plain(std::size_t kind_index, std::size_t byte_count,
                   std::uint64_t begun_ticks) noexcept {
    // As said above.
    count_time(kind_index, begun_ticks);
    kinds_[kind_index].bytes.fetch_add_relaxed(byte_count);
    kinds_[kind_index].bytes_by_device.fetch_add_relaxed(byte_count);
    kinds_[kind_index].jobs_done.fetch_add_relaxed(1);
  }
  void count_end(std::size_t kind_index, const Completion& completion) noexcept {
    // As said above.
    KindCounts& counts = kinds_[kind_index];
    counts.bytes.fetch_add_relaxed(completion.bytes_done);
    if (completion.bytes_by_device != 0) {
      counts.bytes_by_device.fetch_add_relaxed(completion.bytes_by_device);
    }
    if (completion.fell_back) counts.fallbacks.fetch_add_relaxed(1);
    if (completion.retries != 0) counts.retries.fetch_add_relaxed(completion.retries);
    if (completion.page_faults != 0) counts.page_faults.fetch_add_relaxed(completion.page_faults);
    (completion.state == JobState::done     ? counts.jobs_done
     : completion.state == JobState::failed ? failed_
                                            : stopped_)
        .fetch_add_relaxed(1);
  }
  /// run() completed the operation on the calling thread.
  void count_run(std::size_t kind_index, const Completion& completion) noexcept {
    if (completion.state == JobState::done && !completion.fell_back) [[likely]] {
      // As said above.
      kinds_[kind_index].runs_done.fetch_add_relaxed(1);
      kinds_[kind_index].bytes.fetch_add_relaxed(completion.bytes_done);
    } else {
      count_submitted();
      count_end(kind_index, completion);
    }
  }
  [[nodiscard]] std::uint64_t runs_done(std::size_t kind_index) const noexcept {
    return kinds_[kind_index].runs_done.load_relaxed();  // An approximation is enough.
  }
  /// Adds all counters except those that are sums of others.
  void add_to(EngineStatistics& totals) const noexcept {
    totals.jobs_submitted += submitted_.load_relaxed();
    totals.jobs_failed += failed_.load_relaxed();
    totals.jobs_stopped += stopped_.load_relaxed();
    totals.submissions_refused += refused_.load_relaxed();
    totals.jobs_held_back += held_back_.load_relaxed();
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
      kinds_[kind].add_to(totals.operations[kind]);
      totals.jobs_submitted += kinds_[kind].runs_done.load_relaxed();
    }
  }

  /// Index in OperationStatistics::latency_counts.
  [[nodiscard]] static std::size_t latency_class(std::uint64_t begun_ticks) noexcept {
    const auto width = static_cast<std::size_t>(std::bit_width(platform::ticks() - begun_ticks));
    return std::min(width, OperationStatistics::kLatencyClassCount - 1);
  }

 private:
  alignas(64) Atomic<std::uint64_t> submitted_{0};
  Atomic<std::uint64_t> refused_{0};
  /// On another line: written by other threads.
  alignas(64) Atomic<std::uint64_t> failed_{0};
  Atomic<std::uint64_t> stopped_{0};
  Atomic<std::uint64_t> held_back_{0};
  std::array<KindCounts, kOperationKindCount + 1> kinds_;
};

}  // namespace headrace::engine
