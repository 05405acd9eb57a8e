// SPDX-License-Identifier: Apache-2.0
// Names of enumerators, as spelled in the source, for enumerations with values below 64; only
// "auto", a keyword of C++, is spelled `automatic`.
// A layer that has enumerations says `using headrace::name;`, so that calls find it.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "headrace/base/result.hpp"

namespace headrace {

namespace detail {

/// The enumerator, or the member of a pointer to one, as spelled in the source, zero-terminated;
/// empty for a value without enumerator.
/// __PRETTY_FUNCTION__ of GCC and Clang ends with "kValue = headrace::Code::closed]", or with
/// "(headrace::Code)77]".
template <auto kValue>
consteval auto spelled() {
  constexpr std::string_view kFunction = __PRETTY_FUNCTION__;
  constexpr std::size_t kEnd = kFunction.rfind(']');
  constexpr std::size_t kBegin = kFunction.find_last_of(":)", kEnd) + 1;
  constexpr bool kIsNumber = kFunction[kBegin - 1] == ')';
  std::array<char, kIsNumber ? 1 : kEnd - kBegin + 1> text{};
  if constexpr (!kIsNumber) kFunction.copy(text.data(), kEnd - kBegin, kBegin);
  return text;
}
template <auto kValue>
inline constexpr auto kSpelled = spelled<kValue>();

/// By value.
template <typename Enum>
inline constexpr auto kNames = []<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
  const auto shown = [](std::string_view spelled) {
    return spelled == "automatic" ? "auto" : spelled;
  };
  return std::array{shown(kSpelled<static_cast<Enum>(kIndex)>.data())...};
}(std::make_index_sequence<64>());

}  // namespace detail

/// "out_of_memory", zero-terminated; "unknown" for a value without enumerator.
template <typename Enum>
  requires std::is_enum_v<Enum>
[[nodiscard]] constexpr std::string_view name(Enum value) {
  constexpr auto& kNames = detail::kNames<Enum>;
  const auto index = static_cast<std::size_t>(value);
  return index < kNames.size() && !kNames[index].empty() ? kNames[index] : "unknown";
}
template <typename Enum>
[[nodiscard]] constexpr std::optional<Enum> find_name(std::string_view text) {
  for (std::size_t i = 0; i < detail::kNames<Enum>.size(); ++i) {
    if (!text.empty() && detail::kNames<Enum>[i] == text) return static_cast<Enum>(i);
  }
  return std::nullopt;
}
/// All names: "clflush, clflushopt, clwb".
template <typename Enum>
[[nodiscard]] std::string list_names() {
  std::string names;
  for (const std::string_view each : detail::kNames<Enum>) {
    if (!each.empty()) names.append(names.empty() ? "" : ", ").append(each);
  }
  return names;
}
/// `kind` is what the enumeration stands for: "granularity".
///
/// Fails: invalid_argument, with the list of names.
template <typename Enum>
[[nodiscard]] Result<Enum> parse_name(std::string_view text, std::string_view kind) {
  if (const std::optional<Enum> found = find_name<Enum>(text)) return *found;
  return fail(Code::invalid_argument, "parse '" + std::string(text) + "' as a " + std::string(kind),
              "unknown " + std::string(kind), "use one of " + list_names<Enum>());
}

/// What an enumerator means, for messages.
template <typename Enum>
struct Meaning {
  Enum value;
  std::string_view text;
};

/// A sentence for each enumerator, in order; a missing one does not compile.
template <typename Enum, std::size_t kCount>
[[nodiscard]] consteval std::array<std::string_view, 64> make_meanings(
    const Meaning<Enum> (&rows)[kCount]) {
  std::array<std::string_view, 64> texts{};
  std::size_t row = 0;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (detail::kNames<Enum>[i].empty()) continue;
    if (row == kCount || rows[row].value != static_cast<Enum>(i)) {
      throw "a row is missing or out of order";  // NOLINT(bugprone-std-exception-*)
    }
    texts[i] = rows[row++].text;
  }
  return texts;
}
/// The sentence in a table of make_meanings(); `otherwise` for a value without enumerator.
template <typename Enum>
[[nodiscard]] constexpr std::string_view meaning(const std::array<std::string_view, 64>& texts,
                                                 Enum value, std::string_view otherwise) {
  const auto index = static_cast<std::size_t>(value);
  return index < texts.size() && !texts[index].empty() ? texts[index] : otherwise;
}

}  // namespace headrace
