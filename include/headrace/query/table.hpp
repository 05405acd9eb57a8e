// SPDX-License-Identifier: Apache-2.0
// Table: Arrow columns in chunks, which a query engine reads through an ArrowArrayStream. The bytes
// stay where they are; a Prefetcher moves copies of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/export.hpp"
#include "headrace/base/result.hpp"
#include "headrace/base/units.hpp"
#include "headrace/cache/cache.hpp"
#include "headrace/query/arrow.hpp"

namespace headrace::query {

class Table;
struct TableContent;
/// Part of a buffer that one chunk of one column reads.
struct Region {
  std::span<const std::byte> bytes;
  /// Index in ArrowArray::buffers.
  std::uint32_t buffer_index = 0;
  /// What offsets or views count before `bytes`; for a copy, the exported ones do not.
  std::uintptr_t skipped_bytes = 0;
};

/// Locates the bytes of a chunk for a stream. A stream without a reader uses the source.
///
/// Threading: shared.
class HEADRACE_API ChunkReader {
 public:
  ChunkReader() = default;
  ChunkReader& operator=(ChunkReader&&) = delete;
  virtual ~ChunkReader() = default;
  /// Called before the first region of a chunk is located.
  virtual void begin_chunk(std::uint32_t chunk_index) = 0;
  /// Returns one handle per region, which points at the source if there is no copy; or no handles:
  /// then all regions are read from the source.
  virtual std::vector<cache::Entry> locate(std::uint32_t column,
                                           std::span<const Region> regions) = 0;
};

/// Columns of fixed width, booleans, strings and binary data with offsets or as views, all with or
/// without nulls. Of dictionary columns the indices can be moved. Nested columns are read from the
/// source.
///
/// Ownership: owns the imported memory. Each array that a stream exports keeps the table and its
///            copies alive.
/// Threading: immutable.
class HEADRACE_API Table : public std::enable_shared_from_this<Table> {
 public:
  /// Regions shorter than this are read from the source: a copy takes whole pages.
  static constexpr Bytes kRegionMin = kib(4);

  /// Takes ownership of `stream`, reads it to its end and divides its batches into chunks of at
  /// most `rows_per_chunk` rows. No data is copied.
  ///
  /// Fails: invalid_argument if rows_per_chunk is 0, or the stream is released or not a struct;
  ///        io_failed if the stream fails; corrupt_data for an array that violates its format;
  ///        out_of_range for more than 2^32 - 1 chunks.
  [[nodiscard]] static Result<std::shared_ptr<const Table>> import_stream(
      ArrowArrayStream* stream, std::uint32_t rows_per_chunk);
  Table& operator=(Table&&) = delete;
  ~Table();

  [[nodiscard]] std::uint64_t row_count() const;
  [[nodiscard]] std::uint32_t chunk_count() const;
  [[nodiscard]] std::uint32_t chunk_rows(std::uint32_t chunk_index) const;
  [[nodiscard]] std::uint32_t column_count() const;
  [[nodiscard]] std::string_view column_name(std::uint32_t column) const;
  /// Bytes of the column that a prefetcher can move. For the strings of views each row is read, so
  /// they may be left out.
  [[nodiscard]] Bytes movable(std::uint32_t column, bool with_views = true) const;
  /// False for nested and other types that are read from the source.
  [[nodiscard]] bool is_movable(std::uint32_t column) const;
  /// Regions of one chunk, in buffer order.
  [[nodiscard]] std::span<const Region> regions(std::uint32_t chunk_index,
                                                std::uint32_t column) const;

  /// Writes to `out` a stream of `columns`, one batch per chunk, with the buffers that `reader`
  /// locates or, without a reader, the source. The caller releases it.
  ///
  /// Fails: out_of_range for a column that the table does not have.
  [[nodiscard]] Result<void> open_stream(std::vector<std::uint32_t> columns,
                                         std::shared_ptr<ChunkReader> reader,
                                         ArrowArrayStream* out) const;
  /// Drops the entries of all regions. Call it before destroying the table, for each cache that
  /// prefetched it.
  void invalidate(cache::Cache& cache) const;

 private:
  explicit Table(std::unique_ptr<TableContent> content);
  friend struct TableStream;
  std::unique_ptr<TableContent> content_;
};

}  // namespace headrace::query
