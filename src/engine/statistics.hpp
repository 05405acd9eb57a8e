// SPDX-License-Identifier: Apache-2.0
// Counters of an engine and its channels. dsa/queue.hpp has those of queues.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "headrace/base/counter.hpp"
#include "headrace/engine/engine.hpp"
#include "headrace/platform/ticks.hpp"

namespace headrace::engine {

/// Counters of one kind of operation.
struct alignas(64) KindCounts {
  Counter jobs_done;
  Counter runs_done;  ///< Completed by Engine::run; added to jobs_done.
  Counter bytes;
  Counter bytes_by_device;
  Counter retries;
  Counter page_faults;
  Counter fallbacks;
  std::array<Counter, OperationStatistics::kLatencyClassCount> latencies;
  void add_to(OperationStatistics& sums) const noexcept {
    sums.jobs_done += jobs_done.value() + runs_done.value();
    sums.bytes += bytes.value();
    sums.bytes_by_device += bytes_by_device.value();
    sums.retries += retries.value();
    sums.page_faults += page_faults.value();
    sums.fallbacks += fallbacks.value();
    for (std::size_t i = 0; i < latencies.size(); ++i) {
      sums.latency_counts[i] += latencies[i].value();
    }
  }
};

/// Counters of the successive channels of one queue: copies, and lists of copies, completed by the
/// device. Their other operations are counted as jobs.
struct ChannelCounts {
  Counter descriptors;  ///< Copies and lists that the queue accepted.
  Counter converted;    ///< Of these, converted to stripes; the others succeeded.
  Counter refused;
  KindCounts copies;  ///< Here and in `lists` bytes_by_device is not counted: it equals `bytes`.
  KindCounts lists;
  const Mover* queue = nullptr;
  bool in_use = false;  ///< By an open channel.
  void add_to(EngineStatistics& totals) const noexcept {
    totals.jobs_submitted += descriptors.value() - converted.value();
    totals.submissions_refused += refused.value();
    const auto add = [](const KindCounts& counts, OperationStatistics& sums) {
      counts.add_to(sums);
      sums.bytes_by_device += counts.bytes.value();
    };
    add(copies, totals.operations[static_cast<std::size_t>(OperationKind::copy)]);
    add(lists, totals.operations[kOperationKindCount]);
  }
};

/// What one thread counts, or several with a lock. Exact, as the sum of all threads, for a thread
/// that saw the job complete, by the edge `job-ended`.
///
/// Threading: shared; one thread at a time writes.
class Statistics {
 public:
  void count_submitted() noexcept { submitted_.add_alone(1); }
  void uncount_submitted() noexcept { submitted_.add_alone(~std::uint64_t{0}); }
  [[nodiscard]] std::uint64_t submitted() const noexcept { return submitted_.value(); }
  void count_refused() noexcept { refused_.add_alone(1); }
  void count_held_back() noexcept { held_back_.add_alone(1); }
  /// A call found a queue full.
  void count_retry(OperationKind kind) noexcept {
    kinds_[static_cast<std::size_t>(kind)].retries.add_alone(1);
  }

  /// An operation that began at `begun_ticks` has completed.
  void count(std::size_t kind_index, const Completion& completion,
             std::uint64_t begun_ticks) noexcept {
    count_time(kind_index, begun_ticks);
    count_end(kind_index, completion);
  }
  void count_time(std::size_t kind_index, std::uint64_t begun_ticks) noexcept {
    kinds_[kind_index].latencies[latency_class(begun_ticks)].add_alone(1);
  }
  /// count() for an operation that a device completed successfully.
  void count_plain(std::size_t kind_index, std::size_t byte_count,
                   std::uint64_t begun_ticks) noexcept {
    count_time(kind_index, begun_ticks);
    KindCounts& counts = kinds_[kind_index];
    counts.bytes.add_alone(byte_count);
    counts.bytes_by_device.add_alone(byte_count);
    counts.jobs_done.add_alone(1);
  }
  void count_end(std::size_t kind_index, const Completion& completion) noexcept {
    KindCounts& counts = kinds_[kind_index];
    counts.bytes.add_alone(completion.bytes_done);
    counts.bytes_by_device.add_alone(completion.bytes_by_device);
    if (completion.fell_back) counts.fallbacks.add_alone(1);
    if (completion.retries != 0) counts.retries.add_alone(completion.retries);
    if (completion.page_faults != 0) counts.page_faults.add_alone(completion.page_faults);
    (completion.state == JobState::done     ? counts.jobs_done
     : completion.state == JobState::failed ? failed_
                                            : stopped_)
        .add_alone(1);
  }
  /// run() completed the operation on the calling thread.
  void count_run(std::size_t kind_index, const Completion& completion) noexcept {
    if (completion.state == JobState::done && !completion.fell_back) [[likely]] {
      kinds_[kind_index].runs_done.add_alone(1);
      kinds_[kind_index].bytes.add_alone(completion.bytes_done);
    } else {
      count_submitted();
      count_end(kind_index, completion);
    }
  }
  [[nodiscard]] std::uint64_t runs_done(std::size_t kind_index) const noexcept {
    return kinds_[kind_index].runs_done.value();
  }
  /// Adds all counters except those that are sums of others.
  void add_to(EngineStatistics& totals) const noexcept {
    totals.jobs_submitted += submitted_.value();
    totals.jobs_failed += failed_.value();
    totals.jobs_stopped += stopped_.value();
    totals.submissions_refused += refused_.value();
    totals.jobs_held_back += held_back_.value();
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
      kinds_[kind].add_to(totals.operations[kind]);
      totals.jobs_submitted += kinds_[kind].runs_done.value();
    }
  }

  /// Index in OperationStatistics::latency_counts.
  [[nodiscard]] static std::size_t latency_class(std::uint64_t begun_ticks) noexcept {
    const auto width = static_cast<std::size_t>(std::bit_width(platform::ticks() - begun_ticks));
    return std::min(width, OperationStatistics::kLatencyClassCount - 1);
  }

 private:
  Counter submitted_;
  Counter refused_;
  Counter held_back_;
  Counter failed_;
  Counter stopped_;
  std::array<KindCounts, kOperationKindCount + 1> kinds_;
};

}  // namespace headrace::engine
