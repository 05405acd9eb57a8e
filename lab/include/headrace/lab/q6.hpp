// SPDX-License-Identifier: Apache-2.0
// TPC-H query 6 with query-driven prefetching: one pipeline scans the filter columns, another moves
// the columns of the aggregate, and a third aggregates from the copies or the source.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "headrace/base/result.hpp"
#include "headrace/base/units.hpp"
#include "headrace/cache/cache.hpp"
#include "headrace/topo/machine.hpp"

namespace headrace::query::lab {

using headrace::name;

/// Columns of lineitem; all of the same length. Decimals are scaled integers: 0.05 is 5.
///
/// Ownership: borrowed for the duration of the query. After a query that prefetched, the cache may
/// hold copies and still read the columns: call Cache::invalidate() before freeing or changing
/// them.
struct Q6Columns {
  std::span<const std::int32_t> ship_date;       ///< Days since 1970-01-01.
  std::span<const std::int64_t> discount;        ///< Hundredths.
  std::span<const std::int64_t> quantity;        ///< Hundredths.
  std::span<const std::int64_t> extended_price;  ///< Hundredths.
};

/// select sum(extended_price * discount) where ship_date in [begin, end) and discount in [min, max]
/// and quantity < quantity_below. The defaults are the validation parameters of the TPC-H
/// specification.
struct Q6Parameters {
  std::int32_t ship_date_begin = 8766;  ///< 1994-01-01.
  std::int32_t ship_date_end = 9131;    ///< 1995-01-01.
  std::int64_t discount_min = 5;
  std::int64_t discount_max = 7;
  std::int64_t quantity_below = 2400;
};

/// Whether the aggregate's columns are moved ahead of it.
enum class Prefetch : std::uint8_t {
  off,
  on,  ///< Through the cache, wherever its placement policy says.
  /// As `on` if the workers of some node have memory faster than their own
  /// (topo::Machine::faster_nodes), the data is not already in it, and the machine's bandwidths and
  /// latencies, if known, predict a gain of at least 2 %; otherwise, or without a cache, as `off`.
  /// Copies that are used once seldom gain that, because moving reads the same bytes.
  automatic,
};

/// What a worker does with a chunk. `prefetch` only submits the move.
enum class Pipeline : std::uint8_t { scan, prefetch, aggregate };

/// One chunk on one pipeline, for the timeline.
struct Q6Event {
  Pipeline pipeline = Pipeline::scan;
  std::uint32_t worker_index = 0;
  std::uint32_t chunk_index = 0;
  std::chrono::nanoseconds begin{};  ///< Since the start of the query.
  std::chrono::nanoseconds end{};
};

struct Q6Options {
  Prefetch prefetch = Prefetch::automatic;
  /// Bytes of one 8-byte column per chunk; rounded down to a multiple of 64 rows.
  Bytes chunk = mib(1);
  /// Total number of worker threads, pinned to processors; 0: one per processor that this process
  /// may use. At most one per chunk.
  std::size_t thread_count = 0;
  bool record_timeline = false;
};

struct Q6Result {
  /// Exact sum in ten-thousandths: price and discount are hundredths.
  std::int64_t revenue = 0;
  std::uint64_t rows_selected = 0;
  std::chrono::nanoseconds time{};
  /// What `auto` decided, or what was asked for.
  bool prefetched = false;
  /// Chunk-columns that the aggregate read from a copy, and those it read from the source; together
  /// two per chunk.
  std::uint64_t chunks_from_cache = 0;
  std::uint64_t chunks_from_source = 0;
  /// Chunk-columns read from copies, by the node of the copy.
  std::map<NodeId, std::uint64_t> copies_by_node;
  /// Sorted by begin; per chunk one scan, one aggregate and, if it was prefetched, one prefetch.
  std::vector<Q6Event> timeline;
};

/// Runs the query. With Prefetch::off, `cache` may be null.
///
/// Never waits for a move. A chunk is prefetched if its move can be submitted before its scan
/// begins. It is aggregated when its copies are ready, or from the source if they are not ready
/// once all chunks are scanned. So a slow mover wastes bandwidth but adds no waiting time.
///
/// Threading: confined; it starts and joins its own threads.
/// Fails: invalid_argument if the columns differ in length, a chunk is smaller than 4 KiB, or
///        prefetching is on without a cache; out_of_range if the sum does not fit 64 bits;
///        out_of_memory; capacity_exceeded if threads cannot be started.
/// Cost: see `headrace query`.
[[nodiscard]] Result<Q6Result> run_q6(const topo::Machine& machine, cache::Cache* cache,
                                      const Q6Columns& columns, const Q6Parameters& parameters,
                                      const Q6Options& options);

}  // namespace headrace::query::lab
