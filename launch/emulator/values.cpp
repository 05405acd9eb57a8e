// SPDX-License-Identifier: Apache-2.0
#include "launch/emulator/values.hpp"

#include "headrace/platform/attribute.hpp"

namespace headrace::emu {

std::string_view without_line_end(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

std::optional<std::int64_t> parse_number(std::string_view text) {
  text = without_line_end(text);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  int base = 10;
  if (text.starts_with("0x") || text.starts_with("0X")) {
    base = 16;
    text.remove_prefix(2);
  }
  const auto number = headrace::platform::parse_number<std::int64_t>(text, base);
  if (!number || *number < 0) return std::nullopt;
  return negative ? -*number : *number;
}

std::optional<std::uint32_t> parse_group(std::string_view text) {
  const auto number = parse_number(text);
  if (!number || *number < -1 || *number >= std::int64_t{kGroupMax}) return std::nullopt;
  return static_cast<std::uint32_t>(*number);
}

std::optional<bool> parse_flag(std::string_view text) {
  text = without_line_end(text);
  if (text.empty()) return std::nullopt;
  if (std::string_view("yYtT1").find(text[0]) != std::string_view::npos) return true;
  if (std::string_view("nNfF0").find(text[0]) != std::string_view::npos) return false;
  if (text == "on") return true;
  if (text == "off") return false;
  return std::nullopt;
}

std::string bitmap_text(const std::array<std::uint64_t, 4>& bits) {
  std::string text;
  for (std::size_t word = 8; word-- > 0;) {
    const auto value = static_cast<std::uint32_t>(bits[word / 2] >> (word % 2 * 32));
    text += fmt::format("{:08x}{}", value, word == 0 ? "" : ",");
  }
  return text;
}

std::optional<std::array<std::uint64_t, 4>> parse_bitmap(std::string_view text) {
  text = without_line_end(text);
  std::array<std::uint64_t, 4> bits{};
  std::size_t word = 0;
  while (!text.empty()) {
    const std::size_t comma = text.rfind(',');
    const std::string_view digits = comma == std::string_view::npos ? text : text.substr(comma + 1);
    const auto value = headrace::platform::parse_number<std::uint32_t>(digits, 16);
    if (!value || word == 8) return std::nullopt;
    bits[word / 2] |= std::uint64_t{*value} << (word % 2 * 32);
    ++word;
    if (comma == std::string_view::npos) return bits;
    text = text.substr(0, comma);
  }
  return std::nullopt;
}

}  // namespace headrace::emu
