// SPDX-License-Identifier: Apache-2.0
// Prefetcher: moves the columns that a query will read, in the order in which it will read them.
// The query reads through streams of the prefetcher and never waits for a move, unless asked.
#pragma once

#include <chrono>
#include <cstdint>
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
  /// Of each chunk these are moved first.
  std::vector<std::uint32_t> filter_columns;
  std::vector<std::uint32_t> other_columns;
  /// Chunks in which no row can pass the filter: they are not moved. By chunk index; may be
  /// shorter than the table.
  std::vector<bool> excluded_chunks;
};

/// In the order in which the query starts them.
using Plan = std::vector<PlannedScan>;

struct PrefetcherOptions {
  /// A stream waits for the copies that are being made, instead of reading the source.
  bool wait = false;
};

/// What streams read of one column.
struct ColumnStatistics {
  std::uint64_t bytes_from_copies = 0;
  std::uint64_t bytes_from_source = 0;  ///< Short regions and nested columns are not counted.
  /// Chunks that were submitted before the query came to them, and by how much, in total.
  std::uint64_t chunks_ahead = 0;
  std::chrono::nanoseconds lead{};
};

struct ScanStatistics {
  std::uint64_t chunks_submitted = 0;
  /// Chunks that the query came to first, or that found no room.
  std::uint64_t chunks_given_up = 0;
  std::uint64_t chunks_read = 0;
  std::vector<ColumnStatistics> columns;  ///< By the index of the column in the table.
};

/// One column of one chunk is submitted, or read.
struct ChunkEvent {
  enum class Kind : std::uint8_t {
    submitted,
    read_copies,  ///< All that can be moved came from copies.
    read_source,
  };
  Kind kind{};
  std::uint32_t scan_index = 0;
  std::uint32_t chunk_index = 0;
  std::uint32_t column = 0;
  std::chrono::nanoseconds time{};  ///< Since the start of the prefetcher.
};

struct PrefetchStatistics {
  std::vector<ScanStatistics> scans;  ///< By the index of the scan in the plan.
  /// Of the scans of the plan, in the order of time.
  std::vector<ChunkEvent> events;
  /// Read by streams that no scan of the plan matches.
  ColumnStatistics unplanned;
};

class PrefetchState;

/// Walks a plan in a thread of its own: chunk by chunk, filter columns first. It is as far ahead
/// as the cache holds copies; then it waits until the query has read a chunk, and it skips what the
/// query has read already.
///
/// Ownership: shares the cache until stop(); streams may outlive the prefetcher.
/// Threading: shared.
class HEADRACE_API Prefetcher {
 public:
  /// Fails: capacity_exceeded if the thread cannot be started; out_of_range for a column that a
  ///        table does not have.
  [[nodiscard]] static Result<std::unique_ptr<Prefetcher>> start(
      std::shared_ptr<cache::Cache> cache, Plan plan, PrefetcherOptions options = {});
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;
  /// As stop().
  ~Prefetcher();

  /// As Table::open_stream(), from the copies that are there. It takes the first scan of the plan
  /// over this table that reads these columns and has no stream yet.
  [[nodiscard]] Result<void> open_stream(const std::shared_ptr<const Table>& table,
                                         std::vector<std::uint32_t> columns, ArrowArrayStream* out);
  /// Whether open_stream() would find a scan of the plan.
  [[nodiscard]] bool expects(const Table& table, const std::vector<std::uint32_t>& columns) const;
  /// Waits until everything that has room has been submitted and moved, or stop().
  void finish();
  /// Ends the thread and lets go of the copies and the cache; streams read the source from now on.
  /// Idempotent.
  void stop();
  [[nodiscard]] PrefetchStatistics statistics() const;

 private:
  explicit Prefetcher(std::shared_ptr<PrefetchState> state);
  std::shared_ptr<PrefetchState> state_;
};

}  // namespace headrace::query
