// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/units.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

namespace headrace {
namespace {

struct Unit {
  std::string_view letter;
  unsigned shift;
};
constexpr std::array<Unit, 4> kUnits{{{"T", 40}, {"G", 30}, {"M", 20}, {"K", 10}}};

}  // namespace

std::string to_text(Bytes bytes) {
  for (const Unit& unit : kUnits) {
    if (bytes.count() >= std::uint64_t{1} << unit.shift) {
      const double amount =
          std::ldexp(static_cast<double>(bytes.count()), -static_cast<int>(unit.shift));
      return fmt::format("{:.4g} {}iB", amount, unit.letter);
    }
  }
  return fmt::format("{} B", bytes.count());
}

std::string to_text(BytesPerSecond rate) {
  return fmt::format("{:.1f} GB/s", rate.count() / 1e9);
}

std::string counted(std::uint64_t count, std::string_view noun) {
  if (count == 1) return fmt::format("1 {}", noun);
  constexpr std::string_view kVowels = "aeiou";
  const bool is_entry = noun.size() > 1 && noun.ends_with('y') &&
                        kVowels.find(noun[noun.size() - 2]) == std::string_view::npos;
  if (is_entry) return fmt::format("{} {}ies", count, noun.substr(0, noun.size() - 1));
  return fmt::format("{} {}s", count, noun);
}

Result<Bytes> parse_bytes(std::string_view text) {
  const auto refuse = [&](const char* cause) {
    return fail(Code::invalid_argument, fmt::format("read '{}' as a size", text), cause,
                "write it like 4096, 64KiB or 1.5GiB");
  };
  std::size_t digits = 0;
  while (digits < text.size() &&
         ((text[digits] >= '0' && text[digits] <= '9') || text[digits] == '.')) {
    ++digits;
  }
  const std::string_view number = text.substr(0, digits);
  std::string_view suffix = text.substr(digits);
  while (!suffix.empty() && suffix.front() == ' ') {
    suffix.remove_prefix(1);
  }
  // Unlike strtod, independent of the locale.
  double amount = 0;
  const char* const begin = number.data();
  const char* const end = begin + number.size();
  const auto parsed = std::from_chars(begin, end, amount, std::chars_format::fixed);
  if (parsed.ec != std::errc() || parsed.ptr != end) {
    return refuse("it does not begin with a number");
  }
  unsigned shift = 0;
  if (!suffix.empty() && suffix != "B") {
    bool known = false;
    for (const Unit& unit : kUnits) {
      if (suffix == unit.letter || suffix == fmt::format("{}iB", unit.letter)) {
        shift = unit.shift;
        known = true;
      }
    }
    if (!known) {
      return refuse(
          "its unit is not one of B, KiB, MiB, GiB, TiB (or K, M, G, T, which mean the same)");
    }
  }
  const double bytes = std::ldexp(amount, static_cast<int>(shift));
  if (bytes >= 0x1p63) {
    return refuse("it is more than 2^63 bytes");
  }
  if (bytes != std::floor(bytes)) {
    return refuse("it is not a whole number of bytes");
  }
  if (std::uint64_t whole = 0; shift == 0 && std::from_chars(begin, end, whole).ptr == end) {
    // Above 2^53 a double cannot hold every integer.
    return Bytes(whole);
  }
  return Bytes(static_cast<std::uint64_t>(bytes));
}

}  // namespace headrace
