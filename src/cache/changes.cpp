// SPDX-License-Identifier: Apache-2.0
#include "changes.hpp"

#include <algorithm>
#include <iterator>

#include "headrace/base/check.hpp"

namespace headrace::cache::detail {

Changes::Ranges::iterator Changes::first_overlapping(const Region& region) {
  auto place = ranges_.upper_bound(region.address);
  if (place != ranges_.begin()) {
    const auto before = std::prev(place);
    if (before->second.region(before->first).overlaps(region)) return before;
  }
  if (place == ranges_.end() || place->first > region.last()) return ranges_.end();
  return place;
}

Changes::Ranges::iterator Changes::find(const Range& range) {
  const auto place = ranges_.find(range.region.address);
  return place != ranges_.end() && place->second.ticket == range.ticket ? place : ranges_.end();
}

Changes::Range Changes::take(std::uintptr_t address, What& what) {
  what.state = State::returning;
  return {what.region(address), what.entry, what.ticket, pool_[what.entry].shelf_number()};
}

void Changes::erase(Ranges::iterator place) {
  const std::uint32_t number = place->second.entry;
  ranges_.erase(place);
  count_.set(ranges_.size());
  if (number != 0) {
    EntryState& entry = pool_[number];
    const Region region = entry.region();
    const bool has_others =
        std::any_of(ranges_.lower_bound(region.address), ranges_.upper_bound(region.last()),
                    [&](const auto& other) { return other.second.entry == number; });
    if (!has_others) entry.end_changes();
  }
  settled_.notify_all();
}

void Changes::await_returned(const Region& region) {
  for (auto place = first_overlapping(region);
       place != ranges_.end() && place->first <= region.last();) {
    if (place->second.state == State::returning) {
      settled_.wait(mutex_);
      place = first_overlapping(region);
    } else {
      ++place;
    }
  }
}

Changes::Begin Changes::begin(const Region& region, std::uint32_t entry, Range& range) {
  const Lock lock(mutex_);
  await_returned(region);
  const auto first = first_overlapping(region);
  std::uintptr_t begin_address = region.address;
  std::uintptr_t last_address = region.last();
  bool was_changed = false;
  auto end = first;
  for (; end != ranges_.end() && end->first <= region.last(); ++end) {
    if (end->second.state == State::changing) return Begin::busy;
    if (end->second.entry != entry) return Begin::elsewhere;
    was_changed = true;
    begin_address = std::min(begin_address, end->first);
    last_address = std::max(last_address, end->second.region(end->first).last());
  }
  const Region whole{begin_address, last_address - begin_address + 1};
  What what;
  what.byte_count = whole.byte_count;
  what.entry = entry;
  what.ticket = ++ticket_;
  what.was_changed = was_changed;
  if (was_changed) {
    // The node of the first is used again where it can be: nothing below allocates.
    auto node = ranges_.extract(first);
    auto rest = ranges_.lower_bound(whole.address);
    while (rest != ranges_.end() && rest->first <= whole.last()) rest = ranges_.erase(rest);
    node.key() = whole.address;
    node.mapped() = what;
    ranges_.insert(std::move(node));
  } else {
    ranges_.emplace(whole.address, what);
  }
  count_.set(ranges_.size());
  range = {whole, entry, what.ticket};
  if (entry != 0) {
    pool_[entry].begin_changes();
    range.shelf = pool_[entry].shelf_number();
  }
  return Begin::done;
}

bool Changes::end(const Range& range) {
  const Lock lock(mutex_);
  const auto place = find(range);
  if (place == ranges_.end()) return false;
  if (range.entry == 0) {
    erase(place);
    return false;
  }
  return finish(place);
}

bool Changes::finish(Ranges::iterator place) {
  place->second.state = place->second.is_orphan ? State::returning : State::changed;
  return place->second.is_orphan;
}

bool Changes::abandon(const Range& range) {
  const Lock lock(mutex_);
  const auto place = find(range);
  if (place == ranges_.end()) return false;
  if (!place->second.was_changed) {
    erase(place);
    return false;
  }
  // What was changed before is claimed by who has dropped the entry, unless that one has been here.
  return finish(place);
}

Changes::Claim Changes::claim_overlapping(const Region& region, Range& claimed) {
  const Lock lock(mutex_);
  await_returned(region);
  const auto first = first_overlapping(region);
  for (auto place = first; place != ranges_.end() && place->first <= region.last(); ++place) {
    if (place->second.state == State::changing) return Claim::busy;
  }
  if (first == ranges_.end() || first->first > region.last()) return Claim::none;
  claimed = take(first->first, first->second);
  return Claim::done;
}

bool Changes::is_changing(const Region& region) {
  const Lock lock(mutex_);
  await_returned(region);
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const auto& range) {
    return range.second.state == State::changing &&
           range.second.region(range.first).overlaps(region);
  });
}

std::optional<Changes::Range> Changes::claim_one(std::uint32_t entry) {
  const Lock lock(mutex_);
  const Region region = pool_[entry].region();
  // Its ranges lie within it, but so may those of others.
  for (auto place = ranges_.lower_bound(region.address);
       place != ranges_.end() && place->first <= region.last();) {
    What& what = place->second;
    if (what.entry == entry && what.state == State::changed) return take(place->first, what);
    if (what.entry == entry && what.state == State::returning) {
      settled_.wait(mutex_);
      place = ranges_.lower_bound(region.address);
      continue;
    }
    if (what.entry == entry) what.is_orphan = true;
    ++place;
  }
  return std::nullopt;
}

void Changes::settle(const Range& range) {
  const Lock lock(mutex_);
  const auto place = find(range);
  HEADRACE_CHECK(place != ranges_.end(), "a claimed range stays until it is settled", range.ticket);
  erase(place);
}

void Changes::discard(std::uint32_t entry) {
  const Lock lock(mutex_);
  const Region region = pool_[entry].region();
  for (auto place = ranges_.lower_bound(region.address);
       place != ranges_.end() && place->first <= region.last();) {
    if (place->second.entry != entry) {
      ++place;
    } else if (place->second.state == State::returning) {
      settled_.wait(mutex_);
      place = ranges_.lower_bound(region.address);
    } else {
      erase(place++);
    }
  }
}

}  // namespace headrace::cache::detail
