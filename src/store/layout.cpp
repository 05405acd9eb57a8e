// SPDX-License-Identifier: Apache-2.0
#include "layout.hpp"

#include <fmt/format.h>

namespace headrace::store::detail {
namespace {

constexpr std::uint64_t kPageBytes = 4096;
constexpr const char* kMakeAgain = "remove it, or name another file";

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t to) {
  return (value + to - 1) / to * to;
}

/// 0 means that there is no check.
std::uint64_t digest_of(std::span<const std::byte> lines, std::uint64_t seed) {
  pmem::Digest digest;
  pmem::digest_lines(lines, digest);
  const std::uint64_t value = digest.value(seed);
  return value == 0 ? 1 : value;
}

std::uint64_t check_of(Head head) {
  head.check = 0;
  std::array<std::byte, 128> lines{};
  std::memcpy(lines.data(), &head, sizeof(head));
  return digest_of(lines, kMagic);
}

std::uint64_t check_of(SlotHeader header, std::uint64_t slot) {
  header.check = 0;
  return digest_of(std::as_bytes(std::span(&header, 1)), slot);
}

}  // namespace

Result<Head> head_of(std::uint64_t block_bytes, std::uint64_t slot_count,
                     const std::string& tried) {
  Head head;
  head.block_bytes = block_bytes;
  head.slot_count = slot_count;
  head.stride_bytes = round_up(block_bytes, kPageBytes);
  if (slot_count > kFileBytesMax / (head.stride_bytes + kSlotHeaderBytes)) {
    return fail(Code::invalid_argument, tried, "it would have more than 1 PiB",
                "ask for a smaller capacity");
  }
  head.data_offset = round_up(kHeadBytes + slot_count * kSlotHeaderBytes, kPageBytes);
  head.file_bytes = head.data_offset + slot_count * head.stride_bytes;
  head.check = check_of(head);
  return head;
}

Result<Head> read_head(std::span<const std::byte> bytes, std::uint64_t file_bytes,
                       const std::string& tried) {
  const auto refuse = [&](std::string cause) {
    return fail(Code::corrupt_data, tried, std::move(cause), kMakeAgain);
  };
  if (bytes.size() < sizeof(Head)) return refuse("it is too short to be a store");
  Head head;
  std::memcpy(&head, bytes.data(), sizeof(head));
  if (head.magic != kMagic) return refuse("it is not a store");
  if (head.version != kVersion) {
    return fail(
        Code::version_mismatch, tried,
        fmt::format("it is of version {}, and this library knows {}", head.version, kVersion),
        "use the version of Headrace that made it, remove it, or name another file");
  }
  if (head.check != check_of(head) || head.block_bytes == 0 ||
      head.block_bytes > kBlockBytesMax.count() || head.slot_count == 0) {
    return refuse("its head is damaged");
  }
  const Result<Head> expected = head_of(head.block_bytes, head.slot_count, tried);
  if (!expected || !(head == *expected)) return refuse("its head is damaged");
  if (file_bytes != 0 && file_bytes != head.file_bytes) {
    return refuse(fmt::format("it has {} bytes and was made with {}", file_bytes, head.file_bytes));
  }
  return head;
}

SlotHeader slot_header(std::uint64_t slot, std::string_view key, std::uint32_t byte_count,
                       std::uint64_t sequence, std::optional<std::uint32_t> crc) {
  SlotHeader header;
  header.sequence = sequence;
  header.byte_count = byte_count;
  header.crc = crc.value_or(0);
  header.has_crc = crc.has_value() ? 1 : 0;
  header.key_bytes = static_cast<std::uint16_t>(key.size());
  std::memcpy(header.key.data(), key.data(), key.size());
  header.check = check_of(header, slot);
  return header;
}

void stamp(SlotHeader& header, std::uint64_t slot, std::uint64_t stamp) {
  if (header.stamp == stamp) return;
  header.stamp = stamp;
  header.check = check_of(header, slot);
}

SlotState read_slot(const std::byte* place, std::uint64_t slot, std::uint64_t block_bytes,
                    SlotHeader& header) {
  std::memcpy(&header, place, sizeof(header));
  if (header.check == 0) return SlotState::empty;
  const bool whole = header.check == check_of(header, slot) && header.key_bytes != 0 &&
                     header.key_bytes <= kKeyBytesMax && header.byte_count != 0 &&
                     header.byte_count <= block_bytes;
  return whole ? SlotState::whole : SlotState::torn;
}

}  // namespace headrace::store::detail
