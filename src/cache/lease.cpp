// SPDX-License-Identifier: Apache-2.0
#include "lease.hpp"

#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#include "headrace/base/check.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/platform/thread.hpp"

namespace headrace::cache::detail {
namespace {

/// All readers. Those of ended threads are reused; the leases in their slots stay valid.
///
/// Threading: shared.
class Readers {
 public:
  [[nodiscard]] Reader& attach() {
    const Lock lock(mutex_);
    if (!idle_.empty()) {
      Reader& reader = *idle_.back();
      idle_.pop_back();
      return reader;
    }
    const auto index = static_cast<std::uint32_t>(all_.size());
    idle_.reserve(all_.size() + 1);  // detach() must not fail.
    all_.reserve(all_.size() + 1);   // A registered reader cannot be removed.
    return *all_.emplace_back(std::make_unique<Reader>(registry_, index));
  }
  void detach(Reader& reader) noexcept {
    const Lock lock(mutex_);
    reader.presence().state.exchange_seq_cst(Presence::kParked);  // edge: turn-seen (acq_rel)
    idle_.push_back(&reader);
  }
  [[nodiscard]] Registry& registry() { return registry_; }

 private:
  Registry registry_{platform::has_heavy_barrier() ? Barriers::unequal : Barriers::equal};
  Mutex mutex_;
  std::vector<std::unique_ptr<Reader>> all_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<Reader*> idle_ HEADRACE_GUARDED_BY(mutex_);
};

Readers& readers() {
  // Never destroyed: handles may be dropped while static objects are being destroyed.
  static Readers& instance = *new Readers;  // NOLINT(bugprone-unhandled-exception-at-new)
  return instance;
}

}  // namespace

/// Frees the reader for another thread when this one ends.
///
/// Threading: owned.
struct Attachment {
  Reader* reader = nullptr;
  ~Attachment() {
    Reader::this_one_ = nullptr;
    if (reader != nullptr) readers().detach(*reader);
  }
};

thread_local constinit Reader* Reader::this_one_ = nullptr;

Reader& Reader::attach() {
  if (!platform::can_end_objects()) throw std::bad_alloc();
  thread_local Attachment attachment;
  this_one_ = &readers().attach();
  attachment.reader = this_one_;
  return *this_one_;
}

Registry& Reader::registry() {
  return readers().registry();
}

void Reader::grow() {
  HEADRACE_CHECK(chunk_count_ < kChunkMax, "handles that one thread got fit 2^31 slots");
  const std::uint32_t count = std::max(Chunk::kSlotCountMin, slot_count_);
  auto chunk = std::make_unique<Chunk>();
  chunk->slot_count = count;
  chunk->presence = &presence_;
  chunk->slots =
      static_cast<Slot*>(::operator new(count * sizeof(Slot), std::align_val_t{kApartBytes}));
  std::uninitialized_value_construct_n(chunk->slots, count);
  registry_.add(*chunk);
  chunk_index_ = chunk_count_;
  slot_index_ = 0;
  slot_count_ += count;
  chunks_[chunk_count_++] = chunk.release();
  last_ = chunks_[chunk_index_]->slots;
  chunks_[chunk_index_]->used_count.exchange_seq_cst(1);
}

Slot& Reader::search() {
  for (std::uint32_t tried_count = 0; tried_count <= slot_count_ / 2; ++tried_count) {
    Chunk* chunk = chunks_[chunk_index_];
    if (++slot_index_ >= chunk->slot_count) {
      slot_index_ = 0;
      chunk_index_ = (chunk_index_ + 1) % chunk_count_;
      chunk = chunks_[chunk_index_];
    }
    Slot& slot = chunk->slots[slot_index_];
    if (slot.word.load_acquire() != 0) continue;            // edge: lease-ended (acquire)
    if (chunk->used_count.load_relaxed() <= slot_index_) {  // relaxed: only this thread writes it.
      // seq_cst, as the occupy() that follows, which sees a dropper that reads the old count.
      chunk->used_count.exchange_seq_cst(slot_index_ + 1);
    }
    last_ = &slot;
    return slot;
  }
  grow();
  return *last_;
}

}  // namespace headrace::cache::detail
