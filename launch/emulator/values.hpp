// SPDX-License-Identifier: Apache-2.0
// Parses and formats sysfs values as the kernel does.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "emu/device/config.hpp"

namespace headrace::emu {

/// One value with its line end.
template <typename T>
[[nodiscard]] std::string line(const T& value) {
  return fmt::format("{}\n", value);
}
/// Strips the line end that `echo` adds.
[[nodiscard]] std::string_view without_line_end(std::string_view text);
/// As kstrtol and kstrtoul with base 10 or, after 0x, 16: nothing unless the whole text parses.
[[nodiscard]] std::optional<std::int64_t> parse_number(std::string_view text);
/// A group number as written to group_id: kNoGroup for -1; nothing if there is no such group.
[[nodiscard]] std::optional<std::uint32_t> parse_group(std::string_view text);
/// As kstrtobool.
[[nodiscard]] std::optional<bool> parse_flag(std::string_view text);
/// As "%*pb": 256 bits in words of eight digits, highest first.
[[nodiscard]] std::string bitmap_text(const std::array<std::uint64_t, 4>& bits);
[[nodiscard]] std::optional<std::array<std::uint64_t, 4>> parse_bitmap(std::string_view text);

}  // namespace headrace::emu
