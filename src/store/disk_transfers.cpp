// SPDX-License-Identifier: Apache-2.0
// Reads and writes of slots on disks. A get or move reads its slot into a buffer, from which the
// engine copies; a put or move is copied into a buffer, which is then written to its slot.
#include <cerrno>
#include <cstring>
#include <utility>

#include "headrace/base/clock.hpp"
#include "state.hpp"

namespace headrace::store {

using detail::Io;
using detail::Kind;

namespace {

/// In whole pages, which the slots have.
std::size_t io_bytes(std::size_t byte_count) {
  constexpr std::size_t kUnit = platform::kBlockIoAlignment;
  return (byte_count + kUnit - 1) / kUnit * kUnit;
}

Outcome outcome_of(int os_errno) {
  if (os_errno == 0) return Outcome::done;
  return os_errno == ENOSPC || os_errno == EDQUOT ? Outcome::disk_full : Outcome::io_failed;
}

}  // namespace

Io& StoreState::make_io(Kind purpose, std::size_t tier, const Step& step,
                        const BatchPointer& batch) {
  if (free_ios_.empty()) free_ios_.push_back(ios_.emplace_back(std::make_unique<Io>()).get());
  Io& io = *free_ios_.back();
  free_ios_.pop_back();
  io = Io();
  io.tier = tier;
  io.purpose = purpose;
  io.step = step;
  io.batch = batch;
  ++running_;
  return io;
}

void StoreState::launch(Io& io, Work& work) {
  Tier& here = *tiers_[io.tier];
  io.expires = steady_clock().now() + here.disk()->deadline();
  io.failed_flushes = here.failed_flushes;
  here.in_flight.push_back(&io);
  work.ios.push_back(&io);
}

void StoreState::start_alone(Work& work) {
  Io& io = *work.ios.front();
  detail::TransferBatch& batch = *io.batch;
  // edge: event-made (acquire)
  if (batch.options.on_done != nullptr || signalled_.load_acquire() != nullptr) return;
  platform::BlockIo& disk = disks_[io.tier]->io();
  batch.reads = disk.state();
  batch.is_read.store_relaxed(1);  // Advice.
  if (disk.try_read(io)) return work.ios.clear();
  batch.is_read.store_relaxed(0);  // As above.
}

void StoreState::start_read(Kind purpose, const Step& step, std::span<std::byte> target,
                            const BatchPointer& batch, Work& work) {
  Io& io = make_io(purpose, step.from, step, batch);
  io.action = platform::BlockRequest::Action::read;
  io.target = target;
  tiers_[step.from]->reading.push_back(&io);
  feed(step.from, work);
}

void StoreState::feed(std::size_t tier, Work& work) {
  Tier& here = *tiers_[tier];
  while (!here.reading.empty()) {
    Io& io = *here.reading.front();
    io.step.buffer = here.disk()->take_buffer(false);
    if (io.step.buffer == nullptr) return;
    here.reading.pop_front();
    io.offset = here.file->slots.data_offset(io.step.block->slots[tier]);
    io.bytes = {io.step.buffer, io_bytes(io.step.block->byte_count)};
    launch(io, work);
  }
}

void StoreState::start_write(Kind purpose, const Step& step, const BatchPointer& batch,
                             Work& work) {
  Tier& here = *tiers_[step.to];
  const std::size_t byte_count = step.block->byte_count;
  Io& io = make_io(purpose, step.to, step, batch);
  io.action = platform::BlockRequest::Action::write;
  io.offset = here.file->slots.data_offset(step.slot);
  io.bytes = here.data(step.slot, io_bytes(byte_count));
  std::memset(io.bytes.data() + byte_count, 0, io.bytes.size() - byte_count);
  launch(io, work);
}

void StoreState::end_ios(std::size_t tier, std::span<platform::BlockRequest* const> ended) {
  Work work;
  work.inline_bytes_max = options_.inline_max.count();
  {
    const Lock lock(mutex_);
    ++running_;
    Tier& here = *tiers_[tier];
    for (platform::BlockRequest* const request : ended) {
      auto& io = static_cast<Io&>(*request);
      std::erase(here.in_flight, &io);
      if (io.batch != nullptr) io.batch->is_read.store_relaxed(0);  // Advice.
      if (io.is_late) {
        --here.late;
      } else {
        --running_;
      }
      if (io.action == platform::BlockRequest::Action::read) {
        end_read(io, work);
      } else {
        end_write(io, work);
      }
      io.batch.reset();
      free_ios_.push_back(&io);
    }
    feed(tier, work);
    serve_waiting(work);
  }
  finish(work);
  const Lock lock(mutex_);
  --running_;
  if (is_ending_) wake_flusher();
}

void StoreState::end_read(Io& io, Work& work) {
  const Outcome outcome = outcome_of(io.os_errno);
  Block& block = *io.step.block;
  Tier& here = *tiers_[io.tier];
  if (outcome == Outcome::done && !io.is_late && io.purpose == Kind::get) {
    return start_get(io.step, io.target, io.batch, work);
  }
  if (outcome == Outcome::done && io.purpose == Kind::move) {
    return copy_move(io.step, {io.step.buffer, block.byte_count}, work);
  }
  here.disk()->give_buffer(std::exchange(io.step.buffer, nullptr));
  if (io.purpose == Kind::move) return end_move(io.step, outcome, work);
  if (io.is_late) return finish_get(io.batch, io.step, Outcome::timed_out, work);
  here.bad.insert(block.slots[io.tier]);
  if (!read_elsewhere(io.step, io.target, io.batch, work)) {
    finish_get(io.batch, io.step, outcome, work);
  }
}

void StoreState::end_write(Io& io, Work& work) {
  Outcome outcome = outcome_of(io.os_errno);
  Tier& here = *tiers_[io.tier];
  here.give_buffer(io.step.slot);
  const bool is_bad = io.os_errno == EIO;
  // Deleted, cut off, read-only: no other place would do.
  here.file_failed = outcome == Outcome::io_failed && !is_bad;
  if (outcome == Outcome::done) {
    if (io.failed_flushes == here.failed_flushes)
      return publish_later(io.purpose, io.step, io.batch);
    outcome = Outcome::io_failed;
  }
  if (io.purpose == Kind::move) {
    return end_move(*io.step.block, io.step.from, io.step.to, io.step.slot, outcome, is_bad, work);
  }
  if (is_bad) {
    ++here.statistics.blocks_lost;
  } else {
    here.free_slot(io.step.slot);
  }
  --here.filling;
  index_.give_back(*io.step.block);
  end(io.batch, io.step.index, outcome, 0, work);
}

void StoreState::expire(Work& work) {
  const std::chrono::nanoseconds now = steady_clock().now();
  for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
    Tier& here = *tiers_[tier];
    for (Io* const io : here.in_flight) {
      if (io->is_late) continue;
      if (io->expires > now) break;
      io->is_late = true;
      ++here.late;
      --running_;
      if (io->purpose != Kind::move) {
        end(io->batch, io->step.index, Outcome::timed_out, 0, work);
        continue;
      }
      for (const detail::Unwritten& each : tiers_[io->step.from]->writing) {
        if (each.block != io->step.block || each.batch == nullptr) continue;
        end(each.batch, each.index, Outcome::timed_out, 0, work);
      }
    }
    if (!here.hangs()) continue;
    // What waits for the disk would wait in vain.
    for (Io* const io : std::exchange(here.reading, {})) {
      --running_;
      free_ios_.push_back(io);
      if (io->purpose == Kind::move) {
        end_move(io->step, Outcome::timed_out, work);
      } else {
        finish_get(io->batch, io->step, Outcome::timed_out, work);
      }
      io->batch.reset();
    }
    end_waiting(here, Outcome::timed_out, work);
    serve_waiting(work);  // What was to be written to it.
  }
}

}  // namespace headrace::store
