// SPDX-License-Identifier: Apache-2.0
#include "headrace/pmem/mapping.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "headrace/platform/memory.hpp"
#include "headrace/platform/process.hpp"
#include "mapping_state.hpp"

namespace headrace::pmem {
namespace {

/// The enumerators are the same.
Granularity of_platform(platform::StoreGranularity granularity) {
  return static_cast<Granularity>(granularity);
}
static_assert(static_cast<int>(Granularity::page) ==
              static_cast<int>(platform::StoreGranularity::page));

std::string describe(const Mapping::State& state) {
  if (state.persistent && state.granularity == state.platform_granularity) {
    return state.granularity == Granularity::byte
               ? "persistent memory whose platform saves the caches (eADR): nothing is flushed"
               : fmt::format("persistent memory (ADR): lines are flushed by {}",
                             name(state.instruction));
  }
  const std::string what = state.persistent ? "persistent memory" : "NOT persistent memory";
  if (state.granularity < state.platform_granularity) {
    return fmt::format(
        "{}, treated as granularity {}: data survives the end of the process but not a power "
        "failure",
        what, name(state.granularity));
  }
  if (state.granularity == Granularity::page) {
    return fmt::format(
        "{}: an ordinary file, durable by an msync of its pages, which takes a thousand times as "
        "long as a flush",
        what);
  }
  return fmt::format("{}, used with granularity {}", what, name(state.granularity));
}

}  // namespace

Result<Mapping> MappingAccess::map(platform::SharedFile file, const MapOptions& options) {
  const std::string tried = fmt::format("map '{}'", file.path());
  if (options.flush.has_value() && std::ranges::count(flush_instructions(), *options.flush) == 0) {
    return fail(Code::invalid_argument, tried,
                fmt::format("this processor has no {}", name(*options.flush)), "omit the option");
  }
  HEADRACE_TAKE(mapped, platform::PersistentMap::map(file, !options.read_only));
  auto state = std::make_unique<Mapping::State>(std::move(file), std::move(*mapped));
  state->platform_granularity = of_platform(state->map.granularity());
  // The environment variable makes libpmem2 report any granularity (for tests): ignore its answer.
  state->persistent = state->platform_granularity != Granularity::page &&
                      !platform::trusted_variable("PMEM2_FORCE_GRANULARITY").has_value();
  state->granularity = options.granularity.value_or(state->platform_granularity);
  state->instruction = options.flush.value_or(flush_instructions().back());
  state->note = describe(*state);
  state->guard.emplace(state->map.bytes(), state->fault, static_cast<std::uint32_t>(Fault::lost));
  if (options.prefault && !options.read_only) platform::populate_pages(state->map.bytes());
  return Mapping(std::move(state));
}

Result<Mapping> Mapping::map(const std::string& path, const MapOptions& options) {
  HEADRACE_TAKE(file, platform::SharedFile::open(path, !options.read_only));
  return MappingAccess::map(std::move(*file), options);
}

Mapping::Mapping(std::unique_ptr<State> state) : state_(std::move(state)) {}
Mapping::Mapping(Mapping&& other) noexcept = default;
Mapping& Mapping::operator=(Mapping&& other) noexcept = default;
Mapping::~Mapping() = default;

std::span<std::byte> Mapping::bytes() const {
  return state_->map.bytes();
}

Granularity Mapping::granularity() const {
  return state_->granularity;
}

Granularity Mapping::platform_granularity() const {
  return state_->platform_granularity;
}

bool Mapping::is_persistent_memory() const {
  return state_->persistent;
}

const std::string& Mapping::note() const {
  return state_->note;
}

Medium Mapping::medium() const {
  return Medium({.granularity = state_->granularity,
                 .instruction = state_->instruction,
                 .fault = &state_->fault});
}

Fault Mapping::fault() const {
  // Set by this thread's accesses, or asynchronously: needs no order.
  return static_cast<Fault>(state_->fault.load_relaxed());
}

}  // namespace headrace::pmem
