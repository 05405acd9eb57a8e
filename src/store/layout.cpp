// SPDX-License-Identifier: Apache-2.0
#include "layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace headrace::store::detail {
namespace {

/// A half of the log, relative to the headers: with a shorter one, more of their pages are written
/// again; with a longer one, more is read at opening.
constexpr std::uint64_t kLogShare = 2;
constexpr std::uint64_t kLogBytesMin = std::uint64_t{128} << 10U;
constexpr std::uint64_t kLogBytesMax = std::uint64_t{32} << 20U;
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

/// The beginning of a record of the log. A slot's number follows for each entry, and its header if
/// it has one.
struct RecordHead {
  std::uint64_t check = 0;  ///< Of the rest of the record's pages, and of their place.
  std::uint32_t page_count = 0;
  std::uint32_t entry_count = 0;
  std::uint64_t series = 0;
  std::uint64_t mark = 0;
  std::uint64_t proven = 0;
};
constexpr std::uint64_t kHasHeader = std::uint64_t{1} << 32U;

/// The first 8 bytes of `pages` count as 0.
std::uint64_t check_of(std::vector<Page> pages, std::size_t page, bool is_copy) {
  std::ranges::fill(std::span(pages.front().bytes).first(sizeof(std::uint64_t)), std::byte{0});
  return digest_of(std::as_bytes(std::span(pages)), 2 * page + (is_copy ? 1 : 0));
}

/// The record that begins at a page of the series, or its copy; empty if neither is whole.
std::vector<Page> record_at(const Slots& slots, std::uint64_t series, std::size_t page) {
  const std::byte* const log = slots.bytes.data() + slots.log_offset(series);
  const std::size_t page_count = slots.head.log_bytes / kPageBytes;
  for (std::size_t at = page; at < page_count; ++at) {
    RecordHead head;
    std::memcpy(&head, log + at * kPageBytes, sizeof(head));
    if (head.series != series) continue;
    if (head.page_count == 0 || head.page_count > page_count - at) continue;
    if (at != page && head.page_count != at - page) continue;  // Not the copy: that is behind it.
    std::vector<Page> pages(head.page_count);
    std::memcpy(pages.data(), log + at * kPageBytes, pages.size() * kPageBytes);
    if (head.check == check_of(pages, page, at != page)) return pages;
  }
  return {};
}

}  // namespace

Result<Head> head_of(std::uint64_t block_bytes, std::uint64_t slot_count,
                     const std::string& tried) {
  Head head;
  head.block_bytes = block_bytes;
  head.slot_count = slot_count;
  head.stride_bytes = round_up(block_bytes, kPageBytes);
  if (slot_count > kFileBytesMax / (head.stride_bytes + 2 * kSlotHeaderBytes)) {
    return fail(Code::invalid_argument, tried, "it would have more than 1 PiB",
                "ask for a smaller capacity");
  }
  const std::uint64_t table_bytes = round_up(slot_count * kSlotHeaderBytes, kPageBytes);
  head.log_bytes =
      round_up(std::clamp(table_bytes / kLogShare, kLogBytesMin, kLogBytesMax), kPageBytes);
  head.data_offset = kHeadBytes + table_bytes + 2 * head.log_bytes;
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

std::vector<Page> log_record(const Slots& slots, std::span<const SlotNumber> changed,
                             std::uint64_t series, std::size_t page) {
  RecordHead head{.entry_count = static_cast<std::uint32_t>(changed.size()),
                  .series = series,
                  .mark = slots.mark(),
                  .proven = slots.proven()};
  std::vector<std::byte> bytes(sizeof(head));
  const auto add = [&](const void* data, std::size_t byte_count) {
    const auto* const first = static_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), first, first + byte_count);
  };
  for (const SlotNumber slot : changed) {
    SlotHeader header;
    const bool is_empty = slots.read(slot, header) == SlotState::empty;
    const std::uint64_t entry = slot | (is_empty ? 0 : kHasHeader);
    add(&entry, sizeof(entry));
    if (!is_empty) add(&header, sizeof(header));
  }
  std::vector<Page> pages((bytes.size() + kPageBytes - 1) / kPageBytes);
  head.page_count = static_cast<std::uint32_t>(pages.size());
  std::memcpy(bytes.data(), &head, sizeof(head));
  std::memcpy(pages.data(), bytes.data(), bytes.size());
  std::vector<Page> twice;
  for (const bool is_copy : {false, true}) {
    head.check = check_of(pages, page, is_copy);
    std::memcpy(pages.data(), &head, sizeof(head.check));
    twice.insert(twice.end(), pages.begin(), pages.end());
  }
  return twice;
}

std::set<SlotNumber> replay(const Slots& slots) {
  std::set<SlotNumber> changed;
  std::uint64_t& series = slots.series();
  for (const std::uint64_t half : {0U, 1U}) {
    RecordHead first;
    std::memcpy(&first, slots.bytes.data() + slots.log_offset(half), sizeof(first));
    const bool is_near = std::has_single_bit(first.series ^ series);
    if (!is_near || !record_at(slots, series, 0).empty()) continue;
    if (!record_at(slots, first.series, 0).empty()) series = first.series;  // A bit has changed.
  }
  for (std::size_t page = 0;;) {
    const std::vector<Page> pages = record_at(slots, series, page);
    if (pages.empty()) return changed;
    page += 2 * pages.size();
    RecordHead head;
    std::memcpy(&head, pages.front().bytes.data(), sizeof(head));
    std::span<const std::byte> left = std::as_bytes(std::span(pages)).subspan(sizeof(head));
    for (std::uint32_t i = 0; i < head.entry_count && left.size() >= sizeof(std::uint64_t); ++i) {
      std::uint64_t entry = 0;
      std::memcpy(&entry, left.data(), sizeof(entry));
      left = left.subspan(sizeof(entry));
      const auto slot = static_cast<SlotNumber>(entry);
      const std::size_t byte_count = entry < kHasHeader ? 0 : kSlotHeaderBytes;
      if (slot == 0 || slot > slots.head.slot_count || left.size() < byte_count) break;
      std::memset(slots.header(slot), 0, kSlotHeaderBytes);
      std::memcpy(slots.header(slot), left.data(), byte_count);
      left = left.subspan(byte_count);
      changed.insert(slot);
    }
    slots.mark() = head.mark;
    slots.proven() = head.proven;
  }
}

}  // namespace headrace::store::detail
