// SPDX-License-Identifier: Apache-2.0
#include "shelf.hpp"

#include <algorithm>

#include "entry.hpp"

namespace headrace::cache::detail {
namespace {

std::uintptr_t address_of(std::span<const std::byte> bytes) {
  return reinterpret_cast<std::uintptr_t>(bytes.data());
}

template <typename Condition>
void splice_if(Entries& from, Entries& to, Condition condition) {
  for (auto place = from.begin(); place != from.end();) {
    const auto next = std::next(place);
    if (condition(*place)) to.splice(to.end(), from, place);
    place = next;
  }
}

}  // namespace

const Entry* Shelf::find_locked(std::span<const std::byte> source) const {
  const auto found = by_address_.find(address_of(source));
  if (found == by_address_.end()) return nullptr;
  const Entry& entry = *found->second;
  if (entry.state_->source.size() < source.size()) return nullptr;
  if (entry.state_->current_phase() == Phase::left) return nullptr;
  return &entry;
}

std::optional<Entry> Shelf::find(std::span<const std::byte> source) {
  const ReadLock lock(mutex_);
  const Entry* entry = find_locked(source);
  return entry == nullptr ? std::nullopt : std::optional(*entry);
}

std::optional<Entry> Shelf::insert(const Entry& entry, Entries& dropped) {
  const std::span<const std::byte> source = entry.state_->source;
  Entries added{entry};
  const WriteLock lock(mutex_);
  splice_if(superseded_, dropped,
            [](const Entry& old) { return ended(old.state_->current_phase()); });
  if (const Entry* present = find_locked(source); present != nullptr) return *present;
  const auto [found, fresh] = by_address_.try_emplace(address_of(source), added.begin());
  if (!fresh) {
    const Place old = found->second;
    Entries& place = ended(old->state_->current_phase()) ? dropped : superseded_;
    place.splice(place.end(), entries_, old);
    found->second = added.begin();
  }
  entries_.splice(entries_.end(), added);
  source_bytes_max_ = std::max(source_bytes_max_, source.size());
  entry.state_->expect_submission();
  return std::nullopt;
}

Shelf::Place Shelf::unlink(Place place, Entries& dropped) {
  by_address_.erase(address_of(place->state_->source));
  const Place next = std::next(place);
  dropped.splice(dropped.end(), entries_, place);
  return next;
}

void Shelf::erase(const Entry& entry, Entries& dropped) {
  const WriteLock lock(mutex_);
  const auto found = by_address_.find(address_of(entry.state_->source));
  if (found == by_address_.end() || found->second->state_ != entry.state_) return;
  unlink(found->second, dropped);
}

bool Shelf::evict(std::uint64_t byte_count, Entries& dropped) {
  const auto unused = [](const Entry& entry) {
    return entry.state_->sole() && ended(entry.state_->current_phase());
  };
  const WriteLock lock(mutex_);
  const std::uint64_t free_bytes = room_.capacity_bytes() - room_.bytes_used();
  // Counted before anything is dropped: entries must not go for an access that is refused anyway.
  std::uint64_t gained = free_bytes;
  for (const Entry& entry : entries_) {
    if (gained >= byte_count) break;
    if (unused(entry)) gained += footprint_bytes(entry.state_->source.size());
  }
  if (gained < byte_count) return false;
  gained = free_bytes;
  for (Place place = entries_.begin(); gained < byte_count;) {
    if (unused(*place)) {
      gained += footprint_bytes(place->state_->source.size());
      place = unlink(place, dropped);
    } else {
      ++place;
    }
  }
  return true;
}

void Shelf::drop_unheld(Entries& dropped) {
  const WriteLock lock(mutex_);
  for (Place place = entries_.begin(); place != entries_.end();) {
    place = place->state_->sole() ? unlink(place, dropped) : std::next(place);
  }
  splice_if(superseded_, dropped, [](const Entry& old) { return old.state_->sole(); });
}

void Shelf::drop_overlapping(std::span<const std::byte> source, Entries& dropped) {
  if (source.empty()) return;
  const std::uintptr_t first = address_of(source);
  const std::uintptr_t last = first + (source.size() - 1);
  const WriteLock lock(mutex_);
  // An entry that begins longer before `first` than any entry is long ends before it.
  auto found = by_address_.lower_bound(first - std::min(first, source_bytes_max_));
  while (found != by_address_.end() && found->first <= last) {
    const Place place = found->second;
    ++found;
    const std::uintptr_t entry_last =
        address_of(place->state_->source) + (place->state_->source.size() - 1);
    if (entry_last >= first) unlink(place, dropped);
  }
  // Those that made way may still be read by a mover.
  splice_if(superseded_, dropped, [&](const Entry& old) {
    const std::uintptr_t begin = address_of(old.state_->source);
    return begin <= last && begin + (old.state_->source.size() - 1) >= first;
  });
}

void Shelf::drop_all(Entries& dropped) {
  const WriteLock lock(mutex_);
  by_address_.clear();
  dropped.splice(dropped.end(), entries_);
  dropped.splice(dropped.end(), superseded_);
}

}  // namespace headrace::cache::detail
