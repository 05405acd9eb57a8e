// SPDX-License-Identifier: Apache-2.0
// What is in the file of a tier, for a person: read without a store, and not changed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headrace/store/store.hpp"

namespace headrace::store {

enum class EntryState : std::uint8_t {
  whole,       ///< Its data matches its checksum, or was not asked for.
  unverified,  ///< It has no checksum.
  unproven,    ///< Written shortly before a crash: opening the file compares its checksum.
  corrupt,     ///< Its data does not match its checksum: a get does not return it.
  unreadable,  ///< The disk could not read its data.
  torn,        ///< Its header is damaged: opening the file drops it.
};

struct FileEntry {
  std::string key;  ///< Empty if torn.
  std::uint32_t byte_count = 0;
  std::uint64_t sequence = 0;  ///< Greater for a later put.
  EntryState state = EntryState::whole;
};

struct FileContents {
  std::uint64_t block_bytes = 0;
  std::uint64_t capacity_blocks = 0;
  std::uint64_t with_checksum = 0;  ///< Entries that have one.
  std::vector<FileEntry> entries;   ///< By sequence.
};

/// Reads the headers of a file, and with `verifies` the data of each entry.
///
/// Fails: as Store::make for an existing file; capacity_exceeded if a store has it open.
[[nodiscard]] HEADRACE_API Result<FileContents> inspect_file(const std::string& path,
                                                             bool verifies);

}  // namespace headrace::store
