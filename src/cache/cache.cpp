// SPDX-License-Identifier: Apache-2.0
// Cache: the public class, implemented by CacheState (state.cpp).
#include "headrace/cache/cache.hpp"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headrace/telemetry/telemetry.hpp"
#include "state.hpp"

namespace headrace::cache {
namespace {

telemetry::Row row_of(const CacheStatistics& all, std::uint64_t number) {
  return {.kind = "cache",
          .name = "cache" + std::to_string(number),
          .values = {{"hits", all.hits},
                     {"misses", all.misses},
                     {"not_placed", all.not_placed},
                     {"refused", all.refused},
                     {"weak_hits", all.weak_hits},
                     {"weak_misses", all.weak_misses},
                     {"moves_failed", all.moves_failed},
                     {"evictions", all.evictions},
                     {"bytes_moved", all.bytes_moved},
                     {"write_backs", all.write_backs},
                     {"bytes_written_back", all.bytes_written_back},
                     {"waits", all.waits},
                     {"waited_ns", all.waited_ns},
                     {"bytes_cached", all.bytes_cached}}};
}

}  // namespace

Result<std::unique_ptr<Cache>> Cache::make(const topo::Machine& machine, engine::Engine& engine,
                                           CacheOptions options) {
  if (options.capacity_per_node.count() == 0) {
    return fail(Code::invalid_argument, "make a cache", "its capacity per node is 0",
                "give it room for at least one region, or use the placement policy 'none'");
  }
  HEADRACE_TRY(detail::check(options.placement, machine));
  return std::unique_ptr<Cache>(
      new Cache(std::make_unique<CacheState>(machine, engine, std::move(options))));
}

Cache::Cache(std::unique_ptr<CacheState> state)
    : state_(std::move(state)),
      telemetry_(std::make_unique<telemetry::Source>("cache", [this](std::uint64_t number) {
        return std::vector<telemetry::Row>{row_of(statistics(), number)};
      })) {}

Cache::~Cache() {
  clear();
}

Entry Cache::access(std::span<const std::byte> source, Hint hint) {
  return state_->access(source, hint);
}

std::vector<Entry> Cache::access_many(std::span<const std::span<const std::byte>> sources,
                                      Hint hint) {
  return state_->access_many(sources, hint);
}

Entry Cache::access_weak(std::span<const std::byte> source, Hint hint) {
  return state_->access_weak(source, hint);
}

std::size_t Cache::pin(std::span<const std::byte> source) {
  return state_->pin(source, true);
}

std::size_t Cache::unpin(std::span<const std::byte> source) {
  return state_->pin(source, false);
}

std::size_t Cache::flush(std::optional<NodeId> node) {
  return state_->flush(node);
}

std::size_t Cache::invalidate(std::span<const std::byte> source) {
  if (source.empty()) return 0;
  Region region = Region::of(source);
  // Clamp to the end of the address space.
  if (region.last() < region.address) region.byte_count = 0 - region.address;
  return state_->invalidate(region);
}

std::size_t Cache::clear() {
  return state_->clear();
}

Result<Change> Cache::change(std::span<std::byte> source, Hint hint) {
  return state_->change(source, hint);
}

Result<Bytes> Cache::write_back(const Entry& entry) {
  return entry.source_.empty() ? Bytes(0) : state_->write_back(Region::of(entry.source_));
}

Result<Bytes> Cache::write_back() {
  return state_->write_back({0, ~std::uint64_t{0}});
}

CacheStatistics Cache::statistics() const {
  return state_->statistics();
}

}  // namespace headrace::cache
