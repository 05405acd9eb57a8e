// SPDX-License-Identifier: Apache-2.0
// The keeper: the store's thread. It makes files durable, which may block, and polls movers without
// a thread.
#include <chrono>

#include "headrace/platform/thread.hpp"
#include "state.hpp"

namespace headrace::store {
namespace {

/// Intervals between polls of devices, and between retries at a full engine.
constexpr std::chrono::microseconds kPollInterval{20};
constexpr std::chrono::milliseconds kFullInterval{1};

}  // namespace

void StoreState::wake_keeper() {
  if (!keeper_sleeps_) return;
  keeper_sleeps_ = false;
  keeper_wake_.notify_one();
}

bool StoreState::has_settling() const {
  for (const std::unique_ptr<Tier>& tier : tiers_) {
    if (!tier->fresh.empty() || !tier->given_up.empty()) return true;
  }
  return false;
}

bool StoreState::is_idle() const {
  for (const std::unique_ptr<Tier>& tier : tiers_) {
    if (!tier->waiting.empty()) return false;
  }
  return running_ == 0 && !has_settling();
}

void StoreState::keep() {
  platform::name_this_thread("hr-store");
  mutex_.lock();
  while (!is_ending_ || !is_idle()) {
    if (has_settling()) {
      const std::size_t tier_count = tiers_.size();
      mutex_.unlock();
      for (std::size_t tier = 0; tier < tier_count; ++tier) settle(tier);
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
    if (has_settling() || (is_ending_ && is_idle())) continue;
    keeper_sleeps_ = true;
    if (polls) {
      static_cast<void>(keeper_wake_.wait_for(mutex_, kPollInterval));
    } else if (!unsent_.empty()) {
      static_cast<void>(keeper_wake_.wait_for(mutex_, kFullInterval));
    } else {
      keeper_wake_.wait(mutex_);
    }
    keeper_sleeps_ = false;
  }
  mutex_.unlock();
}

void StoreState::settle(std::size_t tier) {
  std::vector<Publication> fresh;
  std::vector<SlotNumber> freed;
  std::vector<std::span<const std::byte>> data;
  const detail::TierFile* file = nullptr;
  {
    const Lock lock(mutex_);
    Tier& here = *tiers_[tier];
    file = here.file.get();
    if (file == nullptr || (here.fresh.empty() && here.given_up.empty())) return;
    fresh.swap(here.fresh);
    freed.swap(here.given_up);
    here.settling = freed.size();
    for (const Publication& each : fresh) {
      data.push_back(here.data(each.slot, each.block->byte_count));
    }
  }
  pmem::Medium medium = file->mapping.medium();
  detail::Round round(medium, file->slots);
  for (const SlotNumber slot : freed) round.give_up(slot);
  for (const std::span<const std::byte> each : data) round.add(each);
  const bool is_settled = round.settle();
  if (is_settled) {
    // Headers are stored under the mutex, so that a removal finds them.
    const Lock lock(mutex_);
    for (Publication& each : fresh) {
      Block& block = *each.block;
      if (each.flight == nullptr && !block.live) continue;  // Removed during the move.
      block.sequence = sequences_.at_publication(block.sequence);
      const auto crc = block.has_crc ? std::optional(block.crc) : std::nullopt;
      round.publish(each.slot, detail::slot_header(each.slot, block.key, block.byte_count,
                                                   block.sequence, crc));
      each.published = true;
      block.move_is_published = block.moving;
    }
  }
  const bool is_durable = is_settled && (fresh.empty() || round.finish());
  Work work;
  {
    const Lock lock(mutex_);
    Tier& here = *tiers_[tier];
    for (const Publication& each : fresh) {
      Block& block = *each.block;
      if (each.flight == nullptr) {
        settle_move(block, each.from, tier, each.slot, is_durable && each.published, false);
        continue;
      }
      --here.filling;
      const std::size_t byte_count = is_durable ? block.byte_count : 0;
      if (!is_durable || !commit(block, tier, each.slot)) {
        release(tier, each.slot);
        index_.give_back(block);
      }
      if (is_durable) ++here.statistics.puts;
      statistics_.bytes_in += byte_count;
      end(each.flight, each.index, is_durable ? Outcome::done : Outcome::io_failed, byte_count,
          work);
    }
    for (const SlotNumber slot : freed) here.free_slot(slot);
    here.settling = 0;
    serve_waiting(work);
  }
  finish(work);
}

}  // namespace headrace::store
