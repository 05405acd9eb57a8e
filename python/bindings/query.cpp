// SPDX-License-Identifier: Apache-2.0
// Tables of Arrow columns and their prefetcher; memory on a node.
#include <nanobind/ndarray.h>

#include <set>
#include <tuple>

#include "bindings.hpp"
#include "headrace/platform/memory.hpp"
#include "headrace/query/prefetcher.hpp"
#include "headrace/query/table.hpp"

namespace headrace::python {
namespace {

constexpr const char* kStreamCapsule = "arrow_array_stream";

/// Makes a capsule of the Arrow PyCapsule interface. `open` writes the stream.
template <typename Open>
nb::object stream_capsule(const Open& open) {
  auto stream = std::make_unique<ArrowArrayStream>();
  value_of(open(stream.get()));
  const auto free = [](PyObject* capsule) {
    const std::unique_ptr<ArrowArrayStream> held(
        static_cast<ArrowArrayStream*>(PyCapsule_GetPointer(capsule, kStreamCapsule)));
    if (held != nullptr && held->release != nullptr) held->release(held.get());
  };
  nb::object capsule = nb::steal(PyCapsule_New(stream.get(), kStreamCapsule, free));
  if (!capsule.is_valid()) {
    stream->release(stream.get());
    nb::raise_python_error();
  }
  static_cast<void>(stream.release());  // Owned by the capsule.
  return capsule;
}

using TablePointer = std::shared_ptr<query::Table>;

/// Not a pointer to const, which nanobind does not support.
TablePointer import_table(const nb::handle& capsule, std::uint32_t rows_per_chunk) {
  auto* const stream =
      static_cast<ArrowArrayStream*>(PyCapsule_GetPointer(capsule.ptr(), kStreamCapsule));
  if (stream == nullptr) nb::raise_python_error();
  const GilReleased released;
  return std::const_pointer_cast<query::Table>(
      value_of(query::Table::import_stream(stream, rows_per_chunk)));
}

/// Table, filter columns, other columns, excluded chunks.
using ScanTuple = std::tuple<TablePointer, std::vector<std::uint32_t>, std::vector<std::uint32_t>,
                             std::vector<bool>>;

/// A prefetcher, and the tables whose copies its cache may hold afterwards.
///
/// Threading: shared.
class PrefetcherHandle {
 public:
  PrefetcherHandle(std::shared_ptr<CacheHandle> cache, const std::vector<ScanTuple>& scans,
                   bool is_spare)
      : is_following_(scans.empty()), cache_(std::move(cache)) {
    query::Plan plan;
    plan.reserve(scans.size());
    for (const auto& [table, filter_columns, other_columns, excluded_chunks] : scans) {
      plan.push_back({table, filter_columns, other_columns, excluded_chunks});
      keep(table);
    }
    const std::shared_ptr<cache::Cache> held = cache_->cache();
    const GilReleased released;
    prefetcher_ = value_of(query::Prefetcher::start(
        held, std::move(plan), is_spare ? query::Pace::spare : query::Pace::full));
  }
  PrefetcherHandle& operator=(PrefetcherHandle&&) = delete;
  ~PrefetcherHandle() { stop(); }

  /// Streams add what is copied.
  [[nodiscard]] bool is_following() const { return is_following_; }
  [[nodiscard]] query::Prefetcher& prefetcher() const { return *prefetcher_; }
  void stop() {
    {
      const GilReleased released;
      prefetcher_->stop();
    }
    // Again, because the cache may have been cleared and refilled meanwhile.
    for (const TablePointer& table : tables_) cache_->keep_owner(table.get(), table);
    tables_.clear();
  }
  void keep(const TablePointer& table) {
    cache_->keep_owner(table.get(), table);
    tables_.insert(table);
  }

 private:
  const bool is_following_;
  std::shared_ptr<CacheHandle> cache_;
  std::set<TablePointer> tables_;
  std::unique_ptr<query::Prefetcher> prefetcher_;
};

nb::dict dict_of(const query::ColumnStatistics& column) {
  using C = query::ColumnStatistics;
  Fields result =
      members_of<&C::bytes_from_copies, &C::bytes_from_source, &C::chunks_ahead>(column);
  result["lead_ns"] = column.lead.count();
  return result;
}

nb::dict statistics_of(const query::Prefetcher& prefetcher) {
  const query::PrefetchStatistics statistics = prefetcher.statistics();
  nb::list scans;
  for (const query::ScanStatistics& scan : statistics.scans) {
    nb::list columns;
    for (const query::ColumnStatistics& column : scan.columns) columns.append(dict_of(column));
    using S = query::ScanStatistics;
    Fields described = members_of<&S::chunks_submitted, &S::chunks_skipped, &S::chunks_read>(scan);
    described["columns"] = columns;
    scans.append(described);
  }
  nb::dict result;
  result["scans"] = scans;
  result["unplanned"] = dict_of(statistics.unplanned);
  result["copies_by_node"] = statistics.copies_by_node;
  return result;
}

/// Memory and the source that frees it.
using NodeMemory = std::pair<std::shared_ptr<cache::MemorySource>, std::span<std::byte>>;

void bind_table(nb::module_& module) {
  nb::class_<query::Table>(module, "Table")
      .def_static("import_stream", &import_table, "capsule"_a, "rows_per_chunk"_a)
      .def("chunk_count", &query::Table::chunk_count)
      .def("chunk_rows", &query::Table::chunk_rows, "chunk_index"_a)
      .def(
          "movable_bytes",
          [](const query::Table& table, std::uint32_t column, bool with_views) {
            return table.movable(column, with_views).count();
          },
          "column"_a, "with_views"_a)
      .def("is_movable", &query::Table::is_movable, "column"_a)
      .def(
          "addresses",
          [](const query::Table& table, std::uint32_t column,
             std::optional<std::uint32_t> chunk_count) {
            std::vector<std::pair<std::uintptr_t, std::size_t>> found;
            const std::uint32_t end = std::min(table.chunk_count(), chunk_count.value_or(-1));
            for (std::uint32_t chunk = 0; chunk < end; ++chunk) {
              for (const query::Region& region : table.regions(chunk, column)) {
                found.emplace_back(reinterpret_cast<std::uintptr_t>(region.bytes.data()),
                                   region.bytes.size());
              }
            }
            return found;
          },
          "column"_a, "chunk_count"_a = nb::none(),
          "Address and length of each region of the first chunks.")
      .def(
          "stream",
          [](const query::Table& table, const std::vector<std::uint32_t>& columns) {
            return stream_capsule(
                [&](ArrowArrayStream* out) { return table.open_stream(columns, nullptr, out); });
          },
          "columns"_a, "A capsule of an Arrow stream over the source.")
      .def(
          "leave",
          [](const TablePointer& table, CacheHandle& cache_handle) {
            const std::shared_ptr<cache::Cache> cache = cache_handle.cache();
            {
              const GilReleased released;
              table->invalidate(*cache);
            }
            cache_handle.release_owner(table.get());
          },
          "cache"_a, "Drops the copies of the table, so that it can be freed.");

  nb::class_<PrefetcherHandle>(module, "Prefetcher")
      .def(nb::init<std::shared_ptr<CacheHandle>, const std::vector<ScanTuple>&, bool>(), "cache"_a,
           "scans"_a, "is_spare"_a = false)
      .def(
          "stream",
          [](PrefetcherHandle& handle, const TablePointer& table,
             const std::vector<std::uint32_t>& columns) {
            if (handle.is_following()) handle.keep(table);
            return stream_capsule([&](ArrowArrayStream* out) {
              return handle.prefetcher().open_stream(table, columns, out);
            });
          },
          "table"_a, "columns"_a, "A capsule of an Arrow stream over the copies that exist.")
      .def(
          "expects",
          [](const PrefetcherHandle& handle, const query::Table& table,
             const std::vector<std::uint32_t>& columns) {
            return handle.prefetcher().expects(table, columns);
          },
          "table"_a, "columns"_a)
      .def("finish",
           [](const PrefetcherHandle& handle) {
             const GilReleased released;
             handle.prefetcher().finish();
           })
      .def("stop", &PrefetcherHandle::stop)
      .def(
          "statistics",
          [](const PrefetcherHandle& handle) { return statistics_of(handle.prefetcher()); },
          nb::sig("def statistics(self) -> dict[str, typing.Any]"));
}

}  // namespace

void bind_query(nb::module_& module) {
  bind_table(module);
  module.def(
      "node_of_address",
      [](std::uintptr_t address) {
        return platform::node_of_address(reinterpret_cast<const void*>(address));
      },
      "address"_a, "Node that the page of an address lies on; None if that is not known.");
  module.def(
      "node_memory",
      [](std::size_t byte_count, NodeId node) {
        const std::size_t page = platform::page_bytes();
        const std::size_t whole = (std::max<std::size_t>(byte_count, 1) + page - 1) / page * page;
        // The cache's source prefaults the pages, so that a full node fails here.
        auto held = std::make_unique<NodeMemory>();
        held->first = cache::operating_system_pages();
        held->second = value_of(held->first->allocate(whole, node));
        std::byte* const data = held->second.data();
        const nb::capsule owner(held.get(), [](void* pointer) noexcept {
          const std::unique_ptr<NodeMemory> freed(static_cast<NodeMemory*>(pointer));
          freed->first->free(freed->second);
        });
        static_cast<void>(held.release());  // Owned by the capsule.
        return nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>(data, {byte_count}, owner);
      },
      "byte_count"_a, "node"_a, "Memory on a node, with its pages present.");
}

}  // namespace headrace::python
