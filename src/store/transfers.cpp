// SPDX-License-Identifier: Apache-2.0
// Transfers: batches of puts and gets as engine jobs, from submission to notification.
#include <algorithm>

#include "headrace/base/trace.hpp"
#include "headrace/platform/process.hpp"
#include "state.hpp"

namespace headrace::store {

using detail::Kind;
using detail::TransferBatch;

namespace {

void refuse_all(TransferBatch& batch, Outcome outcome) {
  for (BlockEnd& end : batch.ends) end.outcome = outcome;
}

constexpr engine::Completion kRefused;

}  // namespace

Outcome detail::outcome_of(const engine::Completion& completion) {
  // Even if a processor completed the copy.
  if (completion.late_write_possible) return Outcome::late_write;
  switch (completion.state) {
    case engine::JobState::done:
      return Outcome::done;
    case engine::JobState::stopped:
      return Outcome::closed;
    case engine::JobState::idle:
    case engine::JobState::running:
    case engine::JobState::failed:
      break;
  }
  return Outcome::failed;
}

std::shared_ptr<TransferBatch> TransferBatch::make(std::size_t block_count,
                                                   const TransferOptions& options,
                                                   engine::Waiting waiting) {
  auto batch = std::make_shared<TransferBatch>();
  if (block_count > 1) batch->several.resize(block_count);
  batch->ends = block_count > 1 ? std::span(batch->several) : std::span(&batch->only, block_count);
  batch->left = block_count;
  batch->options = options;
  batch->waiting = waiting;
  return batch;
}

Transfer StoreState::put(std::span<const PutBlock> blocks, std::size_t tier,
                         const TransferOptions& options) {
  const BatchPointer batch = begin(blocks.size(), options);
  Work work;
  work.inline_bytes_max = options_.inline_max.count();
  if (is_forked() || tier >= options_.tiers.size()) {
    refuse_all(*batch, is_forked() ? Outcome::closed : Outcome::no_such_tier);
    work.end(batch);
  } else if (blocks.empty()) {
    work.end(batch);
  } else {
    for (const PutBlock& asked : blocks) __builtin_prefetch(asked.key.data());
    const Lock lock(mutex_);
    Tier& here = *tiers_[tier];
    index_.prefetch_free(blocks.size());
    here.prefetch_free(blocks.size());
    detail::WaitingPut put;
    put.batch = batch;
    for (std::uint32_t i = 0; i < blocks.size(); ++i) {
      const PutBlock& asked = blocks[i];
      const bool fits =
          !asked.source.empty() && asked.source.size() <= options_.block_bytes.count();
      if (!detail::is_key(asked.key) || !fits || here.is_broken()) {
        const Outcome outcome = !detail::is_key(asked.key) ? Outcome::bad_key
                                : !fits                    ? Outcome::wrong_length
                                                           : Outcome::io_failed;
        end(batch, i, outcome, 0, work);
        continue;
      }
      Block& block = index_.make(asked.key, detail::Index::hash_of(asked.key));
      block.byte_count = static_cast<std::uint32_t>(asked.source.size());
      block.sequence = sequences_.at_put();
      put.block = &block;
      put.source = asked.source;
      put.index = i;
      bool may_wait = true;
      // Puts already waiting go first.
      const SlotNumber slot = here.waiting.empty() ? take(tier, work, may_wait) : 0;
      if (slot != 0) {
        start_put(put, tier, slot, work);
      } else if (may_wait) {
        here.waiting.push_back(put);
      } else {
        index_.give_back(block);
        end(batch, i, Outcome::full, 0, work);
      }
    }
  }
  finish(work);
  return Transfer(batch);
}

void StoreState::start_put(const detail::WaitingPut& put, std::size_t tier, SlotNumber slot,
                           Work& work) {
  const Tier& here = *tiers_[tier];
  const std::span<std::byte> target = here.data(slot, put.source.size());
  engine::Operation copy = options_.checksums ? engine::Operation::copy_crc(target, put.source)
                                              : engine::Operation::copy(target, put.source);
  if (here.copies_durably()) copy = copy.durable();
  add_step(
      Kind::put, put.batch,
      {.block = put.block, .index = put.index, .slot = slot, .to = static_cast<std::uint8_t>(tier)},
      copy, work);
}

Transfer StoreState::get(std::span<const GetBlock> blocks, const TransferOptions& options) {
  const BatchPointer batch = begin(blocks.size(), options);
  Work work;
  work.inline_bytes_max = options_.inline_max.count();
  if (is_forked() || blocks.empty()) {
    refuse_all(*batch, Outcome::closed);
    work.end(batch);
  } else {
    for (const GetBlock& asked : blocks) __builtin_prefetch(asked.key.data());
    std::vector<std::uint64_t> hashes(blocks.size());
    std::ranges::transform(blocks, hashes.begin(),
                           [](const GetBlock& asked) { return detail::Index::hash_of(asked.key); });
    const Lock lock(mutex_);
    if (hashes.size() > 1) {
      for (const std::uint64_t hash : hashes) index_.prefetch_bucket(hash);
      for (const std::uint64_t hash : hashes) index_.prefetch_block(hash);
      for (const std::uint64_t hash : hashes) {
        if (const Block* const block = index_.guess(hash); block != nullptr) {
          tiers_[0]->prefetch_entry(block->slots[0]);
        }
      }
    }
    for (std::uint32_t i = 0; i < blocks.size(); ++i) {
      const GetBlock& asked = blocks[i];
      Block* const block = index_.find(asked.key, hashes[i]);
      const std::size_t tier = block == nullptr ? kTiersMax : block->fastest();
      if (tier == kTiersMax || asked.target.size() < block->byte_count) {
        if (tier == kTiersMax) ++statistics_.misses;
        end(batch, i, tier == kTiersMax ? Outcome::unknown_key : Outcome::wrong_length, 0, work);
        continue;
      }
      ++block->uses;
      start_get({.block = block, .index = i, .from = static_cast<std::uint8_t>(tier)},
                asked.target.first(block->byte_count), batch, work);
    }
  }
  if (blocks.size() == 1 && work.ios.size() == 1) start_alone(work);
  finish(work);
  return Transfer(batch);
}

void StoreState::start_get(Step step, std::span<std::byte> target, const BatchPointer& batch,
                           Work& work) {
  const Block& block = *step.block;
  Tier& here = *tiers_[step.from];
  const std::byte* bytes = step.buffer;
  if (bytes == nullptr) {
    bytes = here.touch(block.slots[step.from]);
    if (here.disk() != nullptr) return start_read(Kind::get, step, target, batch, work);
  }
  const std::span source(bytes, block.byte_count);
  add_step(Kind::get, batch, step,
           block.has_crc ? engine::Operation::copy_crc(target, source)
                         : engine::Operation::copy(target, source),
           work);
}

void StoreState::add_step(Kind kind, const BatchPointer& batch, const Step& step,
                          const engine::Operation& operation, Work& work) {
  Chunk*& open = work.open[static_cast<std::size_t>(kind)];
  const std::size_t byte_count = operation.byte_count();
  if (kind != Kind::move) {
    work.byte_count += byte_count;
    // A page of a mapped file may have to be read from disk. What a disk has read is in memory.
    const Tier& here = *tiers_[kind == Kind::get ? step.from : step.to];
    if (here.is_mapped() || (kind == Kind::put && here.file != nullptr)) work.inline_bytes_max = 0;
  }
  const std::optional<NodeId> source_node =
      kind == Kind::put ? std::nullopt : tiers_[step.from]->node;
  const std::optional<NodeId> target_node =
      kind == Kind::get ? std::nullopt : tiers_[step.to]->node;
  if (open == nullptr || open->batch != batch || open->byte_count + byte_count > kChunkBytes ||
      open->steps.size() == kChunkSteps || open->source_node != source_node ||
      open->target_node != target_node) {
    // Clang analyses lambdas without the mutex.
    const auto make = [this]() HEADRACE_TSA(no_thread_safety_analysis) -> Chunk& {
      return *chunks_.emplace_back(std::make_unique<Chunk>());
    };
    open = &free_chunks_.take(make);
    open->store = this;
    open->kind = kind;
    open->batch = batch;
    open->source_node = source_node;
    open->target_node = target_node;
    work.send(*open);
    ++running_;
    if (is_polled_) wake_flusher();
  }
  open->byte_count += byte_count;
  open->operations.push_back(operation);
  open->steps.push_back(step);
}

void StoreState::end(const BatchPointer& batch, std::uint32_t index, Outcome outcome,
                     std::size_t byte_count, Work& work) {
  if (batch->ends[index].outcome != Outcome::running) return;  // At its deadline.
  batch->ends[index] = {.outcome = outcome, .byte_count = static_cast<std::uint32_t>(byte_count)};
  const bool is_failure = outcome == Outcome::failed || outcome == Outcome::late_write ||
                          outcome == Outcome::io_failed || outcome == Outcome::timed_out ||
                          outcome == Outcome::disk_full;
  if (is_failure) ++statistics_.failed;
  if (--batch->left == 0) work.end(batch);
}

void StoreState::finish(Work& work) {
  const bool is_short = work.byte_count <= work.inline_bytes_max;
  for (Chunk* next = work.chunks; next != nullptr;) {
    Chunk& chunk = *next;  // Another thread may reuse it once it is sent.
    next = std::exchange(chunk.next, nullptr);
    send(chunk, is_short && chunk.kind != Kind::move ? work.inline_bytes_max : 0);
  }
  for (auto begin = work.ios.begin(); begin != work.ios.end();) {
    const std::size_t tier = (*begin)->tier;
    const auto end =
        std::find_if(begin, work.ios.end(), [&](const detail::Io* io) { return io->tier != tier; });
    const std::vector<platform::BlockRequest*> requests(begin, end);
    disks_[tier]->io().submit(requests);
    begin = end;
  }
  for (BatchPointer batch = std::move(work.ended); batch != nullptr;
       batch = std::move(batch->next)) {
    // edge: event-made (acquire)
    batch->announce(signalled_.load_acquire());
  }
}

void StoreState::send(Chunk& chunk, std::size_t inline_bytes_max) {
  engine::SubmitOptions options;
  options.source_node = chunk.source_node;
  options.target_node = chunk.target_node;
  options.inline_max = Bytes(inline_bytes_max);
  options.then = [](void* context) noexcept {
    auto& ended = *static_cast<Chunk*>(context);
    ended.store->complete(ended, Outcome::running);
  };
  options.then_context = &chunk;
  const trace::Record part{.id = trace::id_of(chunk.batch.get()),
                           .other = trace::id_of(&chunk.job),
                           .byte_count = chunk.byte_count,
                           .kind = chunk.kind == Kind::put ? trace::Kind::put : trace::Kind::get};
  engine::Submit answer = engine::Submit::accepted;
  try {
    if (chunk.operations.size() == 1) {
      answer = engine_.submit(chunk.job, chunk.operations.front(), options);
    } else {
      chunk.completions.resize(chunk.operations.size());
      answer = engine_.submit_batch(chunk.job, {chunk.operations, chunk.completions}, options);
    }
  } catch (...) {
    // A policy of the engine that throws, or no memory: nothing was submitted.
    return complete(chunk, Outcome::failed);
  }
  if (answer == engine::Submit::accepted) {  // The chunk may already be reused.
    if (part.id != 0) trace::record(part);
    return;
  }
  if (answer == engine::Submit::full) {
    const Lock lock(mutex_);
    unsent_.push_back(&chunk);
    return wake_flusher();
  }
  const bool is_closed = answer == engine::Submit::closed || answer == engine::Submit::forked;
  complete(chunk, is_closed ? Outcome::closed : Outcome::failed);
}

void StoreState::complete(Chunk& chunk, Outcome refused) {
  Work work;
  {
    const Lock lock(mutex_);
    const bool is_alone = chunk.steps.size() == 1;
    if (chunk.kind == Kind::put && !is_alone) prefetch_replaced(chunk);
    for (std::size_t i = 0; i < chunk.steps.size(); ++i) {
      const Step& step = chunk.steps[i];
      const engine::Completion& completion = refused != Outcome::running ? kRefused
                                             : is_alone                  ? chunk.job.completion()
                                                                         : chunk.completions[i];
      const Outcome outcome =
          refused == Outcome::running ? detail::outcome_of(completion) : refused;
      switch (chunk.kind) {
        case Kind::put:
          end_put(chunk.batch, step, outcome, completion, work);
          break;
        case Kind::get:
          end_get(chunk.batch, step, chunk.operations[i].target(), outcome, completion, work);
          break;
        case Kind::move:
          end_move(step, outcome, work);
          break;
      }
    }
    chunk.byte_count = 0;
    chunk.batch.reset();
    chunk.operations.clear();
    chunk.steps.clear();
    free_chunks_.give_back(chunk);
    serve_waiting(work);
    if (!unsent_.empty()) {
      work.send(*unsent_.front());
      unsent_.pop_front();
    }
  }
  finish(work);
  const Lock lock(mutex_);
  --running_;
  if (is_ending_) wake_flusher();
}

void StoreState::prefetch_replaced(const Chunk& chunk) const {
  for (const Step& step : chunk.steps) {
    index_.prefetch_bucket(step.block->hash);
    detail::Index::prefetch(*step.block);
    tiers_[step.to]->prefetch_entry(step.slot);
  }
  for (const Step& step : chunk.steps) index_.prefetch_block(step.block->hash);
  for (const Step& step : chunk.steps) {
    const Block* const before = index_.guess(step.block->hash);
    if (before == nullptr) continue;
    detail::Index::prefetch(*before);
    tiers_[step.to]->prefetch_entry(before->slots[step.to]);
  }
}

void StoreState::end_put(const BatchPointer& batch, const Step& step, Outcome outcome,
                         const engine::Completion& completion, Work& work) {
  Block& block = *step.block;
  Tier& here = *tiers_[step.to];
  if (outcome == Outcome::done) {
    block.has_crc = options_.checksums;
    block.crc = completion.result.crc;
    if (here.disk() != nullptr) return start_write(Kind::put, step, batch, work);
    const Block* const before = has_files_ ? index_.find(block.key, block.hash) : nullptr;
    if (here.file != nullptr || (before != nullptr && has_headers(*before))) {
      return publish_later(Kind::put, step, batch);
    }
    const std::size_t byte_count = block.byte_count;
    ++here.statistics.puts;
    statistics_.bytes_in += byte_count;
    if (Block* const live = commit(block, step.to, step.slot); live != nullptr) {
      end_or_write(*live, step.to, batch, step.index, work);
    } else {
      here.free_slot(step.slot);
      index_.give_back(block);
      end(batch, step.index, outcome, byte_count, work);
    }
  } else {
    if (outcome == Outcome::late_write) {
      ++here.statistics.blocks_lost;
    } else {
      here.give_buffer(step.slot);
      here.free_slot(step.slot);
    }
    index_.give_back(block);
    end(batch, step.index, outcome, 0, work);
  }
  --here.filling;
}

void StoreState::end_get(const BatchPointer& batch, Step step, std::span<std::byte> target,
                         Outcome outcome, const engine::Completion& completion, Work& work) {
  Block& block = *step.block;
  Tier& here = *tiers_[step.from];
  if (step.buffer != nullptr) {
    here.disk()->give_buffer(std::exchange(step.buffer, nullptr));
    feed(step.from, work);
  }
  if (here.fault() != pmem::Fault::none) {
    outcome = Outcome::io_failed;
  } else if (outcome == Outcome::done && block.has_crc && completion.result.crc != block.crc) {
    outcome = Outcome::corrupt;
    ++statistics_.corrupt;
    if (read_elsewhere(step, target, batch, work)) return;
  }
  finish_get(batch, step, outcome, work);
}

bool StoreState::read_elsewhere(Step& step, std::span<std::byte> target, const BatchPointer& batch,
                                Work& work) {
  step.corrupt |= static_cast<std::uint8_t>(1U << step.from);
  const std::size_t next = step.block->next_below(step.from);
  if (next == kTiersMax) return false;
  step.from = static_cast<std::uint8_t>(next);
  start_get(step, target, batch, work);
  return true;
}

void StoreState::finish_get(const BatchPointer& batch, const Step& step, Outcome outcome,
                            Work& work) {
  Block& block = *step.block;
  Tier& here = *tiers_[step.from];
  const std::size_t byte_count = block.byte_count;
  end(batch, step.index, outcome, outcome == Outcome::done ? byte_count : 0, work);
  if (outcome == Outcome::done) {
    ++here.statistics.hits;
    statistics_.bytes_out += byte_count;
    promote(block, step.from, work);  // While in use, so that the block does not evict itself.
  }
  --block.uses;
  if (block.live && step.corrupt == 0) return;
  if (block.live && block.uses == 0) {
    // A copy in use is found again by the next get.
    for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
      if ((step.corrupt >> tier & 1U) == 0 || !block.is_in(tier)) continue;
      const bool is_last = block.fastest() == tier && block.next_below(tier) == kTiersMax;
      if (is_last && outcome == Outcome::io_failed && tiers_[tier]->disk() != nullptr) {
        // The next opening may be able to read it: its header stays, for a put or removal to find.
        block.leaving |= static_cast<std::uint8_t>(1U << tier);
      } else {
        drop_copy(block, tier);
      }
    }
  }
  tidy(block);
}

void StoreState::end_move(const Step& step, Outcome outcome, Work& work) {
  Tier& source = *tiers_[step.from];
  Tier& target = *tiers_[step.to];
  if (step.buffer != nullptr) {
    source.disk()->give_buffer(step.buffer);
    feed(step.from, work);
  }
  if (outcome == Outcome::done && !detail::is_copied(source.fault(), target.fault())) {
    outcome = Outcome::io_failed;
  }
  if (outcome == Outcome::done && target.disk() != nullptr) {
    return start_write(Kind::move, step, nullptr, work);
  }
  if (outcome == Outcome::done && target.file != nullptr) {
    return publish_later(Kind::move, step, nullptr);
  }
  if (outcome != Outcome::late_write) target.give_buffer(step.slot);
  end_move(*step.block, step.from, step.to, step.slot, outcome, outcome == Outcome::late_write,
           work);
}

void StoreState::publish_later(Kind purpose, const Step& step, const BatchPointer& batch) {
  Tier& here = *tiers_[step.to];
  here.fresh.push_back({.block = step.block,
                        .slot = step.slot,
                        .batch = batch,
                        .index = step.index,
                        .from = step.from,
                        .is_move = purpose == Kind::move});
  const bool waits = here.disk() != nullptr && here.fresh.size() != 1 && !here.is_round_due();
  if (!waits) wake_flusher_of(step.to);
}

}  // namespace headrace::store
