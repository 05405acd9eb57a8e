// SPDX-License-Identifier: Apache-2.0
// Slot: one descriptor or batch in flight, and the accesses to what the device reads and writes.
// slot_words.hpp defines ownership.
#pragma once

#include <algorithm>
#include <memory>

#include "codec.hpp"
#include "headrace/base/counter.hpp"
#include "headrace/dsa/descriptor.hpp"
#include "headrace/platform/ticks.hpp"
#include "queue.hpp"

namespace headrace::engine {
namespace detail {

inline constexpr std::uint32_t kRecordFlags =
    dsa::flag::record_address_valid | dsa::flag::request_record;

/// Status of a record whose descriptor the queue has not accepted yet: pollers submit it again. No
/// device writes this value.
inline constexpr std::uint8_t kUnsent = 0xfe;

inline void set_status(dsa::CompletionRecord& record, std::uint8_t status) noexcept {
  // Relaxed: published by submitting the descriptor or posting the slot.
  store_relaxed(const_cast<std::uint8_t&>(record.status), status);
}

/// dsa::load_status, inline.
inline std::uint8_t status_of(const dsa::CompletionRecord& record) noexcept {
  // edge: completion-record (acquire)
  return headrace::load_acquire(const_cast<const std::uint8_t&>(record.status));
}

}  // namespace detail

struct alignas(64) DsaQueue::Slot {
  dsa::Descriptor descriptor;
  dsa::CompletionRecord record;
  /// Also read by pollers that do not own the slot.
  Atomic<std::uint64_t> posted_ticks{0};
  /// Descriptors that the queue accepted from this slot.
  Counter descriptor_count;

  Request* request = nullptr;
  /// The request is a copy of one descriptor: the members below are not used unless its status is
  /// not success.
  bool simple = false;
  /// The descriptor is a plain copy's, complete except for the operands.
  bool prepared = false;
  bool lost = false;
  std::uint8_t tries = 0;        ///< Attempts without progress.
  std::uint64_t full_ticks = 0;  ///< Time of the first refusal; 0: accepted.

  // Byte progress of the stripe of a request, or of a single operation of a batch; `operation` is
  // null while a list is in flight.
  const Operation* operation = nullptr;
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t at = 0;     ///< Completed up to here.
  std::size_t piece = 0;  ///< Bytes in flight.
  Completion one;

  // Progress of a batch, in operations.
  std::size_t next = 0;      ///< All before it have completed.
  std::size_t list_end = 0;  ///< No operation from here on is started.
  /// Bit i: operation next + i has completed, ahead of `next`.
  std::uint64_t done = 0;
  /// Bit i: operation next + i is in flight, with record i.
  std::uint64_t sent = 0;
  bool copies = false;  ///< The list in flight is `piece` copies and nothing else.
  Completion whole;
  // Descriptors and records of the list; outside of the slot, because most jobs do not use them.
  std::unique_ptr<dsa::Descriptor[]> descriptors;
  std::unique_ptr<dsa::CompletionRecord[]> records;
  /// The first prepared_count descriptors are copies', complete except for the operands.
  std::size_t prepared_count = 0;

  /// The outcome of the stripe or batch.
  [[nodiscard]] Completion& outcome() { return request->is_batch() ? whole : one; }
  /// Records that the next `count` operations, all of them copies, are in flight.
  void send_copies(std::size_t count) {
    copies = true;
    piece = count;
    sent = ~std::uint64_t{0} >> (64 - count);
  }
  /// Links arrays that outlive their mover; used in the first slot.
  Slot* kept_before = nullptr;
};

/// Claims slot `index` if the device has answered (`status` is not 0) or has timed out; the caller
/// then owns it.
inline bool DsaQueue::claim(SlotWords& words, std::uint32_t index, const Slot& slot,
                            std::uint8_t& status) const noexcept {
  return words.claim(index, [&] {
    status = detail::status_of(slot.record);
    return status != 0 || is_due(slot, platform::ticks());
  });
}

/// Submits the descriptor of `slot`. Returns false if the queue is full.
inline bool DsaQueue::submit_slot(Slot& slot) noexcept {
  slot.posted_ticks.store_relaxed(platform::ticks());  // Published by the posting.
  if (!portal_.submit(slot.descriptor)) [[unlikely]] {
    note_refused(platform::ticks());
    return false;
  }
  note_taken();
  slot.descriptor_count.add_alone(1);
  return true;
}

/// Writes descriptors and records for the leading simple copies of `operations`, at most
/// batch_max_. `kValid`: the operations have been validated.
///
/// Returns: their number, and their bytes in `byte_count`.
template <bool kValid>
std::size_t DsaQueue::write_copies(Slot& slot, std::span<const Operation> operations,
                                   std::size_t& byte_count) noexcept {
  const std::size_t count = std::min(operations.size(), batch_max_);
  if (slot.prepared_count < count) [[unlikely]]
    prepare_list(slot, count);
  const std::size_t bytes_max = short_copy_bytes_max_.load_relaxed();  // A hint.
  // Written through, which clang-tidy does not see in a template.
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

/// Writes the batch descriptor for the first `count` of the list, and its record.
inline void DsaQueue::write_list(Slot& slot, std::size_t count) noexcept {
  detail::begin_descriptor(dsa::Opcode::batch, detail::kRecordFlags, slot.record, slot.descriptor);
  detail::write_operands(slot.descriptors.get(), nullptr, count, slot.descriptor);
  detail::set_status(slot.record, 0);
  slot.prepared = false;
}

}  // namespace headrace::engine
