// SPDX-License-Identifier: Apache-2.0
// Rings on libpmem2's primitives, to compare the optimised ring with.
//   balcer   Balcer's optimised ring plus a missing drain: fixed slots, non-temporal copy,
//            positions made durable by every step.
//   staged   Our records, written as libpmem2 recommends: assembled in DRAM with the checksum,
//            copied by one non-temporal memcpy, one drain; no durable position.
//   same     Our ring, with stores, flushes and fences by libpmem2.
#pragma once

#include <libpmem2.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "block_ring.hpp"
#include "headrace/base/atomic.hpp"

namespace headrace::bench {

/// libpmem2's functions for a mapping, with the interface of pmem::Medium.
///
/// Threading: confined.
struct Pmem2Memory {
  pmem2_memcpy_fn copy_bytes = nullptr;
  pmem2_flush_fn flush_bytes = nullptr;
  pmem2_drain_fn drain_all = nullptr;
  pmem2_persist_fn persist_bytes = nullptr;

  void store(std::byte* target, std::span<const std::byte> source) const {
    if (!source.empty()) std::memcpy(target, source.data(), source.size());
  }
  void store_word(std::uint64_t& target, std::uint64_t value) const {
    // edge: ring-words (release)
    store_release(target, value);
  }
  void stream(std::byte* target, std::span<const std::byte> lines,
              pmem::Digest* digest = nullptr) const {
    if (digest != nullptr) pmem::digest_lines(lines, *digest);
    copy_bytes(target, lines.data(), lines.size(), PMEM2_F_MEM_NONTEMPORAL | PMEM2_F_MEM_NODRAIN);
  }
  void flush(const void* begin, std::size_t byte_count) const { flush_bytes(begin, byte_count); }
  void drain() const { drain_all(); }
  void persist(const void* begin, std::size_t byte_count) const {
    persist_bytes(begin, byte_count);
  }
  void label(const char* /*text*/) const {}
  [[nodiscard]] pmem::Fault fault() const { return pmem::Fault::none; }
};

/// Balcer's ring, with both ends in one object.
///
/// Threading: confined.
class SeedRing {
 public:
  SeedRing(const Pmem2Memory& memory, std::span<std::byte> bytes, std::size_t entry_bytes)
      : memory_(memory),
        positions_(reinterpret_cast<Positions*>(bytes.data())),
        slots_(bytes.data() + 4096),
        slot_bytes_((sizeof(std::uint64_t) + entry_bytes + 63) / 64 * 64) {
    while ((slot_count_ * 2) * slot_bytes_ <= bytes.size() - 4096) slot_count_ *= 2;
    *positions_ = {};
  }

  bool enqueue(std::span<const std::byte> entry) {
    const std::uint64_t w = positions_->write;
    const std::uint64_t r = load_acquire(positions_->read);  // edge: ring-words (acquire)
    memory_.persist_bytes(positions_, sizeof(*positions_));
    const std::uint64_t next = (w + 1) & (slot_count_ - 1);
    if (next == r) return false;
    std::byte* const slot = slots_ + w * slot_bytes_;
    const std::uint64_t byte_count = entry.size();
    memory_.copy_bytes(slot, &byte_count, sizeof(byte_count), PMEM2_F_MEM_NODRAIN);
    memory_.copy_bytes(slot + sizeof(byte_count), entry.data(), entry.size(),
                       PMEM2_F_MEM_NONTEMPORAL | PMEM2_F_MEM_NODRAIN);
    // The original lacks this drain; its position may become durable before its entry.
    memory_.drain_all();
    store_release(positions_->write, next);  // edge: ring-words (release)
    memory_.persist_bytes(&positions_->write, sizeof(positions_->write));
    return true;
  }

  bool dequeue(std::span<std::byte> target) {
    const std::uint64_t r = positions_->read;
    const std::uint64_t w = load_acquire(positions_->write);  // edge: ring-words (acquire)
    memory_.persist_bytes(positions_, sizeof(*positions_));
    if (r == w) return false;
    const std::byte* const slot = slots_ + r * slot_bytes_;
    std::uint64_t byte_count = 0;
    std::memcpy(&byte_count, slot, sizeof(byte_count));
    std::memcpy(target.data(), slot + sizeof(byte_count), byte_count);
    store_release(positions_->read, (r + 1) & (slot_count_ - 1));  // edge: ring-words (release)
    memory_.persist_bytes(&positions_->read, sizeof(positions_->read));
    return true;
  }

 private:
  struct Positions {
    std::uint64_t read = 0;
    std::uint64_t write = 0;
  };
  Pmem2Memory memory_;
  Positions* positions_;
  std::byte* slots_;
  std::size_t slot_bytes_;
  std::size_t slot_count_ = 1;
};

/// Our record, assembled in DRAM and copied at once.
///
/// Threading: confined.
class StagedProducer {
 public:
  StagedProducer(const Pmem2Memory& memory, const pmem::detail::RingMemory& ring)
      : memory_(memory), ring_(ring), staged_(ring.capacity_bytes / 8) {}

  pmem::Enqueue enqueue_all(std::span<const std::span<const std::byte>> entries) {
    for (const std::span<const std::byte> entry : entries) append(entry);
    return pmem::Enqueue::done;
  }

 private:
  void append(std::span<const std::byte> entry) {
    const std::uint64_t byte_count = pmem::detail::record_bytes(entry.size());
    if (byte_count > ring_.before_end(position_)) {
      write({}, pmem::detail::RecordHeader::kSkip, pmem::kBlockBytes);
      position_ += ring_.before_end(position_);
    }
    write(entry, static_cast<std::uint32_t>(entry.size()), byte_count);
    position_ += byte_count;
    ++ordinal_;
    // edge: ring-words (release)
    store_release(ring_.head->producer.written, position_);
  }

  void write(std::span<const std::byte> entry, std::uint32_t length, std::uint64_t byte_count) {
    const pmem::detail::RecordHeader header{.position = position_,
                                            .ordinal = ordinal_,
                                            .batch_position = position_,
                                            .byte_count = length,
                                            .generation = 1};
    std::memcpy(staged_.data(), &header, sizeof(header));
    if (!entry.empty()) std::memcpy(staged_.data() + sizeof(header), entry.data(), entry.size());
    std::fill(staged_.begin() + static_cast<std::ptrdiff_t>(sizeof(header) + entry.size()),
              staged_.begin() + static_cast<std::ptrdiff_t>(byte_count), std::byte{0});
    pmem::Digest digest;
    pmem::digest_lines({staged_.data(), byte_count}, digest);
    const std::uint64_t checksum = digest.value(ring_.ring_id);
    std::memcpy(staged_.data(), &checksum, sizeof(checksum));
    memory_.copy_bytes(ring_.at(position_), staged_.data(), byte_count, PMEM2_F_MEM_NONTEMPORAL);
  }

  Pmem2Memory memory_;
  pmem::detail::RingMemory ring_;
  std::vector<std::byte> staged_;
  std::uint64_t position_ = 0;
  std::uint64_t ordinal_ = 0;
};

}  // namespace headrace::bench
