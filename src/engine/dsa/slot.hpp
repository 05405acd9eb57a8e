// SPDX-License-Identifier: Apache-2.0
// Slot: room for what one DSA mover has in flight at one place, and the few ways to touch what the
// device reads and writes there. Not for: whose a slot is (queue.hpp).
#pragma once

#include <algorithm>
#include <memory>

#include "codec.hpp"
#include "headrace/dsa/descriptor.hpp"
#include "headrace/platform/ticks.hpp"
#include "queue.hpp"

namespace headrace::engine {
namespace detail {

inline constexpr std::uint32_t kRecordFlags =
    dsa::flag::record_address_valid | dsa::flag::request_record;

/// Stands in a record whose descriptor the queue has not taken yet, so that pollers see to it. No
/// device writes it.
inline constexpr std::uint8_t kUnsent = 0xfe;

inline void set_status(dsa::CompletionRecord& record, std::uint8_t status) noexcept {
  // Relaxed: the submission of the descriptor, or the posting of the slot, comes after.
  store_relaxed(const_cast<std::uint8_t&>(record.status), status);
}

/// dsa::load_status, in line.
inline std::uint8_t status_of(const dsa::CompletionRecord& record) noexcept {
  // edge: completion-record (acquire)
  return headrace::load_acquire(const_cast<const std::uint8_t&>(record.status));
}

}  // namespace detail

struct alignas(64) DsaQueue::Slot {
  dsa::Descriptor descriptor;
  dsa::CompletionRecord record;
  /// Read by pollers that do not own the slot.
  Atomic<std::uint64_t> posted_ticks{0};

  Request* request = nullptr;
  /// The request is a copy of one descriptor: nothing below is written until its record tells
  /// anything but success.
  bool simple = false;
  /// The descriptor is that of a plain copy and lacks only the operands.
  bool prepared = false;
  bool lost = false;
  bool durable = false;          ///< Something of it has to leave the caches.
  std::uint8_t tries = 0;        ///< In vain, of what is in flight.
  std::uint64_t full_ticks = 0;  ///< Since when the queue refuses; 0 if it does not.

  // What is done by bytes, piece after piece: the stripe of a request that is no batch, or a single
  // operation of a batch. While a list is in flight there is none.
  const Operation* operation = nullptr;
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t at = 0;     ///< Up to here it is done.
  std::size_t piece = 0;  ///< What is in flight.
  Completion one;

  // Of a batch, by operations.
  std::size_t next = 0;      ///< All before it have ended.
  std::size_t list_end = 0;  ///< From here on none begins.
  /// Bit i: operation next + i has ended, before `next` itself has.
  std::uint64_t done = 0;
  /// The same of those in flight, with the records at i.
  std::uint64_t sent = 0;
  bool copies = false;  ///< What is in flight are as many copies as `piece` says, and nothing else.
  Completion whole;
  // Its descriptors and their records, apart from the slot, which most jobs need alone.
  std::unique_ptr<dsa::Descriptor[]> descriptors;
  std::unique_ptr<dsa::CompletionRecord[]> records;
  /// So many descriptors, from the first on, are those of copies and lack only their operands.
  std::size_t prepared_count = 0;

  /// How it ended.
  [[nodiscard]] Completion& outcome() { return request->is_batch() ? whole : one; }
  /// What is in flight are the next `count` of the batch, all of them copies.
  void send_copies(std::size_t count) {
    copies = true;
    piece = count;
    sent = ~std::uint64_t{0} >> (64 - count);
  }
  /// Of the first slot of an array that outlives its mover: the one that was kept before.
  Slot* kept_before = nullptr;
};

/// Claims a slot of `words` that the device has answered, or should have: then the caller owns it,
/// and `status` says which.
inline bool DsaQueue::claim(SlotWords& words, std::uint32_t index, const Slot& slot,
                            std::uint8_t& status) const noexcept {
  return words.claim(index, [&] {
    status = detail::status_of(slot.record);
    return status != 0 || is_due(slot, platform::ticks());
  });
}

/// Sends the descriptor of `slot`. Returns false if the queue is full.
inline bool DsaQueue::hand_over(Slot& slot) noexcept {
  slot.posted_ticks.store_relaxed(platform::ticks());  // Looked at again after a claim.
  if (!portal_.submit(slot.descriptor)) [[unlikely]] {
    note_refused(platform::ticks());
    return false;
  }
  note_taken();
  descriptors_.fetch_add_relaxed(1);  // A count of its own.
  return true;
}

/// Writes descriptors and records of the simple copies that `operations` begins with, at most
/// batch_max_. `kValid`: all of them have been validated.
///
/// Returns: how many; `byte_count` is their sum.
template <bool kValid>
std::size_t DsaQueue::write_copies(Slot& slot, std::span<const Operation> operations,
                                   std::size_t& byte_count) noexcept {
  const std::size_t count = std::min(operations.size(), batch_max_);
  if (slot.prepared_count < count) [[unlikely]]
    prepare_list(slot, count);
  const std::size_t bytes_max = short_copy_bytes_max_.load_relaxed();  // A hint.
  // Both are written through, which the check does not see in a template.
  dsa::Descriptor* descriptor = slot.descriptors.get();  // NOLINT(misc-const-correctness)
  dsa::CompletionRecord* record = slot.records.get();    // NOLINT(misc-const-correctness)
  std::size_t total = 0;
  const Operation* copy = operations.data();
  for (const Operation* const end = copy + count; copy != end; ++copy) {
    const std::size_t bytes = copy->source().size();
    const void* const source = copy->source().data();
    const void* const target = copy->target().data();
    if (!copy->is_plain_copy()) break;
    if constexpr (kValid) {
      if (bytes > bytes_max) break;
    } else {
      if (copy->target().size() != bytes) break;
      if (!Operation::is_simple_copy(target, source, bytes, bytes_max)) break;
    }
    detail::set_status(*record++, 0);
    detail::write_operands(source, target, bytes, *descriptor++);
    total += bytes;
  }
  byte_count = total;
  return static_cast<std::size_t>(copy - operations.data());
}

/// The descriptor of the first `count` of the list, and its record.
inline void DsaQueue::write_list(Slot& slot, std::size_t count) noexcept {
  detail::begin_descriptor(dsa::Opcode::batch, detail::kRecordFlags, slot.record, slot.descriptor);
  detail::write_operands(slot.descriptors.get(), nullptr, count, slot.descriptor);
  detail::set_status(slot.record, 0);
  slot.prepared = false;
}

}  // namespace headrace::engine
