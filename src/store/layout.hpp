// SPDX-License-Identifier: Apache-2.0
// Layout of a tier's file, and the order of stores that makes a block durable. Not here: when they
// are executed (keeper.cpp).
//
//   offset               bytes         what
//   0                    72            Head: written when the file is made, then constant
//   4096                 256 a slot    SlotHeader of slot 1, 2, ...
//   data_offset          stride_bytes  data of slot 1, 2, ...; each starts at a page
//
// A slot holds a block if the check of its header matches the rest of the header. The protocol,
// each step durable before the next begins:
//   1. the check in the header of a given-up slot is set to 0 (invalidate, settle)
//   2. other data is written to the slot and made durable (the engine, settle)
//   3. the header is stored and made durable                    (publish, drain): acknowledged
// So whenever power fails, a header whose check matches belongs to the data of its slot: before
// step 1 is durable the slot still has the data of the old header, and step 3 begins after step 2.
// The check of a torn header does not match. Of two entries of a key, that with the greater
// sequence is valid.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/result.hpp"
#include "headrace/pmem/medium.hpp"
#include "headrace/store/store.hpp"

namespace headrace::store::detail {

inline constexpr std::uint64_t kMagic = 0x3165726f'74536448ULL;  // "HdStore1", little endian.
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::size_t kHeadBytes = 4096;
inline constexpr std::size_t kSlotHeaderBytes = 256;
inline constexpr std::uint64_t kFileBytesMax = std::uint64_t{1} << 50U;
/// Lock byte of the file.
inline constexpr std::uint64_t kOwnerLock = 0;

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
  std::uint64_t unused = 0;
  std::uint64_t check = 0;  ///< Of all fields before it.

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
  std::array<std::byte, 32> unused{};

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
enum class SlotState : std::uint8_t { empty, torn, whole };
/// Copies the header from `place` and returns the state of the slot.
[[nodiscard]] SlotState read_slot(const std::byte* place, std::uint64_t slot,
                                  std::uint64_t block_bytes, SlotHeader& header);

/// Step 1, first half: one store, which survives the end of the process at once.
template <typename Medium>
void invalidate(Medium& medium, std::byte* place) {
  medium.label("take the check away");
  medium.store_word(*reinterpret_cast<std::uint64_t*>(place), 0);
}

/// Step 1, second half, for `given_up`; step 2 for `data`, which the engine has already made
/// durable unless the granularity is page.
template <typename Medium>
void settle(Medium& medium, std::span<std::byte* const> given_up,
            std::span<const std::span<const std::byte>> data) {
  medium.label("settle");
  for (const std::byte* const place : given_up) medium.flush(place, sizeof(std::uint64_t));
  if (medium.granularity() == pmem::Granularity::page) {
    for (const std::span<const std::byte> each : data) medium.flush(each.data(), each.size());
  }
  if (!given_up.empty() || !data.empty()) medium.drain();
}

/// Step 3 for one header; durable after drain().
template <typename Medium>
void publish(Medium& medium, std::byte* place, const SlotHeader& header) {
  medium.label("publish");
  medium.store(place, std::as_bytes(std::span(&header, 1)));
  medium.flush(place, sizeof(header));
}

}  // namespace headrace::store::detail
