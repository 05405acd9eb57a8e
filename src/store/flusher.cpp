// SPDX-License-Identifier: Apache-2.0
// The flusher: the store's thread. It makes mapped files durable, which may block, polls movers
// without a thread and watches deadlines. A tier on a disk has a thread that makes it durable.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "headrace/base/clock.hpp"
#include "headrace/platform/thread.hpp"
#include "state.hpp"

namespace headrace::store {
namespace {

/// Intervals between polls of devices, and between retries at a full engine.
constexpr std::chrono::microseconds kPollInterval{20};
constexpr std::chrono::milliseconds kFullInterval{1};
/// Between looks whether clients still read in place what a put waits for.
constexpr std::chrono::milliseconds kLeasedInterval{10};
/// Each round takes a flush of the disk, so one waits this long for blocks that are being written,
/// and longer if it would only free slots.
constexpr std::chrono::milliseconds kGatherMax{2};
constexpr std::chrono::milliseconds kGatherFreedMax{20};
/// Interval between attempts to make removals durable on a disk that fails.
constexpr std::chrono::milliseconds kFailedInterval{200};

}  // namespace

void StoreState::wake_flusher() {
  if (!flusher_sleeps_) return;
  flusher_sleeps_ = false;
  flusher_wake_.notify_one();
}

void StoreState::wake_flusher_of(std::size_t tier) {
  Tier& here = *tiers_[tier];
  if (here.disk() == nullptr) return wake_flusher();
  here.flushes.notify_one();
}

bool StoreState::has_unflushed(bool on_disks) const {
  for (const std::unique_ptr<Tier>& tier : tiers_) {
    if (tier->disk() != nullptr && !on_disks) continue;
    // What could not be made durable is tried again, but not for ever.
    const bool frees = !tier->retired.empty() && !(is_ending_ && tier->failed_to_flush);
    if (!tier->fresh.empty() || frees) return true;
  }
  return false;
}

bool StoreState::is_idle() const {
  for (const std::unique_ptr<Tier>& tier : tiers_) {
    if (!tier->waiting.empty() || !tier->unwritten.empty()) return false;
  }
  return running_ == 0 && !has_unflushed(true);
}

Result<void> StoreState::start_threads() {
  const std::string tried = "make the threads of a store";
  {
    const Lock lock(mutex_);
    for (const std::unique_ptr<Tier>& tier : tiers_) disks_.push_back(tier->disk());
  }
  for (std::size_t tier = 0; tier < disks_.size(); ++tier) {
    if (disks_[tier] == nullptr) continue;
    interval_ = std::min(interval_, disks_[tier]->deadline() / 4);
    disks_[tier]->start(
        [this, tier](std::span<platform::BlockRequest* const> ended) { end_ios(tier, ended); });
    auto thread = platform::start_thread(tried, &StoreState::keep_disk, this, tier);
    if (!thread) return fail(std::move(thread.error()));
    disk_flushers_.push_back(std::move(*thread));
  }
  auto flusher = platform::start_thread(tried, &StoreState::keep, this);
  if (!flusher) return fail(std::move(flusher.error()));
  flusher_ = std::move(*flusher);
  return {};
}

void StoreState::keep() {
  platform::name_this_thread("hr-store");
  mutex_.lock();
  while (!is_ending_ || !is_idle()) {
    if (has_unflushed(false)) {
      mutex_.unlock();
      for (std::size_t tier = 0; tier < disks_.size(); ++tier) {
        if (disks_[tier] == nullptr) flush(tier);
      }
      mutex_.lock();
    }
    Work work;
    if (!unsent_.empty()) {
      work.send(*unsent_.front());
      unsent_.pop_front();
    }
    expire(work);
    serve_waiting(work);
    mutex_.unlock();
    finish(work);
    mutex_.lock();
    const bool polls = is_polled_ && running_ != 0;
    if (polls) {
      mutex_.unlock();
      engine_.poll();
      mutex_.lock();
    }
    if (has_unflushed(false) || (is_ending_ && is_idle())) continue;
    flusher_sleeps_ = true;
    const bool awaits_clients = !tiers_[0]->leased.empty() && !tiers_[0]->waiting.empty();
    const std::chrono::nanoseconds time_max = polls              ? kPollInterval
                                              : !unsent_.empty() ? kFullInterval
                                              : awaits_clients   ? kLeasedInterval
                                                                 : interval_;
    static_cast<void>(flusher_wake_.wait_for(mutex_, time_max));
    flusher_sleeps_ = false;
  }
  mutex_.unlock();
}

void StoreState::keep_disk(std::size_t tier) {
  platform::name_this_thread("hr-flush");
  mutex_.lock();
  Tier& here = *tiers_[tier];
  std::chrono::nanoseconds since{};  // When the round was first waited for, and for what.
  bool has_fresh = false;
  while (!has_ended_) {
    if (here.fresh.empty() && here.retired.empty()) {
      here.flushes.wait(mutex_);
      since = {};
      continue;
    }
    const std::chrono::nanoseconds now = steady_clock().now();
    if (has_fresh == here.fresh.empty() || since.count() == 0) since = now;
    has_fresh = !here.fresh.empty();
    const auto until = since + (has_fresh ? kGatherMax : kGatherFreedMax);
    if (!is_ending_ && !here.is_round_due() && now < until) {
      static_cast<void>(here.flushes.wait_for(mutex_, until - now));
      continue;
    }
    since = {};
    ++running_;
    mutex_.unlock();
    flush(tier);
    mutex_.lock();
    --running_;
    if (is_ending_) wake_flusher();
    if (here.failed_to_flush && here.fresh.empty() && !has_ended_) {
      static_cast<void>(here.flushes.wait_for(mutex_, kFailedInterval));
    }
  }
  mutex_.unlock();
}

void StoreState::flush(std::size_t tier) {
  std::vector<Publication> fresh;
  std::vector<detail::Retired> freed;
  detail::TierFile* file = nullptr;
  bool has_checksums = false;
  {
    const Lock lock(mutex_);
    Tier& here = *tiers_[tier];
    file = here.file.get();
    if (here.fresh.empty() && here.retired.empty()) return;
    fresh.swap(here.fresh);
    freed.swap(here.retired);
    here.being_freed = freed.size();
    has_checksums =
        std::ranges::all_of(fresh, [](const Publication& each) { return each.block->has_crc; });
  }
  // If recovery can compare the data, it need not be durable before the headers are stored.
  const bool shares_a_flush = has_checksums && !fresh.empty() && file != nullptr &&
                              file->disk != nullptr &&
                              options_.tiers[tier].durability == Durability::power;
  const bool is_durable =
      file == nullptr || write(*file, freed, fresh, shares_a_flush ? ++file->stamp : 0);
  const bool is_on_disk = file != nullptr && file->disk != nullptr;
  // A block that is about to fail must not be there after a kill.
  std::vector<detail::HeaderPlace> failed;
  for (const Publication& each : fresh) {
    if (each.published && !is_durable) failed.push_back({file, each.slot});
  }
  if (!is_on_disk || !file->disk->hangs()) static_cast<void>(invalidate(failed));
  if (is_on_disk && !is_durable) file->disk->medium().forget_losses();
  Work work;
  {
    const Lock lock(mutex_);
    Tier& here = *tiers_[tier];
    here.failed_to_flush = is_on_disk && !is_durable;
    if (here.failed_to_flush) {
      // Also what has been written meanwhile: the next flush may not report that it was lost.
      ++here.failed_flushes;
      std::ranges::move(std::exchange(here.fresh, {}), std::back_inserter(fresh));
    }
    for (const Publication& each : fresh) {
      if (!each.is_move) continue;
      const bool done = is_durable && each.published;
      end_move(*each.block, each.from, tier, each.slot, done ? Outcome::done : Outcome::io_failed,
               false, work);
    }
    for (const detail::Retired& each : freed) {
      if (here.failed_to_flush) {
        here.retired.push_back(each);
        continue;
      }
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
    // No slot becomes free while rounds fail.
    if (here.failed_to_flush) end_waiting(here, Outcome::io_failed, work);
    serve_waiting(work);
  }
  std::erase_if(fresh, [](const Publication& each) { return each.is_move; });
  end_puts(tier, std::move(fresh), is_durable, work);
  finish(work);
}

bool StoreState::write(detail::TierFile& file, std::span<const detail::Retired> freed,
                       std::span<Publication> fresh, std::uint64_t stamp) {
  return file.with_medium([&](auto& medium) {
    detail::Round round(medium, file.slots, stamp);
    for (const detail::Retired& each : freed) round.retire(each.slot);
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
          if (fresh[i].is_move && (!block.live || block.ending)) continue;
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
  });
}

void StoreState::end_puts(std::size_t tier, std::vector<Publication> puts, bool is_durable,
                          Work& work) {
  std::vector<detail::HeaderPlace> headers;
  std::vector<Block*> replaced;
  const detail::TierFile* home = nullptr;
  while (!puts.empty()) {
    const bool is_certain = invalidate(headers, home);
    headers.clear();
    std::vector<Publication> left;
    {
      const Lock lock(mutex_);
      Tier& here = *tiers_[tier];
      home = here.file.get();
      for (Block* const block : replaced) cleared(*block, is_certain);
      replaced.clear();
      for (Publication& put : puts) {
        Block& block = *put.block;
        // Else the next opening may find what it replaces, if this one is evicted before.
        put.failed = put.failed || !is_certain;
        const bool is_done = is_durable && !put.failed;
        Block* const before = index_.find(block.key, block.hash);
        put.outdated = put.outdated || (before != nullptr && before->sequence > block.sequence);
        if ((put.outdated || !is_certain) && std::exchange(put.published, false)) {
          headers.push_back({here.file.get(), put.slot});
          left.push_back(std::move(put));
          continue;
        }
        if (is_done && !put.outdated && before != nullptr && has_headers(*before)) {
          begin_ending(*before, headers);
          replaced.push_back(before);
          left.push_back(std::move(put));
          continue;
        }
        const std::size_t byte_count = is_done ? block.byte_count : 0;
        --here.filling;
        if (is_done) ++here.statistics.puts;
        statistics_.bytes_in += byte_count;
        const Outcome outcome = is_done        ? Outcome::done
                                : here.hangs() ? Outcome::timed_out
                                               : Outcome::io_failed;
        Block* const live = is_done && !put.outdated ? commit(block, tier, put.slot) : nullptr;
        if (live != nullptr) {
          end_or_write(*live, tier, put.batch, put.index, work);
          continue;
        }
        release(tier, put.slot);
        index_.give_back(block);
        end(put.batch, put.index, outcome, byte_count, work);
      }
      serve_waiting(work);
    }
    puts = std::move(left);
  }
}

}  // namespace headrace::store
