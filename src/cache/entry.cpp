// SPDX-License-Identifier: Apache-2.0
#include "entry.hpp"

#include <utility>

#include "core.hpp"
#include "headrace/cache/cache.hpp"

namespace headrace::cache {
namespace detail {

// One cache line, so that hits on different entries do not share one. Not in the header, because
// the model checker's atomics are larger.
static_assert(sizeof(EntryState) == 64);

}  // namespace detail

using detail::EntryState;
using detail::Phase;

namespace {

EntryState& state_of(const detail::Slot& slot) {
  return static_cast<EntryState&>(*slot.entry());
}

/// Out of line, so that Entry::data() of a copy saves no registers.
[[gnu::noinline]] std::span<const std::byte> written_back(detail::Core& core,
                                                          std::span<const std::byte> source) {
  static_cast<void>(core.write_back_overlapping(detail::Region::of(source)));
  return source;
}

}  // namespace

Entry::Entry(const Entry& other) : source_(other.source_), slot_(other.slot_), core_(other.core_) {
  if (slot_ != nullptr && !detail::share(*slot_)) slot_ = nullptr;
}

Entry::Entry(Entry&& other) noexcept
    : source_(other.source_), slot_(std::exchange(other.slot_, nullptr)), core_(other.core_) {}

Entry& Entry::operator=(const Entry& other) {
  Entry copy(other);
  swap(copy);
  return *this;
}

Entry& Entry::operator=(Entry&& other) noexcept {
  Entry moved(std::move(other));
  swap(moved);
  return *this;
}

Entry::~Entry() {
  if (slot_ == nullptr) return;
  detail::LeasedEntry* const last = detail::give_back(*slot_);
  if (last != nullptr) core_->end_held(static_cast<EntryState&>(*last));
}

void Entry::swap(Entry& other) noexcept {
  std::swap(source_, other.source_);
  std::swap(slot_, other.slot_);
  std::swap(core_, other.core_);
}

void Entry::wait() const {
  static_cast<void>(wait_for(std::chrono::nanoseconds::max()));
}

bool Entry::wait_for(std::chrono::nanoseconds time_max) const {
  return slot_ == nullptr || core_->wait(state_of(*slot_), time_max);
}

bool Entry::try_wait() const {
  if (slot_ == nullptr) return true;
  EntryState& state = state_of(*slot_);
  // Some movers advance only when they are polled.
  if (state.progress.now() == Phase::moving) core_->moves_of(state).poll(state);
  return ended(state.progress.now());
}

std::span<const std::byte> Entry::wait_weak() const {
  static_cast<void>(try_wait());
  return data();
}

std::span<const std::byte> Entry::data() const {
  if (slot_ == nullptr) return source_;
  const EntryState& state = state_of(*slot_);
  const Phase phase = state.progress.now();
  if (phase == Phase::copied)
    return {state.copy + (source_.data() - state.source()), source_.size()};
  // The submitting thread may not have written back the dirty bytes of the region yet. Bytes with a
  // live change are left alone.
  if (phase == Phase::pending) [[unlikely]]
    return written_back(*core_, source_);
  return source_;
}

bool Entry::cached() const {
  return slot_ != nullptr && state_of(*slot_).progress.now() == Phase::copied;
}

bool Entry::changed() const {
  return slot_ != nullptr && state_of(*slot_).is_dirty();
}

std::optional<NodeId> Entry::node() const {
  return cached() ? std::optional(core_->nodes[state_of(*slot_).shard_number()]) : std::nullopt;
}

}  // namespace headrace::cache
