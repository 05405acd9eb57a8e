// SPDX-License-Identifier: Apache-2.0
// The cache of headrace.h, implemented by the C++ cache.
#include "headrace/cache/cache.hpp"

#include "common.hpp"
#include "headrace/engine/engine.hpp"

namespace {

using headrace::Bytes;
using headrace::Code;
using headrace::fail;
using headrace::NodeId;
using headrace::Result;
using headrace::c::make_for_c;
using headrace::c::object_of;
using headrace::c::read_options;
using headrace::cache::Cache;
using headrace::cache::Entry;

static_assert(sizeof(Entry) <= sizeof(headrace_entry) && alignof(Entry) <= alignof(headrace_entry));

const Entry& entry_of(const headrace_entry* entry) {
  HEADRACE_CHECK(entry != nullptr, "a handle of headrace.h is not null");
  return *std::launder(reinterpret_cast<const Entry*>(entry->opaque));
}

Result<std::unique_ptr<Cache>> make(headrace_engine* engine, const headrace_cache_options* given) {
  constexpr const char* kTried = "make a cache";
  const auto refuse = [](const char* cause, const char* remedy) {
    return fail(Code::invalid_argument, kTried, cause, remedy);
  };
  if (engine == nullptr) return refuse("the engine is null", "make one by headrace_engine_make()");
  HEADRACE_TAKE(options, read_options(given, kTried));
  headrace::cache::CacheOptions made;
  if (options->capacity_per_node != 0) made.capacity_per_node = Bytes(options->capacity_per_node);
  if (options->lru) made.eviction = headrace::cache::Eviction::lru;
  if (options->huge_pages) made.memory = headrace::cache::huge_pages();
  if (options->policy > HEADRACE_POLICY_BY_SIZE || options->placement > HEADRACE_PLACEMENT_NODE) {
    return refuse("an invalid policy or placement", "pass one of the constants of headrace.h");
  }
  if (options->policy != HEADRACE_POLICY_DEFAULT) {
    made.mover = headrace::engine::movers::named()[options->policy - 1].choose;
  }
  if (options->placement == HEADRACE_PLACEMENT_LOCAL)
    made.placement = headrace::cache::placement::local;
  HEADRACE_TAKE(machine, headrace::topo::discover({.find_movers = false}));
  if (options->placement == HEADRACE_PLACEMENT_NODE) {
    // As a map, so that a node that the machine lacks is refused here.
    std::vector<std::pair<NodeId, headrace::cache::Placement>> places;
    const NodeId node(options->node);
    for (const headrace::topo::Node& each : machine->nodes) {
      places.emplace_back(each.id, headrace::cache::Placement(std::span(&node, 1)));
    }
    made.placement = headrace::cache::placement::map(std::move(places));
  }
  return Cache::make(*machine, object_of<headrace::engine::Engine>(engine), std::move(made));
}

}  // namespace

headrace_cache* headrace_cache_make(headrace_engine* engine, const headrace_cache_options* options,
                                    headrace_error* error) noexcept {
  return make_for_c<headrace_cache>("make a cache", error, [&] { return make(engine, options); });
}

void headrace_cache_free(headrace_cache* cache) noexcept {
  delete reinterpret_cast<Cache*>(cache);
}

bool headrace_cache_access(headrace_cache* cache, const void* source, size_t byte_count,
                           headrace_entry* entry) noexcept {
  try {
    const std::span bytes(static_cast<const std::byte*>(source), byte_count);
    new (entry->opaque) Entry(object_of<Cache>(cache).access(bytes));
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

bool headrace_entry_wait(const headrace_entry* entry, uint64_t time_ns_max) noexcept {
  const Entry& asked = entry_of(entry);
  return time_ns_max == 0 ? asked.try_wait() : asked.wait_for(headrace::c::time_of(time_ns_max));
}

const void* headrace_entry_data(const headrace_entry* entry) noexcept {
  return entry_of(entry).data().data();
}

bool headrace_entry_cached(const headrace_entry* entry) noexcept {
  return entry_of(entry).cached();
}

void headrace_entry_release(headrace_entry* entry) noexcept {
  if (entry != nullptr) entry_of(entry).~Entry();
}

bool headrace_cache_flush_entries(headrace_cache* cache) noexcept {
  try {
    object_of<Cache>(cache).flush();
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

size_t headrace_cache_invalidate(headrace_cache* cache, const void* source,
                                 size_t byte_count) noexcept {
  return object_of<Cache>(cache).invalidate({static_cast<const std::byte*>(source), byte_count});
}
