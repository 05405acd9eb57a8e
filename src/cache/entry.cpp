// SPDX-License-Identifier: Apache-2.0
#include "entry.hpp"

#include <limits>
#include <utility>

#include "headrace/base/clock.hpp"
#include "headrace/cache/cache.hpp"
#include "headrace/copy/copy.hpp"
#include "ledger.hpp"

namespace headrace::cache {
namespace detail {

// One line: a hit on an entry touches none that belongs to another. Not in the header, because the
// model checker's atomics are larger.
static_assert(sizeof(EntryState) == 64);

std::uint64_t footprint_bytes(std::size_t byte_count, std::size_t granule_bytes) {
  const std::uint64_t mask = granule_bytes - 1;
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  // A length that no region can have must not wrap around to a small one.
  return byte_count > kMax - mask ? kMax : (std::uint64_t{byte_count} + mask) & ~mask;
}

void Ledger::wait(EntryState& entry) {
  if (ended(entry.progress.now())) return;
  const auto start = steady_clock().now();
  wait_blocked(entry);
  waits.add(1);
  waited_ns.add(static_cast<std::uint64_t>((steady_clock().now() - start).count()));
}

void Ledger::wait_blocked(EntryState& entry) {
  for (;;) {
    switch (entry.progress.now()) {
      case Phase::pending:
        entry.progress.await_submission();
        break;
      case Phase::moving:
        // The job's callback ends the phase before its waiters return.
        movements.wait(entry);
        break;
      case Phase::idle:
      case Phase::copied:
      case Phase::left:
        return;
    }
  }
}

void Ledger::tell_observer(const Event& event) noexcept {
  try {
    observer(event);
  } catch (...) {
    policy_errors.add(1);
  }
}

namespace {

/// Whether a copy of `byte_count` bytes may be written to `given`.
bool is_fit(std::span<const std::byte> given, std::uint64_t byte_count) {
  const auto address = reinterpret_cast<std::uintptr_t>(given.data());
  return address != 0 && address % MemorySource::kAlignment == 0 && given.size() >= byte_count;
}

}  // namespace

Ledger::Allocation Ledger::allocate_copy(EntryState& entry) {
  const std::uint64_t byte_count = footprint_bytes(entry.region().byte_count, granule_bytes);
  Room& room = rooms[entry.shelf_number()];
  try {
    const Result<std::span<std::byte>> given =
        memory->allocate(byte_count, nodes[entry.shelf_number()]);
    if (given.has_value()) {
      if (is_fit(*given, byte_count)) {
        entry.copy = given->data();
        return Allocation::done;
      }
      policy_errors.add(1);
      if (given->data() != nullptr) memory->free({given->data(), byte_count});
      room.release(byte_count);
      return Allocation::failed;
    }
    room.release(byte_count);
    return given.error().code == Code::out_of_memory ? Allocation::node_is_full
                                                     : Allocation::failed;
  } catch (...) {
    room.release(byte_count);
    throw;
  }
}

void Ledger::free_copy(EntryState& entry) noexcept {
  if (entry.copy == nullptr) return;
  const std::uint64_t byte_count = footprint_bytes(entry.region().byte_count, granule_bytes);
  if (entry.is_memory_kept()) {
    // Whoever got it next would find the bytes of a late write in it. Its room stays taken.
    bytes_kept.add(byte_count);
    entry.copy = nullptr;
    return;
  }
  memory->free({std::exchange(entry.copy, nullptr), byte_count});
  rooms[entry.shelf_number()].release(byte_count);
}

engine::CopyPlan Ledger::way_back(std::uint32_t number, const Region& region) const {
  const EntryState& entry = pool[number];
  const std::uint64_t first = region.address - entry.region().address;
  // Whoever began the change has shown that the source may be written.
  auto* const source = reinterpret_cast<std::byte*>(region.address);
  return {{source, region.byte_count}, {entry.copy + first, region.byte_count}};
}

void Ledger::return_bytes(const Changes::Range& claimed, const Region& region) {
  const engine::CopyPlan plan = way_back(claimed.entry, region);
  copy::copy_bytes(plan.target, plan.source);
  write_backs.add(1);
  bytes_written_back.add(region.byte_count);
}

void Ledger::return_bytes(std::span<const Changes::Range> claimed) {
  for (const Changes::Range& range : claimed) {
    return_bytes(range, range.region);
    changes.settle(range);
  }
}

void Ledger::write_back(std::span<const Changes::Range> claimed) {
  return_bytes(claimed);
  tell_written_back(claimed);
}

void Ledger::settle(const Changes::Range& range) {
  write_backs.add(1);
  bytes_written_back.add(range.region.byte_count);
  changes.settle(range);
}

void Ledger::tell_written_back(std::span<const Changes::Range> settled) {
  for (const Changes::Range& range : settled) {
    tell(EventKind::written_back,
         {reinterpret_cast<const std::byte*>(range.region.address), range.region.byte_count},
         nodes[range.shelf]);
  }
}

void Ledger::end(EntryState& entry) noexcept {
  // The phase ends inside the job's callback, the job itself only after it.
  movements.finish(entry);
  free_copy(entry);
  entry.standing.store_relaxed(Standing::absent);  // relaxed: whoever sees it has no entry.
  pool.give_back(pool.number_of(&entry));
}

void Ledger::end_held(EntryState& entry) noexcept {
  end(entry);
  let_go();
}

}  // namespace detail

using detail::EntryState;
using detail::Phase;

namespace {

EntryState& state_of(const detail::Slot& slot) {
  return static_cast<EntryState&>(*slot.tenancy());
}

}  // namespace

Entry::Entry(const Entry& other)
    : source_(other.source_), slot_(other.slot_), ledger_(other.ledger_) {
  if (slot_ != nullptr && !detail::share(*slot_)) slot_ = nullptr;
}

Entry::Entry(Entry&& other) noexcept
    : source_(other.source_), slot_(std::exchange(other.slot_, nullptr)), ledger_(other.ledger_) {}

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
  detail::Tenancy* const last = detail::give_back(*slot_);
  if (last != nullptr) ledger_->end_held(static_cast<EntryState&>(*last));
}

void Entry::swap(Entry& other) noexcept {
  std::swap(source_, other.source_);
  std::swap(slot_, other.slot_);
  std::swap(ledger_, other.ledger_);
}

void Entry::wait() const {
  if (slot_ != nullptr) ledger_->wait(state_of(*slot_));
}

bool Entry::try_wait() const {
  if (slot_ == nullptr) return true;
  EntryState& state = state_of(*slot_);
  // Some movers advance only when they are polled.
  if (state.progress.now() == Phase::moving) ledger_->movements.poll(state);
  return ended(state.progress.now());
}

std::span<const std::byte> Entry::wait_weak() const {
  static_cast<void>(try_wait());
  return data();
}

std::span<const std::byte> Entry::data() const {
  if (slot_ == nullptr) return source_;
  const EntryState& state = state_of(*slot_);
  if (state.progress.now() != Phase::copied) return source_;
  return {state.copy + (source_.data() - state.source()), source_.size()};
}

bool Entry::cached() const {
  return slot_ != nullptr && state_of(*slot_).progress.now() == Phase::copied;
}

bool Entry::changed() const {
  return slot_ != nullptr && state_of(*slot_).is_changed();
}

std::optional<NodeId> Entry::node() const {
  return cached() ? std::optional(ledger_->nodes[state_of(*slot_).shelf_number()]) : std::nullopt;
}

}  // namespace headrace::cache
