// SPDX-License-Identifier: Apache-2.0
// Values as the kernel reads and writes them in sysfs.
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
/// Without the line end that `echo` puts behind it.
[[nodiscard]] std::string_view without_line_end(std::string_view text);
/// As kstrtol and kstrtoul with base 10 or, after 0x, 16: the whole text, or nothing.
[[nodiscard]] std::optional<std::int64_t> parse_number(std::string_view text);
/// A group's number as written to group_id: kNoGroup for -1; nothing if there is no such group.
[[nodiscard]] std::optional<std::uint32_t> parse_group(std::string_view text);
/// As kstrtobool.
[[nodiscard]] std::optional<bool> parse_flag(std::string_view text);
/// As "%*pb": 256 bits in words of eight digits, the highest first.
[[nodiscard]] std::string bitmap_text(const std::array<std::uint64_t, 4>& bits);
[[nodiscard]] std::optional<std::array<std::uint64_t, 4>> parse_bitmap(std::string_view text);

}  // namespace headrace::emu
