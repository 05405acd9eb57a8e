// SPDX-License-Identifier: Apache-2.0
#include "schedule.hpp"

#include <algorithm>

#include "headrace/base/check.hpp"

namespace headrace::query::detail {

Schedule::Schedule(std::uint32_t first, std::uint32_t end, std::size_t slot_count,
                   std::size_t words_per_chunk)
    : slot_count_(slot_count),
      slots_(slot_count),
      next_prefetch_(first),
      next_scan_(first),
      end_(end),
      held_max_(slot_count) {
  for (Slot& slot : slots_) slot.words.resize(words_per_chunk);
}

Task Schedule::next(const Task& finished, bool may_prefetch) {
  {
    const Lock lock(mutex_);
    settle(finished);
  }
  Slot* const ready = take_ready();
  const Lock lock(mutex_);
  if (cancelled_) return {};
  // First what frees a slot, then what fills it, then the scan that gives the movers time.
  Slot* slot = ready;
  if (slot == nullptr) {
    next_prefetch_ = std::max(next_prefetch_, next_scan_);
    if (may_prefetch && next_prefetch_ < end_ && held_count() < held_max_) {
      if (Slot* unused = find(Slot::State::free); unused != nullptr) {
        unused->state = Slot::State::submitting;
        unused->scanned = false;
        unused->is_refused = false;
        unused->chunk_index = next_prefetch_++;
        return {Task::Kind::prefetch, unused->chunk_index, unused};
      }
    }
    if (next_scan_ < end_) {
      const std::uint32_t chunk_index = next_scan_++;
      const auto holds = [&](const Slot& candidate) {
        return candidate.state != Slot::State::free && candidate.chunk_index == chunk_index;
      };
      const auto found = std::find_if(slots_.begin(), slots_.end(), holds);
      return {Task::Kind::scan, chunk_index, found == slots_.end() ? nullptr : &*found};
    }
    // All is scanned. What is not ready by now is read from the source: waiting cannot be faster
    // than reading, for the mover reads the same bytes.
    slot = find_scanned();
  }
  if (slot == nullptr) return {};
  slot->state = Slot::State::aggregating;
  return {Task::Kind::aggregate, slot->chunk_index, slot};
}

void Schedule::cancel() {
  const Lock lock(mutex_);
  cancelled_ = true;
}

void Schedule::settle(const Task& finished) {
  switch (finished.kind) {
    case Task::Kind::none:
      return;
    case Task::Kind::prefetch:
      HEADRACE_DCHECK(finished.slot->state == Slot::State::submitting, "prefetched once");
      finished.slot->state = Slot::State::submitted;
      note_prefetched(*finished.slot);
      return;
    case Task::Kind::scan:
      if (finished.slot != nullptr) finished.slot->scanned = true;
      return;
    case Task::Kind::aggregate:
      HEADRACE_DCHECK(finished.slot->state == Slot::State::aggregating, "aggregated once");
      finished.slot->state = Slot::State::free;
      return;
  }
}

void Schedule::note_prefetched(const Slot& slot) {
  if (slot.is_refused) {
    held_max_ = std::clamp(held_count(), std::size_t{1}, held_max_);
    given_count_ = 0;
  } else if (++given_count_ >= slots_.size() && held_max_ < slots_.size()) {
    ++held_max_;
    given_count_ = 0;
  }
}

std::size_t Schedule::held_count() {
  return static_cast<std::size_t>(std::count_if(slots_.begin(), slots_.end(), [](const Slot& slot) {
    // Of one that is being submitted it is not known, and its worker may be writing it.
    if (slot.state == Slot::State::submitting) return true;
    return slot.state != Slot::State::free && !slot.is_refused;
  }));
}

Slot* Schedule::find(Slot::State state) {
  const auto found = std::find_if(slots_.begin(), slots_.end(),
                                  [&](const Slot& slot) { return slot.state == state; });
  return found == slots_.end() ? nullptr : &*found;
}

Slot* Schedule::find_scanned() {
  const auto found = std::find_if(slots_.begin(), slots_.end(), [](const Slot& slot) {
    return slot.state == Slot::State::submitted && slot.scanned;
  });
  return found == slots_.end() ? nullptr : &*found;
}

Slot* Schedule::take_ready() {
  // A poll may end jobs and call what the user gave to them, so no lock is held there. Each slot is
  // asked once, by one worker at a time.
  for (std::size_t i = 0; i < slot_count_; ++i) {
    Slot* slot = nullptr;
    {
      const Lock lock(mutex_);
      slot = &slots_[i];
      if (slot->state != Slot::State::submitted || !slot->scanned) continue;
      slot->state = Slot::State::polling;
    }
    const bool is_ready = slot->discount->try_wait() && slot->extended_price->try_wait();
    const Lock lock(mutex_);
    slot->state = is_ready ? Slot::State::aggregating : Slot::State::submitted;
    if (is_ready) return slot;
  }
  return nullptr;
}

}  // namespace headrace::query::detail
