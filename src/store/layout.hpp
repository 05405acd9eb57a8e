// SPDX-License-Identifier: Apache-2.0
// What lies where in the file of a tier, and the order of stores by which a block becomes durable.
// Not here: when it is done (keeper.cpp).
//
//   offset               bytes         what
//   0                    72            Head: written when the file is made, never again
//   4096                 256 a slot    SlotHeader of slot 1, 2, ...
//   data_offset          stride_bytes  data of slot 1, then that of slot 2, ...; each from a page
//   on
//
// A slot holds a block if the check of its header fits the rest of it. The protocol, each step
// durable before the next begins:
//   1. the header of a slot that is given up loses its check    (invalidate, settle)
//   2. the slot may get other data, which is made durable       (the engine, settle)
//   3. the header is stored and made durable                    (publish, drain): acknowledged
// So a header whose check fits lies beside the data it was stored for, whenever power fails: before
// step 1 is durable the data is still that of the old header, and step 3 begins after step 2.
// A torn header does not fit. Of two entries of a key the one with the greater sequence counts.
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
/// Of the lock bytes of the file.
inline constexpr std::uint64_t kOwnerLock = 0;

/// Plain numbers, little endian.
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
  std::uint64_t check = 0;  ///< Of all before it.

  friend bool operator==(const Head&, const Head&) = default;
};
static_assert(sizeof(Head) == 72, "the layout is that of every build");

struct SlotHeader {
  std::uint64_t check = 0;  ///< Of all behind it, and the slot's number. 0: no block.
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

/// Fails: invalid_argument for what would be larger than kFileBytesMax.
[[nodiscard]] Result<Head> head_of(std::uint64_t block_bytes, std::uint64_t slot_count,
                                   const std::string& tried);
/// Believes nothing: every number is compared with what head_of() would have written. `file_bytes`:
/// 0 of a device.
///
/// Fails: corrupt_data, version_mismatch.
[[nodiscard]] Result<Head> read_head(std::span<const std::byte> bytes, std::uint64_t file_bytes,
                                     const std::string& tried);

/// With its check.
[[nodiscard]] SlotHeader slot_header(std::uint64_t slot, std::string_view key,
                                     std::uint32_t byte_count, std::uint64_t sequence,
                                     std::optional<std::uint32_t> crc);
enum class SlotState : std::uint8_t { empty, torn, whole };
/// Copies the header from `place` and says what it is.
[[nodiscard]] SlotState read_slot(const std::byte* place, std::uint64_t slot,
                                  std::uint64_t block_bytes, SlotHeader& header);

/// Step 1, first half: by one store, so that it is done at once for this machine.
template <typename Medium>
void invalidate(Medium& medium, std::byte* place) {
  medium.label("take the check away");
  medium.store_word(*reinterpret_cast<std::uint64_t*>(place), 0);
}

/// Step 1, second half, of `given_up`; step 2 of `data`, which the engine has made durable itself
/// unless the medium's granularity is a page.
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

/// Step 3, of one header; drain() afterwards makes it durable.
template <typename Medium>
void publish(Medium& medium, std::byte* place, const SlotHeader& header) {
  medium.label("publish");
  medium.store(place, std::as_bytes(std::span(&header, 1)));
  medium.flush(place, sizeof(header));
}

}  // namespace headrace::store::detail
