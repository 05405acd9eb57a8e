// SPDX-License-Identifier: Apache-2.0
// Slot: room for what one DSA mover has in flight at one place, and the few ways to touch what the
// device reads and writes there. Not for: whose a slot is (queue.hpp).
#pragma once

#include <memory>

#include "headrace/dsa/descriptor.hpp"
#include "queue.hpp"

namespace headrace::engine {
namespace detail {

inline constexpr std::uint32_t kRecordFlags =
    dsa::flag::record_address_valid | dsa::flag::request_record;

/// Stands in a record whose descriptor the queue has not taken yet, so that pollers see to it. No
/// device writes it.
inline constexpr std::uint8_t kUnsent = 0xfe;

/// And that there is a record to be written.
inline void add_flags(dsa::Descriptor& descriptor, std::uint32_t flags) noexcept {
  constexpr std::uint32_t kWidth = 0xff'ffff;
  descriptor.flags = (descriptor.flags | flags | kRecordFlags) & kWidth;
}

inline void set_status(dsa::CompletionRecord& record, std::uint8_t status) noexcept {
  // Relaxed: the submission of the descriptor, or the posting of the slot, comes after.
  store_relaxed(const_cast<std::uint8_t&>(record.status), status);
}

/// dsa::load_status, in line.
inline std::uint8_t status_of(const dsa::CompletionRecord& record) noexcept {
  // edge: completion-record (acquire)
  return headrace::load_acquire(const_cast<const std::uint8_t&>(record.status));
}

/// What is kept of a batch while one of its operations is a lane of its own.
struct BatchPlace {
  std::size_t at = 0;
  std::size_t end = 0;
  Completion outcome;
};

/// A batch's descriptors and their records, apart from the slot, which most jobs need alone.
struct BatchRoom {
  std::unique_ptr<dsa::Descriptor[]> descriptors;
  std::unique_ptr<dsa::CompletionRecord[]> records;
};

}  // namespace detail

struct alignas(64) DsaQueue::Slot {
  dsa::Descriptor descriptor;
  dsa::CompletionRecord record;
  /// Read by pollers that do not own the slot.
  Atomic<std::uint64_t> posted_ticks{0};

  // A lane: a part of a request that is done piece by piece. Of a batch, operations are counted and
  // not bytes.
  Request* request = nullptr;
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t at = 0;     ///< Up to here it is done.
  std::size_t piece = 0;  ///< What is in flight.
  /// Of a batch: bit i is set if operation at + i has ended, before `at` itself has.
  std::uint64_t done = 0;
  std::size_t failed_at = ~std::size_t{0};  ///< Of a batch: the first operation that has failed.
  std::uint64_t full_ticks = 0;             ///< Since when the queue refuses; 0 if it does not.
  std::uint8_t tries = 0;
  bool single = true;  ///< The only lane of its request.
  bool batch = false;
  /// Of a batch: operation batch_place.at is larger than the queue's largest transfer. begin, end,
  /// at, piece, tries and outcome are those of this one alone.
  bool large = false;
  bool quiet = false;  ///< Success is all that its record may tell.
  bool lost = false;
  /// Nothing of the lane has ended yet, and outcome is that of another one.
  bool fresh = false;
  Completion outcome;
  detail::BatchPlace batch_place;
  detail::BatchRoom room;

  /// What the lane is a part of.
  [[nodiscard]] const Operation& whole() const {
    return large ? request->batch().operations[batch_place.at] : request->operation();
  }
  /// Of the lane, in bytes.
  [[nodiscard]] Operation part(std::size_t first, std::size_t byte_count) const {
    return whole().part(first, byte_count, outcome.result);
  }
  /// Of the first slot of an array that outlives its mover: the one that was kept before.
  Slot* kept_before = nullptr;
};

}  // namespace headrace::engine
