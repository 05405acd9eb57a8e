// SPDX-License-Identifier: Apache-2.0
// The cache and its entries. What runs without the GIL is marked by gil_scoped_release.
#include "headrace/cache/cache.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "bindings.hpp"

namespace headrace::python {
namespace {

using Placement = std::variant<std::uint32_t, std::string>;

cache::PlacementPolicy parse_placement(const Placement& placement) {
  if (const auto* node = std::get_if<std::uint32_t>(&placement)) {
    return cache::placement::on(NodeId(*node));
  }
  const std::string& policy = std::get<std::string>(placement);
  if (policy == "fastest") {
    return cache::placement::fastest;
  }
  if (policy == "local") {
    return cache::placement::local;
  }
  if (policy == "none") {
    return cache::placement::none;
  }
  throw Failed{Error{Code::invalid_argument, 0, "place copies by '" + policy + "'",
                     "there is no such placement", "use fastest, local, none or a node number"}};
}

/// The handle that Python has on an entry.
///
/// Ownership: holds the source, because data() may be the source for as long as it is used; and
/// the engine, because the move may still run.
/// Threading: shared. Its fields never change.
struct EntryHandle {
  // In this order: the entry goes first, its source after it, the engine last.
  std::shared_ptr<EngineHandle> engine;
  std::shared_ptr<Buffer> source;
  cache::Entry entry;
  std::weak_ptr<CacheHandle> cache;
};

bool try_wait(const EntryHandle& handle) {
  const bool ended = handle.entry.try_wait();
  if (const std::shared_ptr<CacheHandle> cache = handle.cache.lock(); ended && cache) {
    cache->reap();
  }
  return ended;
}

void wait(const EntryHandle& handle) {
  {
    const nb::gil_scoped_release released;
    handle.entry.wait();
  }
  static_cast<void>(try_wait(handle));
}

using View = nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<1>, nb::c_contig>;

View view(nb::handle_t<EntryHandle> self) {
  const EntryHandle& handle = nb::cast<const EntryHandle&>(self);
  // The entry is longer than what was asked for if the access found a longer one.
  const std::byte* const data = handle.entry.data().data();
  return View(data, {handle.source->bytes().size()}, self);
}

std::shared_ptr<CacheHandle> make_cache(const topo::Machine& machine,
                                        std::shared_ptr<EngineHandle> engine,
                                        std::uint64_t capacity_bytes, const Placement& placement,
                                        bool recycle) {
  cache::CacheOptions options;
  options.placement = parse_placement(placement);
  options.capacity_per_node = Bytes(capacity_bytes);
  if (recycle) options.memory = cache::recycled();
  auto made = value_of(cache::Cache::make(machine, engine->engine(), std::move(options)));
  return std::make_shared<CacheHandle>(std::move(engine), std::move(made));
}

std::shared_ptr<EntryHandle> access(const std::shared_ptr<CacheHandle>& handle, nb::handle source) {
  auto buffer = std::make_shared<Buffer>(source, Buffer::Use::read);
  const std::shared_ptr<cache::Cache> cache = handle->cache();
  cache::Entry entry = [&] {
    const nb::gil_scoped_release released;
    return cache->access(buffer->bytes());
  }();
  handle->keep(entry, buffer);
  return std::make_shared<EntryHandle>(
      EntryHandle{handle->engine(), std::move(buffer), std::move(entry), handle});
}

std::size_t flush(CacheHandle& handle, std::optional<std::uint32_t> node) {
  handle.reap();
  const std::shared_ptr<cache::Cache> cache = handle.cache();
  const nb::gil_scoped_release released;
  return cache->flush(node ? std::optional(NodeId(*node)) : std::nullopt);
}

std::size_t invalidate(const CacheHandle& handle, std::uintptr_t address, std::size_t byte_count) {
  // An address and not a buffer: it is also called for memory whose owner is just going away. The
  // GIL stays held, for then nobody else may run before the cache has let go of that memory.
  return handle.cache()->invalidate({reinterpret_cast<const std::byte*>(address), byte_count});
}

nb::dict statistics(CacheHandle& handle) {
  handle.reap();
  const cache::CacheStatistics totals = handle.cache()->statistics();
  nb::dict result;
  result["hits"] = totals.hits;
  result["misses"] = totals.misses;
  result["not_placed"] = totals.not_placed;
  result["refused"] = totals.refused;
  result["duplicates"] = totals.duplicates;
  result["moves_failed"] = totals.moves_failed;
  result["policy_errors"] = totals.policy_errors;
  result["evictions"] = totals.evictions;
  result["bytes_moved"] = totals.bytes_moved;
  result["bytes_cached"] = totals.bytes_cached;
  return result;
}

}  // namespace

std::shared_ptr<cache::Cache> CacheHandle::cache() const {
  if (!cache_) {
    throw Failed{Error{Code::closed, 0, "use the cache", "it has been closed", "make a new cache"}};
  }
  return cache_;
}

void CacheHandle::keep(cache::Entry entry, std::shared_ptr<Buffer> source) {
  reap();
  if (!entry.try_wait()) {
    moving_.push_back({std::move(source), std::move(entry)});
  }
}

void CacheHandle::lend(const void* address, std::shared_ptr<const void> owner) {
  loans_.insert_or_assign(address, std::move(owner));
}

void CacheHandle::reap() {
  // What goes has left moving_ before: letting go of a buffer may run Python code that comes here.
  const auto first_ended = std::partition(moving_.begin(), moving_.end(), [](const Moving& moving) {
    return !moving.entry->try_wait();
  });
  const std::vector<Moving> gone(std::make_move_iterator(first_ended),
                                 std::make_move_iterator(moving_.end()));
  moving_.erase(first_ended, moving_.end());
}

std::size_t CacheHandle::clear() {
  const std::shared_ptr<cache::Cache> held = cache();
  const Loans repaid = std::exchange(loans_, {});
  std::size_t count = 0;
  {
    const nb::gil_scoped_release released;
    count = held->clear();
  }
  reap();
  return count;
}

void CacheHandle::close() {
  std::shared_ptr<cache::Cache> cache = std::move(cache_);
  std::vector<Moving> moving = std::exchange(moving_, {});
  Loans loans = std::exchange(loans_, {});
  if (origin_.is_elsewhere()) {
    abandon(std::move(cache));
    abandon(std::move(moving));
    abandon(std::move(loans));
    return;
  }
  const nb::gil_scoped_release released;
  // If a call in another thread has the last reference, the cache ends with that call.
  cache.reset();
  for (Moving& each : moving) {
    each.entry.reset();  // The last handle stops the move and waits.
  }
}

void bind_cache(nb::module_& module) {
  nb::class_<EntryHandle>(module, "Entry")
      .def("wait", &wait)
      .def("try_wait", &try_wait)
      .def("cached", [](const EntryHandle& handle) { return handle.entry.cached(); })
      .def("node",
           [](const EntryHandle& handle) -> std::optional<std::uint32_t> {
             const std::optional<NodeId> node = handle.entry.node();
             return node ? std::optional(node->value()) : std::nullopt;
           })
      .def("view", &view);

  nb::class_<CacheHandle>(module, "Cache")
      .def_static("make", &make_cache, "machine"_a, "engine"_a, "capacity_bytes"_a, "placement"_a,
                  "recycle"_a)
      .def("access", &access, "source"_a)
      .def("flush", &flush, "node"_a.none())
      .def("invalidate", &invalidate, "address"_a, "byte_count"_a)
      .def("clear", &CacheHandle::clear)
      .def("close", &CacheHandle::close)
      .def("statistics", &statistics, nb::sig("def statistics(self) -> dict[str, int]"));
}

}  // namespace headrace::python
