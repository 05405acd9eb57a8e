// SPDX-License-Identifier: Apache-2.0
// Memory layout of the file, and conversion of rows. telemetry.hpp documents the layout.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "headrace/base/atomic.hpp"
#include "headrace/telemetry/telemetry.hpp"

namespace headrace::telemetry::detail {

inline constexpr std::array<char, 8> kMagic{'H', 'D', 'R', 'T', 'E', 'L', 'E', '1'};
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::string_view kFilePrefix = "headrace-telemetry.";
/// Index of the publisher's lock (SharedFile::try_lock).
inline constexpr std::uint64_t kLock = 0;

struct Slot {
  std::array<char, 32> name;
  std::uint64_t value;
};
struct PackedRow {
  std::array<char, 16> kind;
  std::array<char, 64> name;
  std::uint64_t value_count;
  std::array<Slot, kValuesMax> values;
};

/// Written once, before the file gets its name.
struct Head {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t row_bytes = sizeof(PackedRow);
  std::uint64_t rows_max = kRowsMax;
  std::uint64_t process = 0;
  std::int64_t began_ns = 0;
  std::int64_t interval_ns = 0;
  std::array<char, 64> program{};
};

/// The part that changes with each publication.
struct Table {
  Atomic<std::uint64_t> sequence;
  std::uint64_t written_ns;
  std::uint64_t row_count;
  std::uint64_t rows_left_out;
  std::array<std::uint64_t, 4> unused;
  std::array<PackedRow, kRowsMax> rows;
};
inline constexpr std::size_t kTableOffset = 128;
inline constexpr std::size_t kFileBytes = kTableOffset + sizeof(Table);
static_assert(sizeof(Head) <= kTableOffset && offsetof(Table, rows) == 64);
static_assert(sizeof(PackedRow) % sizeof(std::uint64_t) == 0);

[[nodiscard]] std::string program_name();

/// Copies text, truncated to fit; the last byte is always 0.
void put_text(std::span<char> target, std::string_view text);
/// The text up to the first 0, or all of it.
[[nodiscard]] std::string get_text(std::span<const char> source);

[[nodiscard]] PackedRow pack(const Row& row);
/// Ignores values beyond kValuesMax.
[[nodiscard]] Row unpack(const PackedRow& row);

/// Copies word by word, so that a reader that sees a word of a publication also sees that its
/// sequence is odd.
void publish_words(std::span<std::uint64_t> target, std::span<const std::uint64_t> source);
void read_words(std::span<std::uint64_t> target, std::span<std::uint64_t> source);

}  // namespace headrace::telemetry::detail
