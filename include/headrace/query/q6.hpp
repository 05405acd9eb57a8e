// SPDX-License-Identifier: Apache-2.0
// TPC-H query 6 with query-driven prefetching: while one pipeline scans the filter columns, another
// moves the columns that the aggregate will touch, and a third aggregates from wherever the data
// is.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "headrace/base/export.hpp"
#include "headrace/base/result.hpp"
#include "headrace/base/units.hpp"
#include "headrace/cache/cache.hpp"
#include "headrace/topo/machine.hpp"

namespace headrace::query {

/// Columns of lineitem; all of the same length. Decimals are scaled integers: 0.05 is 5.
///
/// Ownership: borrowed for the duration of the query.
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

enum class Prefetch : std::uint8_t { off, on, automatic };
[[nodiscard]] HEADRACE_API std::string_view name(Prefetch prefetch);

enum class Pipeline : std::uint8_t { scan, prefetch, aggregate };
[[nodiscard]] HEADRACE_API std::string_view name(Pipeline pipeline);

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
  /// Bytes of one 8-byte column per chunk.
  Bytes chunk = mib(1);
  /// Worker threads in all, pinned to processors; 0: one per processor that this process may use.
  std::size_t thread_count = 0;
  bool record_timeline = false;
};

struct Q6Result {
  /// Exact sum in ten-thousandths: price and discount are hundredths.
  std::int64_t revenue = 0;
  std::uint64_t rows_selected = 0;
  std::chrono::nanoseconds time{};
  /// What `automatic` decided, or what was asked for.
  bool prefetched = false;
  /// Chunk-columns that the aggregate read from a copy, and those it read from the source.
  std::uint64_t chunks_from_cache = 0;
  std::uint64_t chunks_from_source = 0;
  std::vector<Q6Event> timeline;
};

/// Runs the query. With Prefetch::off, `cache` may be null.
///
/// Threading: confined; it starts and joins its own threads.
/// Fails: invalid_argument if the columns differ in length, a chunk is smaller than 4 KiB, or
/// prefetching is
///        on without a cache; out_of_range if the sum does not fit 64 bits.
[[nodiscard]] HEADRACE_API Result<Q6Result> run_q6(const topo::Machine& machine,
                                                   cache::Cache* cache, const Q6Columns& columns,
                                                   const Q6Parameters& parameters,
                                                   const Q6Options& options);

}  // namespace headrace::query
