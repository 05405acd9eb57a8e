// SPDX-License-Identifier: Apache-2.0
// Blocks and slots: recovery, eviction, moves between tiers.
#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "state.hpp"

namespace headrace::store {

using detail::Kind;
using detail::SlotHeader;
using detail::SlotState;
using detail::TierFile;
using detail::Verdict;

void StoreState::recover(std::size_t tier, std::vector<detail::HeaderPlace>& old) {
  Tier& here = *tiers_[tier];
  if (here.file == nullptr) {
    for (SlotNumber slot = here.slot_count; slot != 0; --slot) here.free_slot(slot);
    return;
  }
  for (SlotNumber slot = here.slot_count; slot != 0; --slot) {
    SlotHeader header;
    const SlotState state = here.file->slots.read(slot, header);
    if (state != SlotState::whole && here.disk() != nullptr &&
        here.disk()->medium().is_unread(here.file->slots.header(slot))) {
      ++here.statistics.blocks_lost;
      continue;
    }
    Block* block = state == SlotState::whole ? index_.find(header.key_text()) : nullptr;
    std::optional<detail::Known> known;
    if (block != nullptr)
      known = {.sequence = block->sequence, .has_copy = block->slots[tier] != 0};
    const Verdict verdict = detail::judge(state, header, known);
    if (verdict == Verdict::free) {
      here.free_slot(slot);
      continue;
    }
    if (verdict == Verdict::drop) {
      if (state == SlotState::torn) ++here.statistics.dropped_torn;
      old.push_back({here.file.get(), slot});
      release(tier, slot);
      continue;
    }
    if (verdict == Verdict::replace) {
      begin_ending(*block, old);
      cleared(*block, true);
      retire(*block);
      block = nullptr;
    }
    if (block == nullptr) {
      const std::string_view key = header.key_text();
      block = &index_.make(key, detail::Index::hash_of(key));
      block->sequence = header.sequence;
      block->byte_count = header.byte_count;
      block->crc = header.crc;
      block->has_crc = header.has_crc != 0;
      index_.insert(*block);
    }
    block->slots[tier] = slot;
    here.add(slot, *block);
    sequences_.pass(header.sequence);
  }
  here.statistics.recovered = here.statistics.blocks;
}

StoreState::Block* StoreState::find(std::string_view key) const {
  Block* const block = index_.find(key);
  return block != nullptr && block->fastest() != kTiersMax ? block : nullptr;
}

StoreState::Block* StoreState::commit(Block& block, std::size_t tier, SlotNumber slot) {
  Tier& here = *tiers_[tier];
  if (Block* const before = index_.find(block.key, block.hash); before != nullptr) {
    if (before->sequence > block.sequence) return nullptr;
    block.pins = before->pins;
    std::array<SlotNumber, kTiersMax> only{};
    only[tier] = before->slots[tier];
    const bool unused = before->uses == 0 && before->leaving == 0;
    if (unused && here.file == nullptr && only[tier] != 0 && before->slots == only) {
      // A use: the key keeps its block, its slot and its place in the order, with the new bytes.
      here.hide(only[tier]);
      here.exchange(only[tier], slot);
      here.touch(only[tier]);
      block.slots = only;
      block.live = true;
      static_cast<detail::BlockState&>(*before) = block;
      here.show(only[tier], *before);
      here.free_slot(slot);
      index_.give_back(block);
      return before;
    }
    retire(*before);
  }
  index_.insert(block);
  block.slots[tier] = slot;
  here.add(slot, block);
  return &block;
}

void StoreState::retire(Block& block) {
  take_off(block);
  tidy(block);
}

void StoreState::take_off(Block& block) {
  index_.erase(block);
  block.pins = 0;  // Pins belong to the key.
  tiers_[0]->hide(block.slots[0]);
}

void StoreState::share(detail::SharedCells::Reader* added,
                       const detail::SharedCells::Reader* removed) {
  Work work;
  {
    const Lock lock(mutex_);
    Tier& first = *tiers_[0];
    first.take_reads();
    if (added != nullptr) first.shared->readers.push_back(added);
    std::erase(first.shared->readers, removed);
    first.take_back();
    serve_waiting(work);
  }
  finish(work);
}

void StoreState::tidy(Block& block) {
  if (block.live && std::ranges::all_of(block.slots, [](SlotNumber slot) { return slot == 0; })) {
    return retire(block);
  }
  if (block.live || block.uses != 0) return;
  for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
    if (block.slots[tier] == 0) continue;
    tiers_[tier]->remove(block.slots[tier]);
    release(tier, block.slots[tier]);
    block.slots[tier] = 0;
  }
  index_.give_back(block);
}

void StoreState::drop_copy(Block& block, std::size_t tier) {
  Tier& here = *tiers_[tier];
  const SlotNumber slot = block.slots[tier];
  if (here.file != nullptr) {
    // Still a copy of the block, so that a put or a removal of the key finds its header.
    ++block.uses;
    block.leaving |= static_cast<std::uint8_t>(1U << tier);
    here.retired.push_back({slot, &block});
    return wake_flusher_of(tier);
  }
  here.remove(slot);
  block.slots[tier] = 0;
  here.free_slot(slot);
}

void StoreState::release(std::size_t tier, SlotNumber slot) {
  Tier& here = *tiers_[tier];
  if (here.file == nullptr) return here.free_slot(slot);
  here.retired.push_back({slot, nullptr});
  wake_flusher_of(tier);
}

bool StoreState::has_headers(const Block& block) const {
  if (!has_files_ || block.cleared) return false;
  bool has = block.moving && block.move_is_published;
  for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
    has = has || (block.slots[tier] != 0 && tiers_[tier]->file != nullptr);
  }
  return has;
}

void StoreState::begin_ending(Block& block, std::vector<detail::HeaderPlace>& headers) {
  ++block.uses;
  block.ending = true;
  for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
    TierFile* const file = tiers_[tier]->file.get();
    if (file == nullptr) continue;
    if (block.slots[tier] != 0) headers.push_back({file, block.slots[tier]});
    if (block.moving && block.move_is_published && block.move_to == tier) {
      headers.push_back({file, block.move_slot});
    }
  }
}

bool StoreState::invalidate(std::span<const detail::HeaderPlace> headers, const TierFile* home) {
  std::set<TierFile*> files;
  for (const detail::HeaderPlace& each : headers) {
    const Lock lock(each.file->headers);
    each.file->with_medium(
        [&](auto& medium) { detail::invalidate(medium, each.file->slots.header(each.slot)); });
    if (each.file->disk != nullptr) files.insert(each.file);
  }
  bool is_certain = true;
  for (TierFile* const file : files) {
    is_certain = (file->disk->medium().hand_over() || file == home) && is_certain;
  }
  return is_certain;
}

void StoreState::cleared(Block& block, bool is_certain) {
  block.cleared = is_certain;
  --block.uses;
  tidy(block);
}

std::optional<std::size_t> StoreState::take_out(const std::string_view* key) {
  std::size_t count = 0;
  std::vector<Block*> blocks;
  std::vector<detail::HeaderPlace> headers;
  {
    const Lock lock(mutex_);
    if (key == nullptr) blocks = index_.all();
    if (key != nullptr) blocks.assign(1, index_.find(*key));
    if (blocks == std::vector<Block*>{nullptr}) return 0;
    for (Block* const block : blocks) begin_ending(*block, headers);
  }
  const bool is_certain = invalidate(headers);
  Work work;
  {
    const Lock lock(mutex_);
    for (Block* const block : blocks) {
      // Unless it was replaced or removed meanwhile.
      if (block->live && is_certain) {
        ++count;
        take_off(*block);
      }
      cleared(*block, is_certain);
    }
    serve_waiting(work);
  }
  finish(work);
  return is_certain ? std::optional(count) : std::nullopt;
}

StoreState::SlotNumber StoreState::take(std::size_t tier, Work& work, bool& may_wait) {
  Tier& here = *tiers_[tier];
  // If freeing a slot takes time, eviction starts before the last one is taken.
  if (here.free_count < here.low_water) here.take_back();
  if (here.free_count < here.low_water) {
    may_wait = make_room(tier, work);
    if (!here.leased.empty()) wake_flusher();  // It looks whether clients still read them.
    if (here.free_count == 0) return 0;
  }
  const SlotNumber slot = here.take_free();
  if (here.disk() != nullptr) {
    // Each one in use is given back, and then waiting puts are served.
    here.filling_from[slot] = here.disk()->take_buffer(true);
    may_wait = true;
    if (here.filling_from[slot] == nullptr) {
      here.add_free(slot);
      return 0;
    }
  }
  ++here.filling;
  return slot;
}

bool StoreState::make_room(std::size_t tier, Work& work) {
  Tier& here = *tiers_[tier];
  const auto coming = [&] { return here.retired.size() + here.being_freed + here.leaving; };
  here.take_reads();
  bool may_wait = false;
  std::vector<SlotNumber> kept;
  while (here.free_count + coming() < here.low_water) {
    const SlotNumber slot = here.propose();
    if (slot == 0) break;
    // If this block waits for room below, so would the next ones.
    bool is_waiting = false;
    Block& block = *here.owner[slot];
    if (evict(block, tier, work, is_waiting)) continue;
    may_wait = may_wait || is_waiting;
    kept.push_back(slot);
    if (is_waiting && block.uses == 0) break;
  }
  for (const SlotNumber slot : kept) here.put_back(slot);
  return may_wait || coming() != 0 || here.filling != 0 || !here.leased.empty();
}

bool StoreState::evict(Block& block, std::size_t tier, Work& work, bool& may_wait) {
  if (block.pins != 0 || tiers_[tier]->is_leased(block.slots[tier])) return false;
  if (block.uses != 0) {
    may_wait = true;
    return false;
  }
  Tier& here = *tiers_[tier];
  const std::size_t below = tier + 1;
  const bool goes_down = below < tiers_.size() && block.next_below(tier) == kTiersMax &&
                         !tiers_[below]->is_broken() && block.failed_moves < kFailedMovesMax;
  if (goes_down) {
    if (const SlotNumber slot = take(below, work, may_wait); slot != 0) {
      ++here.leaving;
      move(block, tier, below, slot, work);
      return true;
    }
    if (may_wait) return false;
    // Every block below is pinned.
  }
  ++here.statistics.evictions;
  drop_copy(block, tier);
  if (block.fastest() == kTiersMax) ++statistics_.dropped;
  tidy(block);
  return true;
}

void StoreState::move(Block& block, std::size_t from, std::size_t to, SlotNumber slot, Work& work) {
  ++block.uses;
  block.moving = true;
  block.move_to = static_cast<std::uint8_t>(to);
  block.move_slot = slot;
  block.move_is_published = false;
  const detail::Step step{.block = &block,
                          .slot = slot,
                          .from = static_cast<std::uint8_t>(from),
                          .to = static_cast<std::uint8_t>(to)};
  if (tiers_[from]->disk() != nullptr) return start_read(Kind::move, step, {}, nullptr, work);
  copy_move(step, tiers_[from]->data(block.slots[from], block.byte_count), work);
}

void StoreState::copy_move(const Step& step, std::span<const std::byte> source, Work& work) {
  const Tier& target = *tiers_[step.to];
  engine::Operation copy = engine::Operation::copy(target.data(step.slot, source.size()), source);
  if (target.copies_durably()) copy = copy.durable();
  add_step(Kind::move, nullptr, step, copy, work);
}

void StoreState::promote(Block& block, std::size_t from, Work& work) {
  if (block.slots[0] != 0 || options_.promote_after == 0 || !block.live || block.moving) return;
  if (++block.reads < options_.promote_after) return;
  bool may_wait = false;
  // If none is free, eviction makes room for the next read.
  const SlotNumber slot = take(0, work, may_wait);
  if (slot == 0) return;
  block.reads = 0;
  move(block, from, 0, slot, work);
}

void StoreState::end_move(Block& block, std::size_t from, std::size_t to, SlotNumber slot,
                          Outcome outcome, bool is_lost, Work& work) {
  const bool done = outcome == Outcome::done;
  Tier& source = *tiers_[from];
  Tier& target = *tiers_[to];
  const bool is_demotion = to > from;
  --block.uses;
  --target.filling;
  block.moving = false;
  const bool copies = std::exchange(block.copies, false);
  if (is_demotion && !copies) --source.leaving;
  if (done && block.live) {
    block.slots[to] = slot;
    block.failed_moves = 0;
    target.add(slot, block);
    ++(is_demotion ? target.statistics.demotions : target.statistics.promotions);
  } else if (is_lost) {
    ++target.statistics.blocks_lost;
  } else if (block.move_is_published) {
    release(to, slot);
  } else {
    target.free_slot(slot);
  }
  if (copies) {
    const auto found = std::ranges::find(source.writing, &block, &detail::Unwritten::block);
    const detail::Unwritten written = *found;
    source.writing.erase(found);
    return end_written(written, outcome, work);
  }
  if (!done) ++block.failed_moves;
  if (!block.live) return tidy(block);
  // A copy in a file is durable and kept; one in memory would waste room.
  const bool leaves =
      done && block.uses == 0 && block.pins == 0 && (is_demotion || source.file == nullptr);
  if (leaves) {
    if (is_demotion) ++source.statistics.evictions;
    drop_copy(block, from);
  } else if (is_demotion) {
    source.put_back(block.slots[from]);
  }
}

void StoreState::end_or_write(Block& block, std::size_t tier, const BatchPointer& batch,
                              std::uint32_t index, Work& work) {
  Tier& here = *tiers_[tier];
  const std::optional<std::uint32_t> bound = options_.tiers[tier].unwritten_max;
  const bool writes = bound && here.file == nullptr && file_below(tier) != kTiersMax;
  const bool waits = writes && here.unwritten.size() + here.writing.size() >= *bound;
  if (!waits) end(batch, index, Outcome::done, block.byte_count, work);
  if (!writes) return;
  ++block.uses;
  here.unwritten.push_back({&block, waits ? batch : nullptr, index});
  write_down(tier, work);
}

std::size_t StoreState::file_below(std::size_t tier) const {
  ++tier;
  while (tier < tiers_.size() && tiers_[tier]->file == nullptr) ++tier;
  return tier < tiers_.size() ? tier : kTiersMax;
}

void StoreState::write_down(std::size_t tier, Work& work) {
  Tier& here = *tiers_[tier];
  const std::size_t below = here.unwritten.empty() ? kTiersMax : file_below(tier);
  while (!here.unwritten.empty()) {
    const detail::Unwritten next = here.unwritten.front();
    Block& block = *next.block;
    Outcome outcome = Outcome::done;  // Replaced, or there already.
    if (block.live && block.is_in(tier) && !block.is_in(below)) {
      bool may_wait = block.moving;
      SlotNumber slot = 0;
      if (!block.moving && !tiers_[below]->is_broken()) slot = take(below, work, may_wait);
      if (slot == 0 && may_wait) return;
      outcome = slot != 0                    ? Outcome::running
                : tiers_[below]->is_broken() ? Outcome::io_failed
                                             : Outcome::full;
      if (slot != 0) {
        here.writing.push_back(next);
        move(block, tier, below, slot, work);
        block.copies = true;
      }
    }
    here.unwritten.pop_front();
    if (outcome != Outcome::running) end_written(next, outcome, work);
  }
}

void StoreState::end_written(const detail::Unwritten& written, Outcome outcome, Work& work) {
  const std::size_t byte_count = outcome == Outcome::done ? written.block->byte_count : 0;
  if (written.batch != nullptr) end(written.batch, written.index, outcome, byte_count, work);
  --written.block->uses;
  tidy(*written.block);
}

Transfer StoreState::flush() {
  constexpr PutBlock kNone;
  if (is_forked()) return put({&kNone, 1}, 0, {});  // Ends as closed.
  BatchPointer batch;
  Work work;
  {
    const Lock lock(mutex_);
    std::vector<std::pair<std::size_t, detail::Unwritten>> found;
    for (Block* const block : index_.all()) {
      const std::size_t tier = block->fastest();
      std::size_t below = tier;
      while (below != kTiersMax && tiers_[below]->file == nullptr) below = block->next_below(below);
      if (tier == kTiersMax || below != kTiersMax || file_below(tier) == kTiersMax) continue;
      found.emplace_back(tier, detail::Unwritten{block, nullptr, 0});
    }
    batch = begin(found.size(), {});
    if (found.empty()) work.end(batch);
    std::uint32_t index = 0;
    for (auto& [tier, unwritten] : found) {
      unwritten.index = index++;
      unwritten.batch = batch;
      ++unwritten.block->uses;
      tiers_[tier]->unwritten.push_back(unwritten);
    }
    serve_waiting(work);
  }
  finish(work);
  return Transfer(batch);
}

void StoreState::end_waiting(Tier& tier, Outcome outcome, Work& work) {
  for (const detail::WaitingPut& put : std::exchange(tier.waiting, {})) {
    index_.give_back(*put.block);
    end(put.batch, put.index, outcome, 0, work);
  }
}

void StoreState::serve_waiting(Work& work) {
  for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
    write_down(tier, work);
    std::deque<detail::WaitingPut>& waiting = tiers_[tier]->waiting;
    while (!waiting.empty()) {
      bool may_wait = false;
      const SlotNumber slot = take(tier, work, may_wait);
      if (slot == 0) {
        if (!may_wait) end_waiting(*tiers_[tier], Outcome::full, work);
        break;
      }
      const detail::WaitingPut put = std::move(waiting.front());
      waiting.pop_front();
      start_put(put, tier, slot, work);
    }
  }
}

}  // namespace headrace::store
