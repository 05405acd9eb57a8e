// SPDX-License-Identifier: Apache-2.0
// Layout of a tier's file. Not here: the order of stores that makes a block durable (protocol.hpp).
//
//   offset               bytes         what
//   0                    72            Head: written when the file is made, then constant
//   512                  24            mark, proven stamp: which headers may be believed
//                                      (protocol.hpp); series of the log
//   4096                 256 a slot    SlotHeader of slot 1, 2, ...
//   log_offset           2 halves      log: what the headers were changed to (cached_medium.hpp);
//                                      starts at a page, as each record does
//   data_offset          stride_bytes  data of slot 1, 2, ...; each starts at a page
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/result.hpp"
#include "headrace/pmem/medium.hpp"
#include "headrace/store/store.hpp"

namespace headrace::store::detail {

inline constexpr std::uint64_t kMagic = 0x3165726f'74536448ULL;  // "HdStore1", little endian.
inline constexpr std::uint32_t kVersion = 4;
inline constexpr std::size_t kMarkOffset = 512;
inline constexpr std::size_t kHeadBytes = 4096;
inline constexpr std::size_t kSlotHeaderBytes = 256;
inline constexpr std::uint64_t kFileBytesMax = std::uint64_t{1} << 50U;
/// From 1; 0 is none.
using SlotNumber = std::uint32_t;
/// Lock bytes of the file: one is held until the kernel has ended every request of a process, the
/// other only while the process lives.
inline constexpr std::uint64_t kOwnerLock = 0;
inline constexpr std::uint64_t kProcessLock = 1;

/// Little endian.
struct Head {
  std::uint64_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t zero = 0;
  std::uint64_t block_bytes = 0;  ///< StoreOptions::block_bytes.
  std::uint64_t slot_count = 0;
  std::uint64_t stride_bytes = 0;
  std::uint64_t data_offset = 0;
  std::uint64_t file_bytes = 0;
  std::uint64_t log_bytes = 0;  ///< Of a half.
  std::uint64_t check = 0;      ///< Of all fields before it.

  friend bool operator==(const Head&, const Head&) = default;
};
static_assert(sizeof(Head) == 72, "the layout is that of every build");

struct SlotHeader {
  std::uint64_t check = 0;  ///< Of all fields after it, and the slot's number. 0: no block.
  std::uint64_t sequence = 0;
  std::uint32_t byte_count = 0;
  std::uint32_t crc = 0;
  std::uint16_t key_bytes = 0;
  std::uint16_t has_crc = 0;
  std::uint32_t zero = 0;
  std::array<char, kKeyBytesMax> key{};
  std::uint64_t stamp = 0;  ///< Not 0: durable if the proven stamp is as great.
  std::array<std::byte, 24> unused{};

  [[nodiscard]] std::string_view key_text() const { return {key.data(), key_bytes}; }
};
static_assert(sizeof(SlotHeader) == kSlotHeaderBytes, "the layout is that of every build");

/// Fails: invalid_argument if the file would be larger than kFileBytesMax.
[[nodiscard]] Result<Head> head_of(std::uint64_t block_bytes, std::uint64_t slot_count,
                                   const std::string& tried);
/// Trusts nothing: compares every number with what head_of() would have written. `file_bytes` is 0
/// for a device.
///
/// Fails: corrupt_data, version_mismatch.
[[nodiscard]] Result<Head> read_head(std::span<const std::byte> bytes, std::uint64_t file_bytes,
                                     const std::string& tried);

/// Includes the check.
[[nodiscard]] SlotHeader slot_header(std::uint64_t slot, std::string_view key,
                                     std::uint32_t byte_count, std::uint64_t sequence,
                                     std::optional<std::uint32_t> crc);
/// Sets the stamp, and the check with it.
void stamp(SlotHeader& header, std::uint64_t slot, std::uint64_t stamp);
enum class SlotState : std::uint8_t { empty, torn, whole };
/// Copies the header from `place` and returns the state of the slot.
[[nodiscard]] SlotState read_slot(const std::byte* place, std::uint64_t slot,
                                  std::uint64_t block_bytes, SlotHeader& header);

/// The parts of a file.
///
/// Threading: immutable; the bytes are not.
struct Slots {
  /// The whole file if it is mapped; else a copy of what precedes the data.
  std::span<std::byte> bytes;
  Head head;

  [[nodiscard]] std::uint64_t& mark() const {
    return *reinterpret_cast<std::uint64_t*>(bytes.data() + kMarkOffset);
  }
  [[nodiscard]] std::uint64_t& proven() const { return *(&mark() + 1); }
  /// Of the log: its records have it in their checks. The lowest bit is the half that has them.
  [[nodiscard]] std::uint64_t& series() const { return *(&mark() + 2); }
  [[nodiscard]] std::size_t log_offset(std::uint64_t series) const {
    return head.data_offset - (2 - series % 2) * head.log_bytes;
  }
  /// The headers.
  [[nodiscard]] std::span<std::byte> table() const {
    return bytes.subspan(kHeadBytes, head.slot_count * kSlotHeaderBytes);
  }
  [[nodiscard]] std::byte* header(SlotNumber slot) const {
    return bytes.data() + kHeadBytes + std::size_t{slot - 1} * kSlotHeaderBytes;
  }
  [[nodiscard]] SlotNumber slot_at(const std::byte* place) const {
    return static_cast<SlotNumber>((place - header(1)) / std::ptrdiff_t{kSlotHeaderBytes} + 1);
  }
  [[nodiscard]] std::uint64_t data_offset(SlotNumber slot) const {
    return head.data_offset + (slot - 1) * head.stride_bytes;
  }
  /// Of a mapped file.
  [[nodiscard]] std::span<std::byte> data(SlotNumber slot, std::size_t byte_count) const {
    return bytes.subspan(data_offset(slot), byte_count);
  }
  [[nodiscard]] SlotState read(SlotNumber slot, SlotHeader& header_of) const {
    return read_slot(header(slot), slot, head.block_bytes, header_of);
  }
};

inline constexpr std::size_t kPageBytes = 4096;
struct alignas(kPageBytes) Page {
  std::array<std::byte, kPageBytes> bytes;
};

/// Two copies of a record of the log, `page` pages after the first of its series: the headers of
/// `changed`, and the mark and the proven stamp, as they are in memory.
[[nodiscard]] std::vector<Page> log_record(const Slots& slots, std::span<const SlotNumber> changed,
                                           std::uint64_t series, std::size_t page);
/// Brings the headers, the mark and the proven stamp in `slots.bytes` to where the log has them: up
/// to the first record of which neither copy is whole. Returns the slots whose headers are in the
/// log. Corrects the series if one bit of it has changed.
[[nodiscard]] std::set<SlotNumber> replay(const Slots& slots);

}  // namespace headrace::store::detail
