// SPDX-License-Identifier: Apache-2.0
// Prefetcher: moves the columns that a query will read, in the order in which it will read them.
// The query reads through streams of the prefetcher and never waits for a move.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "headrace/base/export.hpp"
#include "headrace/base/result.hpp"
#include "headrace/base/units.hpp"
#include "headrace/cache/cache.hpp"
#include "headrace/query/table.hpp"

namespace headrace::query {

/// One pass of a query over a table.
struct PlannedScan {
  std::shared_ptr<const Table> table;
  /// Moved first in each chunk.
  std::vector<std::uint32_t> filter_columns;
  std::vector<std::uint32_t> other_columns;
  /// By chunk index: true if no row can pass the filter, so the chunk is not moved. May be shorter
  /// than the table.
  std::vector<bool> excluded_chunks;
};

/// Scans in the order in which the query starts them.
using Plan = std::vector<PlannedScan>;

/// Reads of one column by streams.
struct ColumnStatistics {
  std::uint64_t bytes_from_copies = 0;
  std::uint64_t bytes_from_source = 0;  ///< Short regions and nested columns are not counted.
  /// Chunks submitted before the query reached them, and the sum of their lead times.
  std::uint64_t chunks_ahead = 0;
  std::chrono::nanoseconds lead{};
};

struct ScanStatistics {
  std::uint64_t chunks_submitted = 0;
  /// Chunks that the query reached first, or for which there was no room.
  std::uint64_t chunks_skipped = 0;
  std::uint64_t chunks_read = 0;
  std::vector<ColumnStatistics> columns;  ///< By the index of the column in the table.
};

struct PrefetchStatistics {
  std::vector<ScanStatistics> scans;  ///< By the index of the scan in the plan.
  /// Reads by streams that match no scan of the plan.
  ColumnStatistics unplanned;
  /// Chunks of columns that streams read from copies, by the node of the copy.
  std::map<NodeId, std::uint64_t> copies_by_node;
};

/// How much of the time a prefetcher moves bytes.
enum class Pace : std::uint8_t {
  full,   ///< As fast as the movers can.
  spare,  ///< A tenth, for copies that cannot gain: the query keeps the processors.
};

class PrefetchState;

/// Prefetches a plan on a background thread, chunk by chunk, filter columns first. If the plan is
/// empty, each stream adds a scan of its columns when it is opened. Runs ahead until
/// the cache has no room, then waits until the query has read a chunk. Skips chunks that the query
/// has already read.
///
/// Ownership: shares the cache until stop(); streams may outlive the prefetcher.
/// Threading: shared.
class HEADRACE_API Prefetcher {
 public:
  /// Fails: capacity_exceeded if the thread cannot be started; out_of_range for a column that a
  ///        table does not have.
  [[nodiscard]] static Result<std::unique_ptr<Prefetcher>> start(
      std::shared_ptr<cache::Cache> cache, Plan plan, Pace pace = Pace::full);
  Prefetcher& operator=(Prefetcher&&) = delete;
  /// As stop().
  ~Prefetcher();

  /// As Table::open_stream(), but reads copies where they are ready. Claims the first scan of the
  /// plan over this table that has no stream yet and reads no column outside `columns`.
  [[nodiscard]] Result<void> open_stream(const std::shared_ptr<const Table>& table,
                                         std::vector<std::uint32_t> columns, ArrowArrayStream* out);
  /// True if open_stream() would claim a scan of the plan.
  [[nodiscard]] bool expects(const Table& table, const std::vector<std::uint32_t>& columns) const;
  /// Blocks until all that fits in the cache has been submitted and moved, at full pace from now
  /// on, or stop() is called.
  void finish();
  /// Ends the thread and releases the copies and the cache; streams then read the source.
  /// Idempotent.
  void stop();
  [[nodiscard]] PrefetchStatistics statistics() const;

 private:
  explicit Prefetcher(std::shared_ptr<PrefetchState> state);
  std::shared_ptr<PrefetchState> state_;
};

}  // namespace headrace::query
