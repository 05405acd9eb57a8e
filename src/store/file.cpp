// SPDX-License-Identifier: Apache-2.0
#include "headrace/store/file.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "../engine/software/software.hpp"
#include "headrace/platform/shared_file.hpp"
#include "layout.hpp"

namespace headrace::store {
namespace {

EntryState state_of(const platform::SharedFile& file, const detail::SlotHeader& header,
                    std::uint64_t offset, bool verifies, std::vector<std::byte>& data) {
  if (verifies) {
    data.resize(header.byte_count);
    const Result<std::size_t> read = file.read_at(offset, data);
    if (!read || *read != data.size()) return EntryState::unreadable;
    const std::uint32_t crc = engine::software::execute(engine::Operation::crc(data)).result.crc;
    if (header.has_crc != 0 && crc != header.crc) return EntryState::corrupt;
  }
  return header.has_crc != 0 ? EntryState::whole : EntryState::unverified;
}

}  // namespace

Result<FileContents> inspect_file(const std::string& path, bool verifies) {
  const std::string tried = fmt::format("read the store '{}'", path);
  HEADRACE_TAKE_WITHIN(tried, file, platform::SharedFile::open(path, false));
  if (file->is_locked_by_another(detail::kOwnerLock)) {
    return fail(Code::capacity_exceeded, tried, "a store has it open", "end that one first");
  }
  std::vector<std::byte> bytes(detail::kHeadBytes);
  HEADRACE_TAKE_WITHIN(tried, read, file->read_at(0, bytes));
  bytes.resize(std::max(*read, sizeof(detail::Head)));
  HEADRACE_TAKE(head, detail::read_head(std::span(bytes).first(*read),
                                        file->byte_count().value_or(0), tried));
  bytes.resize(head->data_offset);
  read = file->read_at(0, bytes);
  if (!read) return fail(read.error().within(tried));
  const detail::Slots slots{.bytes = bytes, .head = *head};
  static_cast<void>(detail::replay(slots));
  FileContents contents;
  contents.block_bytes = head->block_bytes;
  contents.capacity_blocks = head->slot_count;
  std::vector<std::byte> data;
  for (detail::SlotNumber slot = 1; slot <= head->slot_count; ++slot) {
    detail::SlotHeader header;
    const detail::SlotState found = slots.read(slot, header);
    if (found == detail::SlotState::empty) continue;
    FileEntry& entry = contents.entries.emplace_back();
    entry.state = EntryState::torn;
    if (found == detail::SlotState::torn) continue;
    entry = {.key = std::string(header.key_text()),
             .byte_count = header.byte_count,
             .sequence = header.sequence,
             .state = state_of(*file, header, slots.data_offset(slot), verifies, data)};
    contents.with_checksum += header.has_crc;
    const bool is_proven = slots.mark() == 0 && header.stamp <= slots.proven();
    if (!is_proven && !verifies) entry.state = EntryState::unproven;
  }
  std::ranges::stable_sort(contents.entries, {}, &FileEntry::sequence);
  return contents;
}

}  // namespace headrace::store
