// SPDX-License-Identifier: Apache-2.0
#include "dirty_ranges.hpp"

#include <algorithm>
#include <iterator>

#include "headrace/base/check.hpp"

namespace headrace::cache::detail {

DirtyRanges::Ranges::iterator DirtyRanges::first_overlapping(const Region& region) {
  auto place = ranges_.upper_bound(region.address);
  if (place != ranges_.begin()) {
    const auto before = std::prev(place);
    if (before->second.region(before->first).overlaps(region)) return before;
  }
  if (place == ranges_.end() || place->first > region.last()) return ranges_.end();
  return place;
}

DirtyRanges::Ranges::iterator DirtyRanges::find(const Range& range) {
  const auto place = ranges_.find(range.region.address);
  return place != ranges_.end() && place->second.ticket == range.ticket ? place : ranges_.end();
}

DirtyRanges::Range DirtyRanges::take(std::uintptr_t address, What& what) {
  what.state = State::returning;
  return {what.region(address), what.entry, what.ticket, pool_[what.entry].shard_number()};
}

void DirtyRanges::erase(Ranges::iterator place) {
  const std::uint32_t number = place->second.entry;
  ranges_.erase(place);
  count_.set(ranges_.size());
  if (number != 0) clean_without_ranges(number);
  written_back_.notify_all();
}

void DirtyRanges::clean_without_ranges(std::uint32_t number) {
  EntryState& entry = pool_[number];
  const Region region = entry.region();
  const bool has_ranges =
      std::any_of(ranges_.lower_bound(region.address), ranges_.upper_bound(region.last()),
                  [&](const auto& range) { return range.second.entry == number; });
  if (!has_ranges) entry.mark_clean();
}

void DirtyRanges::await_returned(const Region& region) {
  for (auto place = first_overlapping(region);
       place != ranges_.end() && place->first <= region.last();) {
    if (place->second.state == State::returning) {
      written_back_.wait(mutex_);
      place = first_overlapping(region);
    } else {
      ++place;
    }
  }
}

DirtyRanges::Begin DirtyRanges::find_room(const Region& region, std::uint32_t entry) {
  await_returned(region);
  for (auto place = first_overlapping(region);
       place != ranges_.end() && place->first <= region.last(); ++place) {
    if (place->second.state == State::changing) return Begin::busy;
    if (place->second.entry != entry) return Begin::elsewhere;
  }
  return Begin::done;
}

void DirtyRanges::insert(const Region& region, std::uint32_t entry, Range& range) {
  const What what{.byte_count = region.byte_count, .entry = entry, .ticket = ++ticket_};
  Ranges made;  // Allocate first: nodes for the new range and for the remainder behind it.
  made.emplace(region.address, what);
  if (const auto first = first_overlapping(region); first != ranges_.end()) cut_out(region, first);
  ranges_.insert(made.extract(made.begin()));
  count_.set(ranges_.size());
  range = {region, entry, what.ticket};
  if (entry != 0) range.shard = pool_[entry].shard_number();
}

void DirtyRanges::cut_out(const Region& region, Ranges::iterator place) {
  const Region first = place->second.region(place->first);
  if (first.address < region.address && first.last() > region.last()) {
    What behind = place->second;
    behind.byte_count = first.last() - region.last();
    ranges_.emplace(region.last() + 1, behind);
  }
  if (first.address < region.address) {  // Nothing throws from here on.
    place->second.byte_count = region.address - first.address;
    ++place;
  }
  while (place != ranges_.end() && place->first <= region.last()) {
    const Region old = place->second.region(place->first);
    auto node = ranges_.extract(place++);
    if (old.last() <= region.last()) continue;
    node.key() = region.last() + 1;
    node.mapped().byte_count = old.last() - region.last();
    place = std::next(ranges_.insert(std::move(node)).position);
  }
}

bool DirtyRanges::end(const Range& range) {
  const Lock lock(mutex_);
  const auto place = find(range);
  if (place == ranges_.end()) return false;
  if (range.entry == 0) {
    erase(place);
    return false;
  }
  return finish(place);
}

bool DirtyRanges::finish(Ranges::iterator place) {
  if (place->second.is_orphan) {
    place->second.state = State::returning;
    return true;
  }
  place->second.state = State::dirty;
  if (const auto next = std::next(place); continues(place, next)) {
    place->second.byte_count += next->second.byte_count;
    ranges_.erase(next);
  }
  if (place != ranges_.begin() && continues(std::prev(place), place)) {
    std::prev(place)->second.byte_count += place->second.byte_count;
    ranges_.erase(place);
  }
  count_.set(ranges_.size());
  return false;
}

bool DirtyRanges::continues(Ranges::iterator place, Ranges::iterator next) {
  return next != ranges_.end() && next->first == place->first + place->second.byte_count &&
         next->second.state == State::dirty && place->second.state == State::dirty &&
         next->second.entry == place->second.entry;
}

DirtyRanges::Claim DirtyRanges::claim_overlapping(const Region& region, Range& claimed) {
  const Lock lock(mutex_);
  await_returned(region);
  bool is_changing = false;
  for (auto place = first_overlapping(region);
       place != ranges_.end() && place->first <= region.last(); ++place) {
    if (place->second.state == State::dirty) {
      claimed = take(place->first, place->second);
      return Claim::done;
    }
    is_changing = true;
  }
  return is_changing ? Claim::busy : Claim::none;
}

bool DirtyRanges::is_changing(const Region& region) {
  const Lock lock(mutex_);
  await_returned(region);
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const auto& range) {
    return range.second.state == State::changing &&
           range.second.region(range.first).overlaps(region);
  });
}

std::optional<DirtyRanges::Range> DirtyRanges::claim_one(std::uint32_t entry,
                                                         const std::optional<Region>& lost) {
  const Lock lock(mutex_);
  const Region region = pool_[entry].region();
  // The entry's ranges are inside its region, but so may be ranges of other entries.
  for (auto place = ranges_.lower_bound(region.address);
       place != ranges_.end() && place->first <= region.last();) {
    What& what = place->second;
    if (what.entry != entry) {
      ++place;
    } else if (what.state == State::returning) {
      written_back_.wait(mutex_);
      place = ranges_.lower_bound(region.address);
    } else if (lost && lost->contains(what.region(place->first))) {
      erase(place++);
    } else if (what.state == State::dirty) {
      return take(place->first, what);
    } else {
      what.is_orphan = true;
      ++place;
    }
  }
  return std::nullopt;
}

void DirtyRanges::mark_clean(const Range& range) {
  const Lock lock(mutex_);
  const auto place = find(range);
  HEADRACE_CHECK(place != ranges_.end(), "a claimed range stays until it is written back",
                 range.ticket);
  erase(place);
}

}  // namespace headrace::cache::detail
