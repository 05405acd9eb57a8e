// SPDX-License-Identifier: Apache-2.0
#include "headrace/query/prefetcher.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <thread>
#include <utility>

#include "headrace/base/clock.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/platform/thread.hpp"

namespace headrace::query {
namespace {

/// Pace::spare: after a move, a pause of this many times its duration.
constexpr int kPauseShare = 9;

/// True if there is no copy and no move in flight.
bool is_at_source(const cache::Entry& entry) {
  return entry.try_wait() && !entry.cached();
}

bool is_worth_moving(const Region& region) {
  return region.bytes.size() >= Table::kRegionMin.count();
}

}  // namespace

/// State shared by the thread and the streams.
///
/// No lock is held while the cache starts, waits for or frees a move. Lookups by streams hold
/// `mutex_`, so that stop() can release the cache.
class PrefetchState {
 public:
  PrefetchState(std::shared_ptr<cache::Cache> cache, Plan plan, Pace pace)
      : is_following_(plan.empty()), cache_(std::move(cache)), pace_(pace) {
    for (PlannedScan& scan : plan) add(std::move(scan));
  }

  [[nodiscard]] Result<void> start() {
    auto thread = platform::start_thread<std::jthread>("start a prefetcher", [this] { walk(); });
    if (!thread) return fail(std::move(thread.error()));
    const Lock lock(stop_mutex_);
    thread_ = std::move(*thread);
    return {};
  }
  [[nodiscard]] bool expects(const Table& table, const std::vector<std::uint32_t>& columns) const {
    const Lock lock(mutex_);
    return find(table, columns).has_value();
  }
  /// Claims the scan of the plan that a new stream will read, if there is one.
  std::optional<std::size_t> claim(const std::shared_ptr<const Table>& table,
                                   const std::vector<std::uint32_t>& columns) {
    const Lock lock(mutex_);
    std::optional<std::size_t> found = find(*table, columns);
    const auto exists = [&](std::uint32_t column) { return column < table->column_count(); };
    if (!found && is_following_ && std::all_of(columns.begin(), columns.end(), exists)) {
      found = plan_.size();
      add({table, {}, columns, {}});
      changed_.notify_all();
    }
    if (found.has_value()) progress_[*found].is_claimed = true;
    return found;
  }
  void begin_chunk(std::size_t scan_index, std::uint32_t chunk_index);
  std::vector<cache::Entry> locate(std::optional<std::size_t> scan_index, std::uint32_t column,
                                   std::span<const Region> regions);
  void finish();
  void stop();
  [[nodiscard]] PrefetchStatistics statistics() const {
    const Lock lock(mutex_);
    return statistics_;
  }

 private:
  struct Held {
    std::uint32_t chunk_index = 0;
    std::uint32_t column = 0;
    std::chrono::nanoseconds submitted{};
    cache::Entry entry;
  };
  struct Progress {
    bool is_claimed = false;
    /// Chunks that the query has begun to read.
    std::uint32_t chunks_read = 0;
    std::deque<Held> held;
  };
  enum class Outcome : std::uint8_t { submitted, skipped, stopped };

  void add(PlannedScan scan) HEADRACE_REQUIRES(mutex_) {
    progress_.emplace_back();
    statistics_.scans.emplace_back().columns.resize(scan.table->column_count());
    plan_.push_back(std::move(scan));
    is_walked_ = false;
  }
  [[nodiscard]] std::optional<std::size_t> find(const Table& table,
                                                std::vector<std::uint32_t> columns) const
      HEADRACE_REQUIRES(mutex_);
  /// An entry whose move has not ended; nullopt after stop().
  [[nodiscard]] std::optional<cache::Entry> find_moving() const;
  void walk();
  void pause_after(const cache::Entry& moved, std::chrono::nanoseconds begin);
  void move_chunks(std::size_t scan_index, const PlannedScan& scan);
  Outcome move_chunk(std::size_t scan_index, const PlannedScan& scan, std::uint32_t chunk_index);
  Outcome move_region(std::size_t scan_index, std::uint32_t chunk_index, std::uint32_t column,
                      const Region& region);
  [[nodiscard]] bool is_passed(std::size_t scan_index, std::uint32_t chunk_index)
      HEADRACE_REQUIRES(mutex_) {
    return progress_[scan_index].chunks_read > chunk_index;
  }

  /// Without a plan, streams add their scans to it.
  const bool is_following_;
  mutable Mutex mutex_;
  /// Elements stay in place and do not change.
  std::deque<PlannedScan> plan_ HEADRACE_GUARDED_BY(mutex_);
  /// Notified when a chunk is read, a scan added, the walk blocks or ends, by finish() and stop().
  Condition changed_;
  /// Null after stop(). The thread has its own reference while it needs one.
  std::shared_ptr<cache::Cache> cache_ HEADRACE_GUARDED_BY(mutex_);
  Pace pace_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<Progress> progress_ HEADRACE_GUARDED_BY(mutex_);
  PrefetchStatistics statistics_ HEADRACE_GUARDED_BY(mutex_);
  /// Number of events that may have made room.
  std::uint64_t releases_ HEADRACE_GUARDED_BY(mutex_) = 0;
  /// Streams that use entries without the lock.
  std::size_t looking_streams_ HEADRACE_GUARDED_BY(mutex_) = 0;
  bool is_walked_ HEADRACE_GUARDED_BY(mutex_) = false;
  /// The thread waits while releases_ has this value.
  std::optional<std::uint64_t> blocked_at_ HEADRACE_GUARDED_BY(mutex_);
  bool is_stopped_ HEADRACE_GUARDED_BY(mutex_) = false;
  Mutex stop_mutex_;
  std::jthread thread_ HEADRACE_GUARDED_BY(stop_mutex_);
};

std::optional<std::size_t> PrefetchState::find(const Table& table,
                                               std::vector<std::uint32_t> columns) const {
  std::sort(columns.begin(), columns.end());
  for (std::size_t i = 0; i < plan_.size(); ++i) {
    if (plan_[i].table.get() != &table || (progress_[i].is_claimed && !is_following_)) continue;
    std::vector<std::uint32_t> planned = plan_[i].filter_columns;
    planned.insert(planned.end(), plan_[i].other_columns.begin(), plan_[i].other_columns.end());
    std::sort(planned.begin(), planned.end());
    if (is_following_ && planned.size() != columns.size()) continue;
    if (std::includes(columns.begin(), columns.end(), planned.begin(), planned.end())) return i;
  }
  return std::nullopt;
}

void PrefetchState::begin_chunk(std::size_t scan_index, std::uint32_t chunk_index) {
  std::vector<cache::Entry> passed;
  {
    const Lock lock(mutex_);
    Progress& progress = progress_[scan_index];
    progress.chunks_read = std::max(progress.chunks_read, chunk_index + 1);
    ScanStatistics& scan = statistics_.scans[scan_index];
    ++scan.chunks_read;
    // Release chunks before this one: their arrays hold the entries that they need. This one is
    // held until it is located.
    while (!progress.held.empty() && progress.held.front().chunk_index < chunk_index) {
      passed.push_back(std::move(progress.held.front().entry));
      progress.held.pop_front();
    }
    const auto now = steady_clock().now();
    std::optional<std::uint32_t> counted;
    for (const Held& held : progress.held) {
      if (held.chunk_index > chunk_index) break;
      if (counted == held.column) continue;
      counted = held.column;
      ++scan.columns[held.column].chunks_ahead;
      scan.columns[held.column].lead += now - held.submitted;
    }
  }
  passed.clear();  // May free memory, so no lock is held. Only now is there room.
  const Lock lock(mutex_);
  ++releases_;
  changed_.notify_all();
}

std::vector<cache::Entry> PrefetchState::locate(std::optional<std::size_t> scan_index,
                                                std::uint32_t column,
                                                std::span<const Region> regions) {
  std::vector<cache::Entry> found;
  {
    const Lock lock(mutex_);
    if (cache_ == nullptr) return {};
    found.reserve(regions.size());
    for (const Region& region : regions) found.push_back(cache_->access_weak(region.bytes));
    ++looking_streams_;
  }
  // No lock: a poll may end other moves, too.
  for (const cache::Entry& entry : found) static_cast<void>(entry.try_wait());
  const Lock lock(mutex_);
  --looking_streams_;
  if (is_stopped_) changed_.notify_all();
  ColumnStatistics& counted = scan_index.has_value()
                                  ? statistics_.scans[*scan_index].columns[column]
                                  : statistics_.unplanned;
  std::uint64_t from_copies = 0;
  std::uint64_t from_source = 0;
  std::optional<NodeId> node;
  for (std::size_t i = 0; i < regions.size(); ++i) {
    if (!is_worth_moving(regions[i])) continue;
    (found[i].cached() ? from_copies : from_source) += regions[i].bytes.size();
    if (found[i].cached()) node = found[i].node();
  }
  if (node.has_value()) ++statistics_.copies_by_node[*node];
  counted.bytes_from_copies += from_copies;
  counted.bytes_from_source += from_source;
  return found;
}

void PrefetchState::walk() {
  for (std::size_t i = 0;; ++i) {
    const PlannedScan* scan = nullptr;
    {
      const Lock lock(mutex_);
      is_walked_ = i == plan_.size();
      changed_.notify_all();
      while (is_following_ && i == plan_.size() && !is_stopped_) changed_.wait(mutex_);
      if (i == plan_.size()) break;
      scan = &plan_[i];
    }
    move_chunks(i, *scan);
  }
  // Moves of a device advance only when a thread polls them.
  while (const std::optional<cache::Entry> moving = find_moving()) moving->wait();
}

std::optional<cache::Entry> PrefetchState::find_moving() const {
  const Lock lock(mutex_);
  if (is_stopped_) return std::nullopt;
  for (const Progress& progress : progress_) {
    for (const Held& held : progress.held) {
      if (!held.entry.try_wait()) return held.entry;
    }
  }
  return std::nullopt;
}

void PrefetchState::move_chunks(std::size_t scan_index, const PlannedScan& scan) {
  for (std::uint32_t chunk = 0; chunk < scan.table->chunk_count(); ++chunk) {
    if (chunk < scan.excluded_chunks.size() && scan.excluded_chunks[chunk]) continue;
    const Outcome outcome = move_chunk(scan_index, scan, chunk);
    if (outcome == Outcome::stopped) return;
    const Lock lock(mutex_);
    ScanStatistics& statistics = statistics_.scans[scan_index];
    ++(outcome == Outcome::submitted ? statistics.chunks_submitted : statistics.chunks_skipped);
  }
}

PrefetchState::Outcome PrefetchState::move_chunk(std::size_t scan_index, const PlannedScan& scan,
                                                 std::uint32_t chunk_index) {
  Outcome outcome = Outcome::submitted;
  for (const auto* columns : {&scan.filter_columns, &scan.other_columns}) {
    for (const std::uint32_t column : *columns) {
      for (const Region& region : scan.table->regions(chunk_index, column)) {
        if (!is_worth_moving(region)) continue;
        const Outcome moved = move_region(scan_index, chunk_index, column, region);
        if (moved == Outcome::stopped) return moved;
        if (moved == Outcome::skipped) outcome = moved;
      }
    }
  }
  return outcome;
}

PrefetchState::Outcome PrefetchState::move_region(std::size_t scan_index, std::uint32_t chunk_index,
                                                  std::uint32_t column, const Region& region) {
  while (true) {
    std::shared_ptr<cache::Cache> cache;
    std::uint64_t releases = 0;
    bool is_spare = false;
    {
      const Lock lock(mutex_);
      if (is_stopped_) return Outcome::stopped;
      if (is_passed(scan_index, chunk_index)) return Outcome::skipped;
      cache = cache_;
      releases = releases_;
      is_spare = pace_ == Pace::spare;
    }
    const std::chrono::nanoseconds begin = steady_clock().now();
    cache::Entry entry = cache->access(region.bytes);
    if (!is_at_source(entry)) {
      {
        const Lock lock(mutex_);
        progress_[scan_index].held.push_back({chunk_index, column, steady_clock().now(), entry});
      }
      if (is_spare && !entry.try_wait()) pause_after(entry, begin);
      return Outcome::submitted;
    }
    // No room, or a full queue. A move that ends frees a queue; a chunk that is read frees room.
    if (const std::optional<cache::Entry> moving = find_moving()) {
      moving->wait();
      continue;
    }
    const Lock lock(mutex_);
    if (std::all_of(progress_.begin(), progress_.end(),
                    [](const Progress& progress) { return progress.held.empty(); })) {
      return Outcome::skipped;
    }
    blocked_at_ = releases;
    changed_.notify_all();
    while (!is_stopped_ && releases_ == releases) changed_.wait(mutex_);
  }
}

void PrefetchState::pause_after(const cache::Entry& moved, std::chrono::nanoseconds begin) {
  moved.wait();
  const std::chrono::nanoseconds end = steady_clock().now();
  const std::chrono::nanoseconds until = end + kPauseShare * (end - begin);
  const Lock lock(mutex_);
  while (pace_ == Pace::spare && !is_stopped_ && steady_clock().now() < until) {
    changed_.wait_for(mutex_, until - steady_clock().now());
  }
}

void PrefetchState::finish() {
  {
    const Lock lock(mutex_);
    pace_ = Pace::full;
    changed_.notify_all();
    while (!is_walked_ && blocked_at_ != releases_ && !is_stopped_) changed_.wait(mutex_);
  }
  while (const std::optional<cache::Entry> moving = find_moving()) moving->wait();
}

void PrefetchState::stop() {
  const Lock stopping(stop_mutex_);
  {
    const Lock lock(mutex_);
    is_stopped_ = true;
    changed_.notify_all();
    while (looking_streams_ > 0) changed_.wait(mutex_);
  }
  if (thread_.joinable()) thread_.join();
  std::vector<Progress> gone;
  std::shared_ptr<cache::Cache> cache;
  const Lock lock(mutex_);
  cache = std::move(cache_);
  for (Progress& progress : progress_) {
    gone.push_back({progress.is_claimed, progress.chunks_read, std::move(progress.held)});
    progress.held.clear();
  }
}

namespace {

/// Reports the reads of one stream to the state.
///
/// Threading: confined, as the stream.
class StreamReader final : public ChunkReader {
 public:
  StreamReader(std::shared_ptr<PrefetchState> state, std::optional<std::size_t> scan_index)
      : state_(std::move(state)), scan_index_(scan_index) {}
  void begin_chunk(std::uint32_t chunk_index) override {
    if (scan_index_.has_value()) state_->begin_chunk(*scan_index_, chunk_index);
  }
  std::vector<cache::Entry> locate(std::uint32_t column, std::span<const Region> regions) override {
    return state_->locate(scan_index_, column, regions);
  }

 private:
  std::shared_ptr<PrefetchState> state_;
  std::optional<std::size_t> scan_index_;
};

}  // namespace

Prefetcher::Prefetcher(std::shared_ptr<PrefetchState> state) : state_(std::move(state)) {}
Prefetcher::~Prefetcher() {
  stop();
}

Result<std::unique_ptr<Prefetcher>> Prefetcher::start(std::shared_ptr<cache::Cache> cache,
                                                      Plan plan, Pace pace) {
  for (const PlannedScan& scan : plan) {
    for (const auto* columns : {&scan.filter_columns, &scan.other_columns}) {
      for (const std::uint32_t column : *columns) {
        if (column < scan.table->column_count()) continue;
        return fail(
            Code::out_of_range, "prefetch the columns of a plan",
            fmt::format("a table has no column {}: it has {}", column, scan.table->column_count()),
            "use an index below that");
      }
    }
  }
  auto state = std::make_shared<PrefetchState>(std::move(cache), std::move(plan), pace);
  HEADRACE_TRY(state->start());
  return std::unique_ptr<Prefetcher>(new Prefetcher(std::move(state)));
}

Result<void> Prefetcher::open_stream(const std::shared_ptr<const Table>& table,
                                     std::vector<std::uint32_t> columns, ArrowArrayStream* out) {
  auto reader = std::make_shared<StreamReader>(state_, state_->claim(table, columns));
  return table->open_stream(std::move(columns), std::move(reader), out);
}

bool Prefetcher::expects(const Table& table, const std::vector<std::uint32_t>& columns) const {
  return state_->expects(table, columns);
}
void Prefetcher::finish() {
  state_->finish();
}
void Prefetcher::stop() {
  state_->stop();
}
PrefetchStatistics Prefetcher::statistics() const {
  return state_->statistics();
}

}  // namespace headrace::query
