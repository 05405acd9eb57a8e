// SPDX-License-Identifier: Apache-2.0
#include "headrace/lab/q6.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <exception>
#include <map>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "automatic.hpp"
#include "headrace/base/clock.hpp"
#include "headrace/base/names.hpp"
#include "headrace/base/units.hpp"
#include "headrace/lab/schedule.hpp"
#include "headrace/platform/memory.hpp"
#include "headrace/platform/thread.hpp"
#include "scan.hpp"

namespace headrace::query::lab {
namespace {

/// Contents of a slot of the schedule.
struct Copies {
  /// Written by the prefetching worker while submitting, read by the aggregating one.
  std::optional<cache::Entry> discount = std::nullopt;
  std::optional<cache::Entry> extended_price = std::nullopt;
  /// Selection of the chunk: written by the scanning worker, read by the aggregating one.
  std::vector<std::uint64_t> words = {};

  [[nodiscard]] bool is_ready() const { return discount->try_wait() && extended_price->try_wait(); }
};
using Schedule = Schedule<Copies>;
using Task = Schedule::Task;

constexpr Bytes kChunkMin = kib(4);
constexpr std::size_t kPipelineCount = 3;

/// The rows, cut into chunks of equal length; the last one may be shorter.
struct Chunks {
  Q6Columns columns;
  /// A multiple of 64, so that no two chunks share a word of the selection.
  std::size_t rows_per_chunk;

  [[nodiscard]] std::uint32_t count() const {
    const std::size_t row_count = columns.ship_date.size();
    return static_cast<std::uint32_t>(row_count / rows_per_chunk +
                                      (row_count % rows_per_chunk != 0 ? 1 : 0));
  }
  [[nodiscard]] Q6Columns at(std::uint32_t chunk_index) const {
    const std::size_t first = chunk_index * rows_per_chunk;
    const std::size_t count = std::min(rows_per_chunk, columns.ship_date.size() - first);
    return {columns.ship_date.subspan(first, count), columns.discount.subspan(first, count),
            columns.quantity.subspan(first, count), columns.extended_price.subspan(first, count)};
  }
};

Chunks make_chunks(const Q6Columns& columns, Bytes chunk) {
  const std::uint64_t rows_asked = chunk.count() / sizeof(std::int64_t);
  const std::uint64_t rows_useful =
      std::max<std::uint64_t>(1, words_for(columns.ship_date.size())) * kRowsPerWord;
  const std::uint64_t rows = std::min(rows_asked, rows_useful);
  return {columns, rows - rows % kRowsPerWord};
}

/// The events of all chunks. Each has a fixed place, so that workers need no growing buffers.
///
/// Threading: shared - an event is written by the one worker that has the task.
class Timeline {
 public:
  Timeline(bool wanted, std::uint32_t chunk_count) : chunk_count_(chunk_count) {
    if (wanted) events_.resize(kPipelineCount * chunk_count, Q6Event{.worker_index = kNobody});
  }
  [[nodiscard]] std::chrono::nanoseconds now() const {
    return events_.empty() ? std::chrono::nanoseconds{} : steady_clock().now() - start_;
  }
  [[nodiscard]] std::chrono::nanoseconds elapsed() const { return steady_clock().now() - start_; }
  void add(const Q6Event& event) {
    if (events_.empty()) return;
    events_[static_cast<std::size_t>(event.pipeline) * chunk_count_ + event.chunk_index] = event;
  }
  [[nodiscard]] std::vector<Q6Event> take() {
    std::erase_if(events_, [](const Q6Event& event) { return event.worker_index == kNobody; });
    std::ranges::stable_sort(events_, {}, &Q6Event::begin);
    return std::move(events_);
  }

 private:
  static constexpr std::uint32_t kNobody = ~std::uint32_t{0};
  std::chrono::nanoseconds start_ = steady_clock().now();
  std::size_t chunk_count_;
  std::vector<Q6Event> events_;
};

/// Results of one worker.
struct Tally {
  ExactSum sum;
  std::uint64_t rows_selected = 0;
  std::uint64_t chunks_from_cache = 0;
  std::uint64_t chunks_from_source = 0;
  std::map<NodeId, std::uint64_t> copies_by_node;
};

/// Threading: owned by its thread while that runs, by the thread that joined it afterwards.
struct Worker {
  std::uint32_t index = 0;
  CpuId cpu;
  /// Schedule of the worker's node, where it starts; then it helps with the others.
  std::size_t schedule_index = 0;
  std::vector<std::uint64_t> words;
  Tally tally;
  std::optional<Error> error;
};

/// One execution of the query: what all workers share.
class Run {
 public:
  Run(const Chunks& chunks, const Q6Parameters& parameters, cache::Cache* cache,
      std::deque<Schedule>& schedules, Timeline& timeline)
      : chunks_(chunks),
        parameters_(parameters),
        cache_(cache),
        schedules_(schedules),
        timeline_(timeline) {}

  /// The body of a worker's thread. An exception becomes the worker's error and cancels the run.
  void work(Worker& worker) noexcept {
    // Best effort: an unpinned worker is slower but not wrong.
    static_cast<void>(platform::pin_this_thread(std::array{worker.cpu}));
    try {
      Tally tally;  // A local one shares no cache line with another worker's.
      for (std::size_t i = 0; i < schedules_.size(); ++i) {
        Schedule& schedule = schedules_[(worker.schedule_index + i) % schedules_.size()];
        Task task;
        while ((task = schedule.next(task, i == 0)).kind != Task::Kind::none) {
          perform(task, worker, tally);
        }
      }
      worker.tally = std::move(tally);
    } catch (const std::bad_alloc&) {
      worker.error = Error{Code::out_of_memory, 0, "run query 6", "there is no memory left",
                           "use fewer threads or a smaller cache"};
    } catch (const std::exception& exception) {
      worker.error = Error{Code::unsupported, 0, "run query 6", exception.what(),
                           "correct the policies of the cache"};
    } catch (...) {
      worker.error = Error{Code::unsupported, 0, "run query 6", "an unknown exception was thrown",
                           "correct the policies of the cache"};
    }
    if (worker.error.has_value()) cancel();
  }

  void cancel() {
    for (Schedule& schedule : schedules_) schedule.cancel();
  }

 private:
  void perform(const Task& task, Worker& worker, Tally& tally) {
    const Q6Columns columns = chunks_.at(task.chunk_index);
    switch (task.kind) {
      case Task::Kind::none:
        return;
      case Task::Kind::prefetch: {
        const auto begin = timeline_.now();
        task.slot->held.extended_price.emplace(
            cache_->access(std::as_bytes(columns.extended_price)));
        task.slot->held.discount.emplace(cache_->access(std::as_bytes(columns.discount)));
        task.slot->is_refused = is_at_source(*task.slot->held.extended_price) ||
                                is_at_source(*task.slot->held.discount);
        record(Pipeline::prefetch, task, worker, begin);
        return;
      }
      case Task::Kind::scan: {
        const std::span<std::uint64_t> words =
            std::span(task.slot != nullptr ? task.slot->held.words : worker.words)
                .first(words_for(columns.ship_date.size()));
        const auto begin = timeline_.now();
        scan(parameters_, columns, words);
        record(Pipeline::scan, task, worker, begin);
        if (task.slot == nullptr) aggregate(task, columns, words, worker, tally);
        return;
      }
      case Task::Kind::aggregate: {
        aggregate(task, columns,
                  std::span(task.slot->held.words).first(words_for(columns.ship_date.size())),
                  worker, tally);
        task.slot->held.extended_price.reset();
        task.slot->held.discount.reset();
        return;
      }
    }
  }

  void aggregate(const Task& task, const Q6Columns& columns, std::span<const std::uint64_t> words,
                 const Worker& worker, Tally& tally) {
    const auto begin = timeline_.now();
    std::span<const std::int64_t> extended_price = columns.extended_price;
    std::span<const std::int64_t> discount = columns.discount;
    if (task.slot != nullptr) {
      extended_price = locate(*task.slot->held.extended_price, extended_price, tally);
      discount = locate(*task.slot->held.discount, discount, tally);
    } else {
      tally.chunks_from_source += 2;
    }
    tally.rows_selected += lab::aggregate(words, extended_price, discount, tally.sum);
    record(Pipeline::aggregate, task, worker, begin);
  }

  /// True if there is no copy and no move in flight.
  static bool is_at_source(const cache::Entry& entry) {
    return entry.try_wait() && !entry.cached();
  }

  /// The copy of `source` if it is ready, else `source`.
  static std::span<const std::int64_t> locate(const cache::Entry& entry,
                                              std::span<const std::int64_t> source, Tally& tally) {
    const std::span<const std::byte> data = entry.data();
    const bool is_copy = data.data() != std::as_bytes(source).data();
    ++(is_copy ? tally.chunks_from_cache : tally.chunks_from_source);
    if (is_copy) ++tally.copies_by_node[entry.node().value()];
    return {reinterpret_cast<const std::int64_t*>(data.data()), source.size()};
  }

  void record(Pipeline pipeline, const Task& task, const Worker& worker,
              std::chrono::nanoseconds begin) {
    timeline_.add({pipeline, worker.index, task.chunk_index, begin, timeline_.now()});
  }

  const Chunks& chunks_;
  const Q6Parameters& parameters_;
  cache::Cache* cache_;
  std::deque<Schedule>& schedules_;
  Timeline& timeline_;
};

/// Processors for the workers: those of the caller's node first, where its data most likely is.
std::vector<CpuId> worker_cpus(const topo::Machine& machine) {
  std::vector<CpuId> cpus = platform::allowed_cpus();
  const std::optional<NodeId> here = platform::current_node();
  std::stable_partition(cpus.begin(), cpus.end(), [&](CpuId cpu) {
    return here.has_value() && machine.node_of(cpu) == here;
  });
  return cpus;
}

/// The decision of `auto` for the workers of one node: prefetch if there is memory faster than
/// the node's own, the data is not already in it, and the predicted gain, if known, is large
/// enough.
bool is_worth_prefetching(const topo::Machine& machine, const Q6Columns& columns, NodeId workers,
                          std::size_t worker_count) {
  const std::vector<NodeId> faster = machine.faster_nodes(workers);
  if (faster.empty()) return false;
  const auto home = [&](const auto& column) {
    return platform::node_of_address(column.data()).value_or(workers);
  };
  const NodeId price = home(columns.extended_price);
  if (std::find(faster.begin(), faster.end(), price) != faster.end()) return false;
  const auto column = [&](const auto& values, bool is_scanned, bool is_moved) {
    return detail::ColumnReads{.home = home(values),
                               .bytes = sizeof(values[0]),
                               .is_scanned = is_scanned,
                               .is_moved = is_moved};
  };
  const std::array reads = {
      column(columns.ship_date, true, false), column(columns.quantity, true, false),
      column(columns.discount, true, true), column(columns.extended_price, false, true)};
  const auto gain = detail::prefetch_gain(machine, reads, workers, worker_count, faster.front());
  return !gain.has_value() || *gain >= detail::kGainMin;
}

Result<void> validate(const cache::Cache* cache, const Q6Columns& columns,
                      const Q6Options& options) {
  const std::size_t row_count = columns.ship_date.size();
  if (columns.discount.size() != row_count || columns.quantity.size() != row_count ||
      columns.extended_price.size() != row_count) {
    return fail(Code::invalid_argument, "run query 6",
                fmt::format("the columns differ in length: ship_date {}, discount {}, quantity {}, "
                            "extended_price {}",
                            row_count, columns.discount.size(), columns.quantity.size(),
                            columns.extended_price.size()),
                "pass four columns of one table");
  }
  if (options.chunk < kChunkMin) {
    return fail(Code::invalid_argument, "run query 6",
                fmt::format("a chunk of {} is too small to be scheduled", to_text(options.chunk)),
                fmt::format("choose at least {}", to_text(kChunkMin)));
  }
  if (options.prefetch == Prefetch::on && cache == nullptr) {
    return fail(Code::invalid_argument, "run query 6", "prefetching is on, but there is no cache",
                "pass a cache, or switch prefetching off");
  }
  return {};
}

Result<Q6Result> run_checked(const topo::Machine& machine, cache::Cache* cache,
                             const Q6Columns& columns, const Q6Parameters& parameters,
                             const Q6Options& options) {
  const Chunks chunks = make_chunks(columns, options.chunk);
  const std::uint32_t chunk_count = chunks.count();
  Timeline timeline(options.record_timeline, chunk_count);
  const std::vector<CpuId> cpus = worker_cpus(machine);
  const std::size_t threads_asked = options.thread_count != 0 ? options.thread_count : cpus.size();
  const std::size_t worker_count = std::min<std::size_t>(threads_asked, chunk_count);

  // Workers of one node share a schedule, so that they find each other's copies near.
  std::vector<Worker> workers(worker_count);
  std::vector<std::optional<NodeId>> nodes;
  std::vector<std::size_t> workers_per_node;
  for (std::size_t i = 0; i < worker_count; ++i) {
    Worker& worker = workers[i];
    worker.index = static_cast<std::uint32_t>(i);
    worker.cpu = cpus[i % cpus.size()];
    worker.words.resize(words_for(chunks.rows_per_chunk));
    const std::optional<NodeId> node = machine.node_of(worker.cpu);
    const auto found = std::find(nodes.begin(), nodes.end(), node);
    worker.schedule_index = static_cast<std::size_t>(found - nodes.begin());
    if (found == nodes.end()) {
      nodes.push_back(node);
      workers_per_node.push_back(0);
    }
    ++workers_per_node[worker.schedule_index];
  }

  bool pays = false;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    pays = pays || (nodes[i].has_value() &&
                    is_worth_prefetching(machine, columns, *nodes[i], workers_per_node[i]));
  }
  Q6Result result;
  result.prefetched = options.prefetch == Prefetch::on ||
                      (options.prefetch == Prefetch::automatic && cache != nullptr && pays);
  std::deque<Schedule> schedules;
  std::uint64_t workers_before = 0;
  for (const std::size_t count : workers_per_node) {
    const auto share = [&](std::uint64_t workers_until) {
      return static_cast<std::uint32_t>(chunk_count * workers_until / worker_count);
    };
    schedules.emplace_back(
        share(workers_before), share(workers_before + count),
        result.prefetched ? kSlotsPerWorker * count : 0,
        Copies{.words = std::vector<std::uint64_t>(words_for(chunks.rows_per_chunk))});
    workers_before += count;
  }

  Run run(chunks, parameters, cache, schedules, timeline);
  {
    std::vector<std::jthread> threads;  // Joined at the end of the block, also on an error.
    threads.reserve(worker_count);
    for (Worker& worker : workers) {
      try {
        threads.emplace_back([&run, &worker] { run.work(worker); });
      } catch (const std::system_error& error) {
        run.cancel();
        return fail(Code::capacity_exceeded,
                    fmt::format("start {}", counted(worker_count, "worker thread")),
                    fmt::format("the system allowed only {}", threads.size()), "use fewer threads",
                    error.code().value());
      }
    }
  }

  ExactSum sum;
  for (const Worker& worker : workers) {
    if (worker.error.has_value()) return fail(*worker.error);
    sum.add(worker.tally.sum);
    result.rows_selected += worker.tally.rows_selected;
    result.chunks_from_cache += worker.tally.chunks_from_cache;
    result.chunks_from_source += worker.tally.chunks_from_source;
    for (const auto& [node, count] : worker.tally.copies_by_node) {
      result.copies_by_node[node] += count;
    }
  }
  const std::optional<std::int64_t> revenue = sum.value();
  if (!revenue.has_value()) {
    return fail(Code::out_of_range, "add up the revenue of query 6",
                "the exact sum does not fit 64 bits",
                "check that the columns are hundredths, or split the table");
  }
  result.revenue = *revenue;
  result.time = timeline.elapsed();
  result.timeline = timeline.take();
  return result;
}

}  // namespace

Result<Q6Result> run_q6(const topo::Machine& machine, cache::Cache* cache, const Q6Columns& columns,
                        const Q6Parameters& parameters, const Q6Options& options) {
  HEADRACE_TRY(validate(cache, columns, options));
  if (columns.ship_date.empty()) {
    Q6Result nothing;
    nothing.prefetched = options.prefetch == Prefetch::on;
    return nothing;
  }
  try {
    return run_checked(machine, cache, columns, parameters, options);
  } catch (const std::bad_alloc&) {
    return fail(Code::out_of_memory, "run query 6", "there is no memory left for the workers",
                "use fewer threads or smaller chunks");
  }
}

}  // namespace headrace::query::lab
