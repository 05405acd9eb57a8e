// SPDX-License-Identifier: Apache-2.0
// Layout of a ring's file. All numbers are little-endian words.
//
//   offset  0     Superblock: written before the file gets its name; never changed.
//           256   generation: number of times a producer attached (durable).
//           512   read: where recovery starts (durable as the protocol requires). The word behind
//           it
//                 is 0; rings of the laboratory keep the end of their entries there.
//           768   words of the producer, for the consumer: after a power failure they may be older
//                 than the entries, never newer.
//           1024  words of the consumer, for the producer: the same.
//           4096  data: `capacity_bytes`, a whole number of blocks.
//
// Each group of words has a separate block, so that the two ends never share a line and a
// write-back never includes the other's words.
//
// A position counts bytes since the ring was made; position p is at offset p % capacity. Entries
// are contiguous: if one does not fit before the end of the data, a skip fills the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "headrace/base/result.hpp"
#include "headrace/pmem/medium.hpp"
#include "headrace/pmem/ring.hpp"

namespace headrace::pmem::detail {

inline constexpr std::uint64_t kMagic = 0x474e495248525048U;  // "HPRHRING"
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::uint32_t kByteOrder = 0x01020304U;
/// Layouts of entries. Rings of positions are no longer made or read.
inline constexpr std::uint32_t kPositions = 1;
inline constexpr std::uint32_t kChecksums = 2;
inline constexpr std::size_t kDataOffset = 4096;
inline constexpr std::uint64_t kCapacityMin = 4096;
inline constexpr std::uint64_t kCapacityMax = std::uint64_t{1} << 46U;

struct Superblock {
  std::uint64_t magic = kMagic;
  std::uint32_t byte_order = kByteOrder;
  std::uint32_t version = kVersion;
  std::uint64_t file_bytes = 0;
  std::uint64_t capacity_bytes = 0;
  std::uint32_t layout = kChecksums;
  std::uint32_t block_bytes = 0;
  std::uint64_t ring_id = 0;  ///< Random; distinguishes entries of other rings.
  std::uint64_t reserved[9] = {};
  std::uint64_t checksum = 0;  ///< Of the superblock, with this word zero.
};
static_assert(sizeof(Superblock) == 2 * kLineBytes);

struct DurableWords {
  alignas(kBlockBytes) std::uint64_t generation = 0;
  /// Where recovery starts.
  alignas(kBlockBytes) std::uint64_t read = kNothingRead;
  std::uint64_t written = 0;

  /// Without this bit, `read` is the position of the last acknowledged entry, which is kept so that
  /// recovery knows its ordinal. With it, nothing was acknowledged, and the other bits are the
  /// position of the first entry.
  static constexpr std::uint64_t kNothingRead = 1;
};

struct ProducerWords {
  alignas(kBlockBytes) std::uint64_t written = 0;  ///< End of the readable entries.
  std::uint64_t process_id = 0;                    ///< For error messages.
};

struct ConsumerWords {
  /// A value of `read` that is durable: the producer may reuse the room before it.
  alignas(kBlockBytes) std::uint64_t read_durable = DurableWords::kNothingRead;
  std::uint64_t process_id = 0;
};

struct Head {
  Superblock superblock;
  DurableWords durable;
  ProducerWords producer;
  ConsumerWords consumer;
};
static_assert(offsetof(Head, durable) == 256 && offsetof(DurableWords, read) == 256);
static_assert(offsetof(Head, producer) == 768 && offsetof(Head, consumer) == 1024);
static_assert(sizeof(Head) <= kDataOffset);

[[nodiscard]] std::uint64_t checksum_of(const Superblock& superblock);

/// A mapped ring: its head, its data and constants.
///
/// Threading: immutable; the memory it points to is not.
struct RingMemory {
  Head* head = nullptr;
  std::byte* data = nullptr;
  std::uint64_t capacity_bytes = 0;
  std::uint64_t ring_id = 0;

  [[nodiscard]] std::byte* at(std::uint64_t position) const {
    return data + position % capacity_bytes;
  }
  /// Bytes from `position` to the end of the data.
  [[nodiscard]] std::uint64_t before_end(std::uint64_t position) const {
    return capacity_bytes - position % capacity_bytes;
  }
};

/// The longest record (entry with header and padding): an eighth of the capacity. A kept record, a
/// quarter whose acknowledgement is not yet durable, a new record, and the skips of two records at
/// the end of the data then always fit.
[[nodiscard]] constexpr std::uint64_t record_bytes_max(std::uint64_t capacity_bytes) {
  return capacity_bytes / 8;
}

/// Writes the head of an empty ring of `file_bytes` into `head`, which holds kDataOffset zeros.
void format_ring(std::span<std::byte> head, std::uint64_t file_bytes, std::uint64_t ring_id);

/// Checks the superblock and returns the ring.
///
/// Fails: corrupt_data, version_mismatch; `file` is read and never written.
[[nodiscard]] Result<RingMemory> open_ring(std::span<std::byte> file, const std::string& tried);

}  // namespace headrace::pmem::detail
