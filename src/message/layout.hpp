// SPDX-License-Identifier: Apache-2.0
// Layout of a queue's shared memory. Not here: who may change what when (cursor.hpp).
//
//   offset              bytes    what
//   0                   72       Head: written before the segment is visible, then constant
//   128                 384      Control: three words, each in a separate pair of lines
//   4096                512      lane 0: LaneWords
//   4096 + 512 i        512      lane i
//   data_offset         ...      units of lane 0, then of lane 1, ...; each starts at a page
//
// Positions count *units*. With fixed framing a unit is one message, rounded up to 8 bytes. With
// variable framing it has 8 bytes; a message is a unit with its length and the units of its bytes,
// contiguous: if they do not fit at the end of the ring, that room is skipped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "headrace/base/atomic.hpp"
#include "headrace/base/result.hpp"
#include "headrace/message/cursor.hpp"
#include "headrace/message/queue.hpp"

namespace headrace::message::detail {

inline constexpr std::uint64_t kMagic = 0x31657565'75516448ULL;  // "HdQueue1", little endian.
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::size_t kHeadBytes = 4096;
inline constexpr std::size_t kLaneBytes = 512;
inline constexpr std::size_t kControlOffset = 128;
inline constexpr std::uint64_t kSegmentBytesMax = std::uint64_t{1} << 46U;

/// The same in every build, so the ends may be of different builds.
struct Head {
  std::uint64_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t framing = 0;
  std::uint64_t segment_bytes = 0;
  std::uint64_t message_bytes_max = 0;
  std::uint64_t unit_bytes = 0;
  std::uint64_t unit_count = 0;  ///< Per lane; a power of two.
  std::uint64_t lane_count = 0;
  std::uint64_t data_offset = 0;
  std::uint64_t lane_data_bytes = 0;

  friend bool operator==(const Head&, const Head&) = default;
};
static_assert(sizeof(Head) == 72, "the layout is that of every build");

struct Control {
  /// As LaneWords::prod_state; written by the consumer.
  alignas(128) Atomic<std::uint64_t> cons_state;
  /// Nonzero once the queue is closed.
  alignas(128) Atomic<std::uint32_t> any_closed;
  /// As LaneWords::prod_sleeps: set by the consumer, cleared by producers.
  alignas(128) Atomic<std::uint32_t> cons_sleeps;
};
static_assert(sizeof(Control) == 384 && sizeof(LaneWords) == 384, "the layout is fixed");
static_assert(offsetof(LaneWords, prod_state) == 8 && offsetof(LaneWords, cons_head) == 128 &&
                  offsetof(LaneWords, prod_sleeps) == 256,
              "the layout is fixed");

/// Lock bytes of the file: the consumer's, then one per lane.
inline constexpr std::uint64_t kConsumerLock = 0;
inline constexpr std::uint64_t kFirstLaneLock = 1;

/// Fails: invalid_argument, capacity_exceeded.
[[nodiscard]] Result<Head> head_of(const QueueOptions& options);
/// Trusts nothing: compares every number with what head_of() would have written.
///
/// Fails: corrupt_data, version_mismatch.
[[nodiscard]] Result<Head> read_head(std::span<const std::byte> bytes, std::uint64_t file_bytes,
                                     const std::string& tried);

}  // namespace headrace::message::detail
