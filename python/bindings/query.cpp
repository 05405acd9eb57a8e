// SPDX-License-Identifier: Apache-2.0
// TPC-H query 6 on NumPy arrays, which are read where they lie.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <optional>
#include <string>

#include "bindings.hpp"
#include "headrace/platform/memory.hpp"
#include "headrace/query/q6.hpp"

namespace headrace::python {
namespace {

template <typename T>
using Column = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename T>
std::span<const T> span_of(const Column<T>& column) {
  return {column.data(), column.size()};
}

query::Prefetch parse_prefetch(const std::string& text) {
  for (const auto prefetch :
       {query::Prefetch::off, query::Prefetch::on, query::Prefetch::automatic}) {
    if (text == query::name(prefetch)) {
      return prefetch;
    }
  }
  throw Failed{Error{Code::invalid_argument, 0, "prefetch by '" + text + "'",
                     "there is no such mode", "use off, on or automatic"}};
}

nb::dict run_q6(const topo::Machine& machine, CacheHandle* cache_handle,
                const Column<std::int32_t>& ship_date, const Column<std::int64_t>& discount,
                const Column<std::int64_t>& quantity, const Column<std::int64_t>& extended_price,
                const std::string& prefetch, std::uint64_t chunk_bytes, std::size_t thread_count,
                bool record_timeline) {
  const query::Q6Columns columns{span_of(ship_date), span_of(discount), span_of(quantity),
                                 span_of(extended_price)};
  query::Q6Options options;
  options.prefetch = parse_prefetch(prefetch);
  options.chunk = Bytes(chunk_bytes);
  options.thread_count = thread_count;
  options.record_timeline = record_timeline;
  const std::shared_ptr<cache::Cache> cache =
      cache_handle != nullptr ? cache_handle->cache() : nullptr;
  if (cache_handle != nullptr && options.prefetch != query::Prefetch::off) {
    // Moves may outlive the query.
    for (const auto* column : {&discount, &extended_price}) {
      cache_handle->lend(column->data(), std::make_shared<Column<std::int64_t>>(*column));
    }
  }
  const query::Q6Result answer = value_of([&] {
    const nb::gil_scoped_release released;
    return query::run_q6(machine, cache.get(), columns, query::Q6Parameters{}, options);
  }());

  nb::list timeline;
  for (const query::Q6Event& event : answer.timeline) {
    nb::dict made;
    made["pipeline"] = query::name(event.pipeline);
    made["worker_index"] = event.worker_index;
    made["chunk_index"] = event.chunk_index;
    made["begin_ns"] = event.begin.count();
    made["end_ns"] = event.end.count();
    timeline.append(made);
  }
  nb::dict result;
  result["revenue"] = answer.revenue;
  result["rows_selected"] = answer.rows_selected;
  result["time_ns"] = answer.time.count();
  result["prefetched"] = answer.prefetched;
  result["chunks_from_cache"] = answer.chunks_from_cache;
  result["chunks_from_source"] = answer.chunks_from_source;
  result["timeline"] = timeline;
  return result;
}

}  // namespace

void bind_query(nb::module_& module) {
  module.def("run_q6", &run_q6, "machine"_a, "cache"_a.none(), "ship_date"_a.noconvert(),
             "discount"_a.noconvert(), "quantity"_a.noconvert(), "extended_price"_a.noconvert(),
             nb::kw_only(), "prefetch"_a, "chunk_bytes"_a, "thread_count"_a, "record_timeline"_a,
             nb::sig("def run_q6(machine: Machine, cache: Cache | None, "
                     "ship_date: numpy.typing.NDArray[numpy.int32], "
                     "discount: numpy.typing.NDArray[numpy.int64], "
                     "quantity: numpy.typing.NDArray[numpy.int64], "
                     "extended_price: numpy.typing.NDArray[numpy.int64], *, prefetch: str, "
                     "chunk_bytes: int, thread_count: int, record_timeline: bool) "
                     "-> dict[str, typing.Any]"));
  module.def(
      "node_of_address",
      [](std::uintptr_t address) -> std::optional<std::uint32_t> {
        const auto node = platform::node_of_address(reinterpret_cast<const void*>(address));
        return node ? std::optional(node->value()) : std::nullopt;
      },
      "address"_a, "Node that the page of an address lies on; None if that is not known.");
}

}  // namespace headrace::python
