// SPDX-License-Identifier: Apache-2.0
// The extension module headrace_lab._lab: TPC-H query 6 on NumPy arrays, read in place, and the
// crash check of rings. It has no copy of the library: it uses the one in headrace._core, because
// caches, engines and profiles belong to a copy.
#include <nanobind/ndarray.h>

#include <tuple>

#include "bindings.hpp"
#include "headrace/lab/q6.hpp"
#include "headrace/lab/ring_check.hpp"

namespace headrace::python {
namespace {

template <typename T>
using Column = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename T>
std::span<const T> span_of(const Column<T>& column) {
  return {column.data(), column.size()};
}

nb::dict run_q6(const topo::Machine& machine, CacheHandle* cache_handle,
                const Column<std::int32_t>& ship_date, const Column<std::int64_t>& discount,
                const Column<std::int64_t>& quantity, const Column<std::int64_t>& extended_price,
                const std::string& prefetch, std::uint64_t chunk_bytes, std::size_t thread_count,
                bool record_timeline) {
  const query::lab::Q6Columns columns{span_of(ship_date), span_of(discount), span_of(quantity),
                                      span_of(extended_price)};
  query::lab::Q6Options options;
  options.prefetch = value_of(parse_name<query::lab::Prefetch>(prefetch, "mode"));
  options.chunk = Bytes(chunk_bytes);
  options.thread_count = thread_count;
  options.record_timeline = record_timeline;
  const std::shared_ptr<cache::Cache> cache =
      cache_handle != nullptr ? cache_handle->cache() : nullptr;
  if (cache_handle != nullptr && options.prefetch != query::lab::Prefetch::off) {
    // Moves may outlive the query.
    for (const auto* column : {&discount, &extended_price}) {
      cache_handle->keep_owner(column->data(), std::make_shared<Column<std::int64_t>>(*column));
    }
  }
  const query::lab::Q6Result answer = value_of([&] {
    const GilReleased released;
    return query::lab::run_q6(machine, cache.get(), columns, query::lab::Q6Parameters{}, options);
  }());

  nb::list timeline;
  for (const query::lab::Q6Event& event : answer.timeline) {
    using E = query::lab::Q6Event;
    Fields made = members_of<&E::pipeline, &E::worker_index, &E::chunk_index>(event);
    made["begin_ns"] = event.begin.count();
    made["end_ns"] = event.end.count();
    timeline.append(made);
  }
  using R = query::lab::Q6Result;
  Fields result = members_of<&R::revenue, &R::rows_selected, &R::prefetched, &R::chunks_from_cache,
                             &R::chunks_from_source, &R::copies_by_node>(answer);
  result["time_ns"] = answer.time.count();
  result["timeline"] = timeline;
  return result;
}

nb::dict check(const std::string& subject, std::size_t entry_count, std::uint64_t states,
               std::uint64_t seed, bool stop_at_first, const nb::callable& progress) {
  pmem::lab::CheckOptions options{.entry_count = entry_count,
                                  .states_per_moment_max = states,
                                  .seed = seed,
                                  .stop_at_first = stop_at_first};
  bool interrupted = false;
  options.progress = [&](double share) {
    const GilAcquired acquired;
    try {
      entering_python([&] { return progress(share); });
    } catch (nb::python_error& error) {
      error.restore();
      interrupted = true;
      return false;
    }
    return true;
  };
  const pmem::lab::CheckReport report =
      without_gil([&] { return value_of(pmem::lab::check_subject(subject, options)); });
  if (interrupted) throw nb::python_error();
  using R = pmem::lab::CheckReport;
  Fields result = members_of<&R::states_tried, &R::states_bad, &R::moments, &R::moments_exhaustive,
                             &R::runs, &R::second_crashes, &R::first_bad>(report);
  using W = pmem::Waste;
  add_members<&W::clean_flushes, &W::needless_drains, &W::partial_blocks, &W::blocks>(result,
                                                                                      report.waste);
  result["waste"] = report.waste.details;
  return result;
}

}  // namespace
}  // namespace headrace::python

NB_MODULE(_lab, module) {
  using namespace headrace::python;
  module.doc() = "Bindings of the laboratory; use headrace_lab instead.";
  // Its classes and the translator of its errors serve this module, too.
  nb::module_::import_("headrace._core");
  module.def(
      "run_q6", &run_q6, "machine"_a, "cache"_a.none(), "ship_date"_a.noconvert(),
      "discount"_a.noconvert(), "quantity"_a.noconvert(), "extended_price"_a.noconvert(),
      nb::kw_only(), "prefetch"_a, "chunk_bytes"_a, "thread_count"_a, "record_timeline"_a,
      nb::sig("def run_q6(machine: headrace._core.Machine, cache: headrace._core.Cache | None, "
              "ship_date: numpy.typing.NDArray[numpy.int32], "
              "discount: numpy.typing.NDArray[numpy.int64], "
              "quantity: numpy.typing.NDArray[numpy.int64], "
              "extended_price: numpy.typing.NDArray[numpy.int64], *, prefetch: str, "
              "chunk_bytes: int, thread_count: int, record_timeline: bool) "
              "-> dict[str, typing.Any]"));
  module.def("check_subjects", [] {
    std::vector<std::tuple<std::string, std::string, bool>> subjects;
    for (const headrace::pmem::lab::CheckSubject& subject : headrace::pmem::lab::check_subjects()) {
      subjects.emplace_back(subject.name, subject.summary, subject.sound);
    }
    return subjects;
  });
  module.def("check_subject", &check, "name"_a, nb::kw_only(), "entry_count"_a, "states"_a,
             "seed"_a, "stop_at_first"_a, "progress"_a,
             nb::sig("def check_subject(name: str, *, entry_count: int, states: int, seed: int, "
                     "stop_at_first: bool, progress: collections.abc.Callable[[float], None]) -> "
                     "dict[str, typing.Any]"));
}
