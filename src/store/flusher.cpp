// SPDX-License-Identifier: Apache-2.0
// The flusher: the store's thread. It makes files durable, which may block, and polls movers
// without a thread.
#include <chrono>
#include <utility>

#include "headrace/platform/thread.hpp"
#include "state.hpp"

namespace headrace::store {
namespace {

/// Intervals between polls of devices, and between retries at a full engine.
constexpr std::chrono::microseconds kPollInterval{20};
constexpr std::chrono::milliseconds kFullInterval{1};

}  // namespace

void StoreState::wake_flusher() {
  if (!flusher_sleeps_) return;
  flusher_sleeps_ = false;
  flusher_wake_.notify_one();
}

bool StoreState::has_unflushed() const {
  for (const std::unique_ptr<Tier>& tier : tiers_) {
    if (!tier->fresh.empty() || !tier->retired.empty()) return true;
  }
  return false;
}

bool StoreState::is_idle() const {
  for (const std::unique_ptr<Tier>& tier : tiers_) {
    if (!tier->waiting.empty()) return false;
  }
  return running_ == 0 && !has_unflushed();
}

void StoreState::keep() {
  platform::name_this_thread("hr-store");
  mutex_.lock();
  while (!is_ending_ || !is_idle()) {
    if (has_unflushed()) {
      const std::size_t tier_count = tiers_.size();
      mutex_.unlock();
      for (std::size_t tier = 0; tier < tier_count; ++tier) flush(tier);
      mutex_.lock();
    }
    if (!unsent_.empty()) {
      Work work;
      work.chunks.push_back(unsent_.front());
      unsent_.pop_front();
      mutex_.unlock();
      finish(work);
      mutex_.lock();
    }
    const bool polls = is_polled_ && running_ != 0;
    if (polls) {
      mutex_.unlock();
      engine_.poll();
      mutex_.lock();
    }
    if (has_unflushed() || (is_ending_ && is_idle())) continue;
    flusher_sleeps_ = true;
    if (polls) {
      static_cast<void>(flusher_wake_.wait_for(mutex_, kPollInterval));
    } else if (!unsent_.empty()) {
      static_cast<void>(flusher_wake_.wait_for(mutex_, kFullInterval));
    } else {
      flusher_wake_.wait(mutex_);
    }
    flusher_sleeps_ = false;
  }
  mutex_.unlock();
}

void StoreState::flush(std::size_t tier) {
  std::vector<Publication> fresh;
  std::vector<detail::Retired> freed;
  std::vector<std::span<const std::byte>> data;
  detail::TierFile* file = nullptr;
  {
    const Lock lock(mutex_);
    Tier& here = *tiers_[tier];
    file = here.file.get();
    if (here.fresh.empty() && here.retired.empty()) return;
    fresh.swap(here.fresh);
    freed.swap(here.retired);
    here.being_freed = freed.size();
    for (const Publication& each : fresh) {
      data.push_back(here.data(each.slot, each.block->byte_count));
    }
  }
  const bool is_durable = file == nullptr || write(*file, freed, fresh, data);
  Work work;
  {
    const Lock lock(mutex_);
    Tier& here = *tiers_[tier];
    for (const Publication& each : fresh) {
      if (each.batch != nullptr) continue;
      end_move(*each.block, each.from, tier, each.slot, is_durable && each.published, false);
    }
    for (const detail::Retired& each : freed) {
      if (each.block != nullptr) {
        here.remove(each.slot);
        each.block->slots[tier] = 0;
        each.block->leaving &= static_cast<std::uint8_t>(~(1U << tier));
        --each.block->uses;
        tidy(*each.block);
      }
      here.free_slot(each.slot);
    }
    here.being_freed = 0;
    serve_waiting(work);
  }
  std::erase_if(fresh, [](const Publication& each) { return each.batch == nullptr; });
  end_puts(tier, std::move(fresh), is_durable, work);
  finish(work);
}

bool StoreState::write(detail::TierFile& file, std::span<const detail::Retired> freed,
                       std::span<Publication> fresh,
                       std::span<const std::span<const std::byte>> data) {
  pmem::Medium medium = file.mapping.medium();
  detail::Round round(medium, file.slots);
  for (const detail::Retired& each : freed) round.retire(each.slot);
  for (const std::span<const std::byte> each : data) round.add(each);
  if (!round.flush()) return false;
  if (fresh.empty()) return true;
  std::vector<detail::SlotHeader> headers(fresh.size());
  {
    // A removal either finds a header of these, and waits for this mutex to invalidate it, or has
    // marked the block as ending.
    const Lock headers_lock(file.headers);
    {
      const Lock lock(mutex_);
      for (std::size_t i = 0; i < fresh.size(); ++i) {
        Block& block = *fresh[i].block;
        // Removed or replaced during the move.
        if (fresh[i].batch == nullptr && (!block.live || block.ending)) continue;
        block.sequence = sequences_.at_publication(block.sequence);
        const auto crc = block.has_crc ? std::optional(block.crc) : std::nullopt;
        headers[i] =
            detail::slot_header(fresh[i].slot, block.key, block.byte_count, block.sequence, crc);
        fresh[i].published = true;
        block.move_is_published = block.moving;
      }
    }
    for (std::size_t i = 0; i < fresh.size(); ++i) {
      if (fresh[i].published) round.publish(fresh[i].slot, headers[i]);
    }
  }
  return round.finish();
}

void StoreState::end_puts(std::size_t tier, std::vector<Publication> puts, bool is_durable,
                          Work& work) {
  std::vector<detail::HeaderPlace> headers;
  std::vector<Block*> replaced;
  while (!puts.empty()) {
    invalidate(headers);
    headers.clear();
    std::vector<Publication> left;
    {
      const Lock lock(mutex_);
      Tier& here = *tiers_[tier];
      for (Block* const block : replaced) cleared(*block);
      replaced.clear();
      for (Publication& put : puts) {
        Block& block = *put.block;
        Block* const before = index_.find(block.key, block.hash);
        put.outdated = put.outdated || (before != nullptr && before->sequence > block.sequence);
        if (is_durable && put.outdated && std::exchange(put.published, false)) {
          headers.push_back({here.file.get(), put.slot});
          left.push_back(std::move(put));
          continue;
        }
        if (is_durable && !put.outdated && before != nullptr && has_headers(*before)) {
          begin_ending(*before, headers);
          replaced.push_back(before);
          left.push_back(std::move(put));
          continue;
        }
        const std::size_t byte_count = is_durable ? block.byte_count : 0;
        if (!is_durable || put.outdated || !commit(block, tier, put.slot)) {
          release(tier, put.slot);
          index_.give_back(block);
        }
        --here.filling;
        if (is_durable) ++here.statistics.puts;
        statistics_.bytes_in += byte_count;
        end(put.batch, put.index, is_durable ? Outcome::done : Outcome::io_failed, byte_count,
            work);
      }
      serve_waiting(work);
    }
    puts = std::move(left);
  }
}

}  // namespace headrace::store
