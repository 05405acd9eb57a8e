// SPDX-License-Identifier: Apache-2.0
// The values that the kernel shows in files of sysfs and procfs.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace headrace::platform {

/// All of `text` as a number; nothing if it is not one.
template <typename Number = std::uint64_t>
[[nodiscard]] std::optional<Number> parse_number(std::string_view text, int base = 10) noexcept {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  const bool is_whole = error == std::errc() && end == text.data() + text.size();
  return is_whole ? std::optional(number) : std::nullopt;
}

/// The text of a file without line ends; nothing if it cannot be read.
[[nodiscard]] std::optional<std::string> load_attribute(const std::string& path);
/// The number that a file has; nothing if it cannot be read, or has something else.
[[nodiscard]] std::optional<std::uint64_t> load_number(const std::string& path);

}  // namespace headrace::platform
