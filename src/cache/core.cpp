// SPDX-License-Identifier: Apache-2.0
#include "core.hpp"

#include <span>
#include <utility>

#include "headrace/base/clock.hpp"
#include "headrace/base/trace.hpp"
#include "headrace/copy/copy.hpp"

namespace headrace::cache::detail {

bool Core::wait(EntryState& entry, std::chrono::nanoseconds time_max) {
  if (ended(entry.progress.now())) {
    trace::record({.id = trace::id_of(&entry), .kind = trace::Kind::wait});
    return true;
  }
  const auto start = steady_clock().now();
  const bool has_ended = wait_blocked(entry, time_max);
  waits.add(1);
  waited_ns.add(static_cast<std::uint64_t>((steady_clock().now() - start).count()));
  return has_ended;
}

bool Core::wait_blocked(EntryState& entry, std::chrono::nanoseconds time_max) {
  for (;;) {
    switch (entry.progress.now()) {
      case Phase::pending:
        entry.progress.await_submission();
        break;
      case Phase::moving:
        // The job's callback ends the phase before its waiters return.
        if (!moves_of(entry).wait(entry, time_max)) return false;
        break;
      case Phase::idle:
      case Phase::copied:
      case Phase::left:
        return true;
    }
  }
}

namespace {

thread_local DeferredEvents* deferring = nullptr;

}  // namespace

// Out of line, where GCC 14 does not warn of a pointer that report() has taken back by then.
[[gnu::noinline]] void DeferredEvents::begin() noexcept {
  outer_ = std::exchange(deferring, this);
  is_active_ = true;
}

void DeferredEvents::report() noexcept {
  if (!std::exchange(is_active_, false)) return;
  deferring = outer_;
  for (const Event& event : events_) core_.tell_observer(event);
}

void Core::tell_or_defer(const Event& event) noexcept {
  DeferredEvents* reporting = nullptr;
  for (DeferredEvents* each = deferring; each != nullptr; each = each->outer_) {
    if (&each->core_ == this) reporting = each;
  }
  if (reporting == nullptr) return tell_observer(event);
  try {
    reporting->events_.push_back(event);
  } catch (const std::bad_alloc&) {
    policy_errors.add(1);
  }
}

void Core::tell_observer(const Event& event) noexcept {
  try {
    observer(event);
  } catch (...) {
    policy_errors.add(1);
  }
}

Core::Allocation Reservation::refuse(const Result<std::span<std::byte>>& given) {
  give_room_back();
  if (!given.has_value()) {
    return given.error().code == Code::out_of_memory ? Core::Allocation::node_is_full
                                                     : Core::Allocation::failed;
  }
  core_.policy_errors.add(1);
  if (given->data() != nullptr) core_.memory->free({given->data(), byte_count_});
  return Core::Allocation::failed;
}

void Core::free_copy(EntryState& entry) noexcept {
  if (entry.copy == nullptr) return;
  const std::uint64_t byte_count = footprint(entry);
  if (entry.is_memory_kept()) {
    // A late write would corrupt the next owner's bytes. The room stays reserved.
    bytes_kept.add(byte_count);
    entry.copy = nullptr;
    return;
  }
  memory->free({std::exchange(entry.copy, nullptr), byte_count});
  room_of[entry.shard_number()]->release(byte_count);
}

bool Core::free_spares(Room& room) noexcept {
  counts_by_thread.for_each([this](ThreadCounts& each) {
    if (each.spares.load_relaxed() == 0) return;  // relaxed: the exchange decides.
    // edge: spares-kept (acq_rel)
    if (const std::uint32_t first = each.spares.exchange_acq_rel(0)) keep_spares(first);
  });
  bool is_any = false;
  while (std::uint32_t number = room.take_spares(pool, [](const EntryState&) { return true; })) {
    is_any = true;
    while (number != 0) {
      EntryState& entry = pool[number];
      const std::uint32_t next = entry.older;
      free_copy(entry);
      pool.give_back(std::exchange(number, next));
    }
  }
  return is_any;
}

engine::CopyPlan Core::write_back_plan(std::uint32_t number, const Region& region) const {
  const EntryState& entry = pool[number];
  const std::uint64_t first = region.address - entry.region().address;
  // Writable: change() took it as a span of mutable bytes.
  auto* const source = reinterpret_cast<std::byte*>(region.address);
  return {{source, region.byte_count}, {entry.copy + first, region.byte_count}};
}

void Core::return_bytes(const DirtyRanges::Range& claimed, const Region& region) {
  const engine::CopyPlan plan = write_back_plan(claimed.entry, region);
  copy::copy_bytes(plan.target, plan.source);
  write_backs.add(1);
  bytes_written_back.add(region.byte_count);
}

void Core::return_bytes(std::span<const DirtyRanges::Range> claimed) {
  for (const DirtyRanges::Range& range : claimed) {
    return_bytes(range, range.region);
    dirty.mark_clean(range);
  }
}

void Core::write_back(std::span<const DirtyRanges::Range> claimed) {
  return_bytes(claimed);
  for (const DirtyRanges::Range& range : claimed) tell_written_back(range);
}

bool Core::write_back_overlapping(const Region& region) {
  if (!dirty.any()) return true;
  for (;;) {
    DirtyRanges::Range range;
    switch (dirty.claim_overlapping(region, range)) {
      case DirtyRanges::Claim::busy:
        return false;
      case DirtyRanges::Claim::none:
        return true;
      case DirtyRanges::Claim::done:
        write_back({&range, 1});
    }
  }
}

void Core::tell_written_back(const DirtyRanges::Range& range) {
  tell(EventKind::written_back,
       {reinterpret_cast<const std::byte*>(range.region.address), range.region.byte_count},
       nodes[range.shard]);
}

void Core::end_held(EntryState& entry, std::uint32_t number) noexcept {
  // The phase ends inside the job's callback, the job itself only after it.
  moves_of(entry).finish(entry);
  free_copy(entry);
  entry.listing.store_relaxed(
      Listing::absent);  // relaxed: a reader that sees it ignores the entry.
  pool.give_back(number);
  let_go();
}

}  // namespace headrace::cache::detail
