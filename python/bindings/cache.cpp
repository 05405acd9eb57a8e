// SPDX-License-Identifier: Apache-2.0
// The cache and its entries. Code without the GIL is marked by GilReleased.
#include <nanobind/ndarray.h>

#include <iterator>
#include <stdexcept>
#include <variant>

#include "bindings.hpp"

namespace headrace::python {
namespace {

using NodeMap = std::map<NodeId, std::vector<NodeId>>;
using Placement = std::variant<NodeId, std::string, NodeMap, nb::object>;

cache::PlacementPolicy parse_node_map(const NodeMap& map) {
  std::vector<std::pair<NodeId, cache::Placement>> places;
  for (const auto& [caller, nodes] : map) {
    if (nodes.size() > cache::Placement::kNodeMax) {
      throw Failed{Error{Code::invalid_argument, 0, "place copies by the map of a cache",
                         "node " + std::to_string(caller.value()) + " has " +
                             std::to_string(nodes.size()) + " places",
                         "name the best " + std::to_string(cache::Placement::kNodeMax)}};
    }
    places.emplace_back(caller, std::span<const NodeId>(nodes));
  }
  return cache::placement::map(std::move(places));
}

/// True while this thread runs a Python function that chooses movers or places.
thread_local bool in_policy_function = false;

/// Fails: Failed, in such a function, which an access would call recursively.
void refuse_in_policy_function() {
  if (!in_policy_function) return;
  throw Failed{Error{Code::invalid_argument, 0, "access the cache",
                     "a function that chooses for a cache may not access a cache",
                     "let it choose by its context alone"}};
}

/// A Python function that chooses movers or places. Takes the fields of headrace.MoveContext or
/// headrace.PlacementContext in order and returns a list of indexes or nodes.
///
/// Threading: shared. Called and destroyed on any thread, with the GIL or without.
class PolicyFunction {
 public:
  explicit PolicyFunction(nb::object function)
      : function_(new nb::object(std::move(function)), [](nb::object* object) {
          if (!nb::is_alive()) return;
          const GilAcquired acquired;
          delete object;
        }) {}

  /// Fails: throws after reporting the error to sys.unraisablehook.
  void operator()(const engine::MoveContext& context, engine::MoverChoice& choice) const {
    const auto chosen = call<std::size_t>([&] {
      nb::list names;
      nb::list loads;
      for (std::size_t i = 0; i < context.movers.size(); ++i) {
        names.append(context.movers[i].name);
        loads.append(context.loads(i));
      }
      return (*function_)(names, loads, context.source_node, context.target_node,
                          context.caller_node, context.byte_count, context.sequence);
    });
    for (const std::size_t index : chosen) choice.add(index);
  }

  /// Fails: as above.
  cache::Placement operator()(const cache::PlacementContext& context) const {
    const std::vector<NodeId> nodes = call<NodeId>([&] {
      return (*function_)(context.caller_node,
                          reinterpret_cast<std::uintptr_t>(context.source.data()),
                          context.source.size());
    });
    return std::span(nodes);
  }

 private:
  struct Asking {
    Asking() { in_policy_function = true; }
    ~Asking() { in_policy_function = false; }
    Asking& operator=(Asking&&) = delete;
  };

  template <typename Chosen, typename Ask>
  [[nodiscard]] std::vector<Chosen> call(const Ask& ask) const {
    const GilAcquired acquired;
    const InCall in_call;
    try {
      const Asking asking;
      return entering_python([&] { return nb::cast<std::vector<Chosen>>(ask()); });
    } catch (nb::python_error& error) {
      error.restore();
      PyErr_WriteUnraisable(function_->ptr());
      throw std::runtime_error("a function that chooses for a cache raised an exception");
    }
  }

  std::shared_ptr<nb::object> function_;
};

cache::PlacementPolicy parse_placement(const Placement& placement) {
  if (const auto* node = std::get_if<NodeId>(&placement)) return cache::placement::on(*node);
  if (const auto* map = std::get_if<NodeMap>(&placement)) return parse_node_map(*map);
  if (const auto* own = std::get_if<nb::object>(&placement)) return PolicyFunction(*own);
  const std::string& policy = std::get<std::string>(placement);
  if (policy == "fastest") return cache::placement::fastest;
  if (policy == "local") return cache::placement::local;
  if (policy == "none") return cache::placement::none;
  throw Failed{Error{Code::invalid_argument, 0, "place copies by '" + policy + "'",
                     "there is no such placement",
                     "use fastest, local, none, a node number, a map of them, or a function"}};
}

/// Python's handle on an entry.
///
/// Ownership: holds the source, because data() may return it; and the engine, because the move may
/// still run.
/// Threading: shared. Its fields never change.
struct EntryHandle {
  // Destroyed in reverse order: the entry before its source, the engine last.
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

/// Fails: Failed, in a callback: this thread may be the one that must end the awaited job.
void refuse_in_call() {
  if (!is_in_call()) return;
  throw Failed{Error{Code::invalid_argument, 0, "wait for the cache",
                     "a callback of a job or the cache may not wait for it",
                     "call access or pin there; wait, change, write back and drop elsewhere"}};
}

/// Guards a function of Python that waits.
struct RefusedInCall {
  RefusedInCall() { refuse_in_call(); }
};

void wait(const EntryHandle& handle) {
  // Not cached(): the cache must let go of the source also where the copy has just ended.
  if (try_wait(handle)) return;
  refuse_in_call();
  wait_interruptibly(std::nullopt, [&](std::chrono::nanoseconds time_max) {
    return handle.entry.wait_for(time_max);
  });
  static_cast<void>(try_wait(handle));
}

using View = nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<1>, nb::c_contig>;

View view(nb::handle_t<EntryHandle> self) {
  const EntryHandle& handle = nb::cast<const EntryHandle&>(self);
  const std::byte* data = nullptr;
  if (handle.entry.cached()) {
    data = handle.entry.data().data();
  } else {
    // data() may write back, and wait for a thread that does.
    const GilReleased released;
    data = handle.entry.data().data();
  }
  return View(data, {handle.source->bytes().size()}, self);
}

using ParsedHint = std::optional<std::variant<std::uint32_t, std::string>>;

cache::Hint parse_hint(const ParsedHint& hint) {
  if (!hint.has_value()) return {};
  if (const auto* region_count = std::get_if<std::uint32_t>(&*hint)) {
    return cache::Hint::after(*region_count);
  }
  const std::string& text = std::get<std::string>(*hint);
  if (text == "once") return cache::Hint::once();
  if (text == "many") return cache::Hint::many();
  throw Failed{Error{Code::invalid_argument, 0, "take '" + text + "' as a hint",
                     "there is no such hint",
                     "use once, many or the number of regions that come before it"}};
}

/// Python's handle on a change.
///
/// Ownership: holds the source and the copy, which views may use after the change has ended.
/// Threading: shared; `change` is guarded by the GIL.
struct ChangeHandle {
  // Destroyed in reverse order: the change first.
  std::shared_ptr<EngineHandle> engine;
  std::shared_ptr<Buffer> source;
  cache::Entry entry;
  std::span<std::byte> data;
  std::optional<cache::Change> change;

  void end() {
    std::optional<cache::Change> ending = std::exchange(change, std::nullopt);
    const GilReleased released;
    ending.reset();
  }
};

using WritableView = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>, nb::c_contig>;

WritableView view_of_change(nb::handle_t<ChangeHandle> self) {
  const ChangeHandle& handle = nb::cast<const ChangeHandle&>(self);
  return WritableView(handle.data.data(), {handle.data.size()}, self);
}

std::shared_ptr<CacheHandle> make_cache(const topo::Machine& machine,
                                        std::shared_ptr<EngineHandle> engine,
                                        std::uint64_t capacity_bytes, const Placement& placement,
                                        const std::string& eviction, bool recycle, bool huge,
                                        const nb::object& mover, bool into_cache) {
  cache::CacheOptions options;
  options.placement = parse_placement(placement);
  options.capacity_per_node = Bytes(capacity_bytes);
  options.eviction = value_of(parse_name<cache::Eviction>(eviction, "policy of eviction"));
  options.into_cache = into_cache;
  const bool has_mover_function = !mover.is_none() && !nb::isinstance<nb::str>(mover);
  if (has_mover_function) {
    options.mover = PolicyFunction(mover);
  } else if (!mover.is_none()) {
    options.mover = policy_of(nb::cast<std::string>(mover));
  }
  if (huge) options.memory = cache::huge_pages();
  if (recycle) {
    options.memory =
        cache::recycled(huge ? std::move(options.memory) : cache::operating_system_pages());
  }
  auto made = value_of(cache::Cache::make(machine, engine->engine(), std::move(options)));
  auto handle = std::make_shared<CacheHandle>(std::move(engine), std::move(made));
  handle->has_policy_function = has_mover_function || std::holds_alternative<nb::object>(placement);
  return handle;
}

std::shared_ptr<EntryHandle> access(const std::shared_ptr<CacheHandle>& handle, nb::handle source,
                                    const ParsedHint& hint, bool weak) {
  refuse_in_policy_function();
  handle->forget_postponed();
  const cache::Hint known = parse_hint(hint);
  auto buffer = std::make_shared<Buffer>(source, Buffer::Use::read);
  const std::shared_ptr<cache::Cache> cache = handle->cache();
  cache::Entry entry = without_gil([&] {
    return weak ? cache->access_weak(buffer->bytes(), known)
                : cache->access(buffer->bytes(), known);
  });
  handle->keep({&entry, 1}, {&buffer, 1});
  return std::make_shared<EntryHandle>(
      EntryHandle{handle->engine(), std::move(buffer), std::move(entry), handle});
}

std::vector<std::shared_ptr<EntryHandle>> access_many(const std::shared_ptr<CacheHandle>& handle,
                                                      const std::vector<nb::object>& sources,
                                                      const ParsedHint& hint) {
  refuse_in_policy_function();
  handle->forget_postponed();
  const cache::Hint known = parse_hint(hint);
  std::vector<std::shared_ptr<Buffer>> buffers;
  std::vector<std::span<const std::byte>> regions;
  for (const nb::object& source : sources) {
    buffers.push_back(std::make_shared<Buffer>(source, Buffer::Use::read));
    regions.push_back(buffers.back()->bytes());
  }
  const std::shared_ptr<cache::Cache> cache = handle->cache();
  std::vector<cache::Entry> entries =
      without_gil([&] { return cache->access_many(regions, known); });
  std::vector<std::shared_ptr<EntryHandle>> made;
  handle->keep(entries, buffers);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    made.push_back(std::make_shared<EntryHandle>(
        EntryHandle{handle->engine(), std::move(buffers[i]), std::move(entries[i]), handle}));
  }
  return made;
}

std::shared_ptr<ChangeHandle> change(const std::shared_ptr<CacheHandle>& handle, nb::handle source,
                                     const ParsedHint& hint) {
  handle->forget_postponed();
  const cache::Hint known = parse_hint(hint);
  auto buffer = std::make_shared<Buffer>(source, Buffer::Use::write);
  const std::shared_ptr<cache::Cache> cache = handle->cache();
  cache::Change change =
      without_gil([&] { return value_of(cache->change(buffer->writable_bytes(), known)); });
  const cache::Entry entry = change.entry();
  const std::span<std::byte> data = change.data();
  return std::make_shared<ChangeHandle>(
      ChangeHandle{handle->engine(), std::move(buffer), entry, data, std::move(change)});
}

std::uint64_t write_back(CacheHandle& handle, const EntryHandle* entry) {
  handle.reap();
  const std::shared_ptr<cache::Cache> cache = handle.cache();
  const GilReleased released;
  const Result<Bytes> written =
      entry != nullptr ? cache->write_back(entry->entry) : cache->write_back();
  return value_of(written).count();
}

std::size_t pin(const CacheHandle& handle, nb::handle source, bool pinned) {
  const Buffer buffer(source, Buffer::Use::read);
  const std::shared_ptr<cache::Cache> cache = handle.cache();
  return pinned ? cache->pin(buffer.bytes()) : cache->unpin(buffer.bytes());
}

std::size_t flush(CacheHandle& handle, std::optional<NodeId> node) {
  handle.reap();
  const std::shared_ptr<cache::Cache> cache = handle.cache();
  const GilReleased released;
  return cache->flush(node);
}

std::size_t invalidate(const CacheHandle& handle, nb::handle source) {
  const Buffer buffer(source, Buffer::Use::read);
  const std::shared_ptr<cache::Cache> cache = handle.cache();
  const GilReleased released;
  return cache->invalidate(buffer.bytes());
}

nb::dict statistics(CacheHandle& handle) {
  handle.reap();
  const cache::CacheStatistics totals = handle.statistics();
  using T = cache::CacheStatistics;
  return members_of<&T::hits, &T::misses, &T::not_placed, &T::refused, &T::weak_hits,
                    &T::weak_misses, &T::duplicates, &T::moves_failed, &T::late_writes,
                    &T::bytes_kept, &T::bad_sources, &T::policy_errors, &T::evictions,
                    &T::bytes_moved, &T::write_backs, &T::bytes_written_back, &T::waits,
                    &T::waited_ns, &T::bytes_cached>(totals);
}

}  // namespace

std::shared_ptr<cache::Cache> CacheHandle::cache() const {
  if (!cache_) {
    throw Failed{Error{Code::closed, 0, "use the cache", "it has been closed", "make a new cache"}};
  }
  return cache_;
}

cache::CacheStatistics CacheHandle::statistics() const {
  return cache_ ? cache_->statistics() : last_statistics_;
}

void CacheHandle::keep(std::span<const cache::Entry> entries,
                       std::span<const std::shared_ptr<Buffer>> sources) {
  reap();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (!entries[i].try_wait()) moving_.push_back({sources[i], entries[i]});
  }
}

void CacheHandle::keep_owner(const void* address, std::shared_ptr<const void> owner) {
  owners_.insert_or_assign(address, std::move(owner));
}

void CacheHandle::forget(std::uintptr_t address, std::size_t byte_count) {
  const std::span memory(reinterpret_cast<const std::byte*>(address), byte_count);
  const std::shared_ptr<cache::Cache> cache = this->cache();
  if (!has_policy_function) {
    // With the GIL, so that no other Python thread runs before the entries are dropped.
    cache->invalidate(memory);
  } else if (in_policy_function) {
    // The holder of the cache's locks may be waiting for the access that called the function.
    postponed_.emplace_back(address, byte_count);
  } else {
    const GilReleased released;
    cache->invalidate(memory);
  }
}

void CacheHandle::forget_postponed() {
  while (!postponed_.empty() && !in_policy_function) {
    const auto [address, byte_count] = postponed_.back();
    postponed_.pop_back();
    forget(address, byte_count);
  }
}

void CacheHandle::reap() {
  drop_if(moving_, [](const Moving& moving) { return moving.entry->try_wait(); });
}

std::size_t CacheHandle::clear() {
  const std::shared_ptr<cache::Cache> held = cache();
  const Loans released = std::exchange(owners_, {});
  const std::size_t count = without_gil([&] { return held->clear(); });
  reap();
  return count;
}

void CacheHandle::close() {
  std::shared_ptr<cache::Cache> cache = std::move(cache_);
  std::vector<Moving> moving = std::exchange(moving_, {});
  Loans loans = std::exchange(owners_, {});
  if (origin_.is_elsewhere()) {
    abandon(std::move(cache));
    abandon(std::move(moving));
    abandon(std::move(loans));
    return;
  }
  const GilReleased released;
  // A call in another thread may hold the last reference and destroy the cache later; but changes
  // must be written back before the source may be freed.
  if (cache) static_cast<void>(cache->clear());
  for (Moving& each : moving) {
    each.entry.reset();  // The last handle stops the move and waits.
  }
  // Only now: copies held by these handles would be counted.
  if (cache) last_statistics_ = cache->statistics();
  cache.reset();
}

void bind_cache(nb::module_& module) {
  nb::class_<EntryHandle>(module, "Entry")
      .def("wait", &wait)
      .def("try_wait", &try_wait)
      .def("changed", [](const EntryHandle& handle) { return handle.entry.changed(); })
      .def("cached", [](const EntryHandle& handle) { return handle.entry.cached(); })
      .def("node", [](const EntryHandle& handle) { return handle.entry.node(); })
      .def("view", &view);

  nb::class_<ChangeHandle>(module, "Change")
      .def("end", &ChangeHandle::end)
      .def("cached", [](const ChangeHandle& handle) { return handle.entry.cached(); })
      .def("view", &view_of_change);

  nb::class_<CacheHandle>(module, "Cache")
      .def_static("make", &make_cache, "machine"_a, "engine"_a, nb::kw_only(), "capacity_bytes"_a,
                  "placement"_a, "eviction"_a, "recycle"_a, "huge_pages"_a, "mover"_a.none(),
                  "into_cache"_a)
      .def("access", &access, "source"_a, "hint"_a.none(), "weak"_a)
      .def("access_many", &access_many, "sources"_a, "hint"_a.none())
      .def("change", &change, "source"_a, "hint"_a.none(), nb::call_guard<RefusedInCall>())
      .def("write_back", &write_back, "entry"_a.none(), nb::call_guard<RefusedInCall>())
      .def("pin", &pin, "source"_a, "pinned"_a)
      .def("flush", &flush, "node"_a.none(), nb::call_guard<RefusedInCall>())
      .def("invalidate", &invalidate, "source"_a, nb::call_guard<RefusedInCall>())
      .def("forget", &CacheHandle::forget, "address"_a, "byte_count"_a)
      .def("clear", &CacheHandle::clear, nb::call_guard<RefusedInCall>())
      .def("close", &CacheHandle::close, nb::call_guard<RefusedInCall>())
      .def("statistics", &statistics, nb::sig("def statistics(self) -> dict[str, int]"));
}

}  // namespace headrace::python
