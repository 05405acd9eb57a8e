// SPDX-License-Identifier: Apache-2.0
// Names of enumerators: enumerator_name() takes them from the source; NameTable holds names that
// differ from the source or have meanings, and parses them.
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

/// The enumerator as spelled in the source, zero-terminated; empty for a value without enumerator.
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

}  // namespace detail

/// The enumerator of `value` as spelled in the source, zero-terminated, for enumerations with at
/// most 32 values 0, 1, 2, ...; "unknown" for a value without enumerator.
template <typename Enum>
  requires std::is_enum_v<Enum>
[[nodiscard]] constexpr std::string_view enumerator_name(Enum value) {
  constexpr std::size_t kValueMax = 32;
  constexpr auto kNames = []<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
    return std::array{std::string_view(detail::kSpelled<static_cast<Enum>(kIndex)>.data())...};
  }(std::make_index_sequence<kValueMax>());
  const auto index = static_cast<std::size_t>(value);
  return index < kValueMax && !kNames[index].empty() ? kNames[index] : "unknown";
}

/// One row of a NameTable.
template <typename Enum>
struct Name {
  Enum value;
  std::string_view text;          ///< As in the source: "out_of_memory".
  std::string_view meaning = {};  ///< Text for messages, if the enumeration has one.
};

/// Dense: the values of an enumeration are 0, 1, 2, ..., so a missing row is an error. Sparse: any
/// ascending values.
enum class Values : bool { dense, sparse };

/// The names of an enumeration: a row for each value, in order, checked at compile time.
///
/// Threading: immutable.
template <typename Enum, std::size_t kCount>
class NameTable {
 public:
  consteval NameTable(const Name<Enum> (&rows)[kCount], Values values)
      : rows_(std::to_array(rows)) {
    for (std::size_t i = 0; i < kCount; ++i) {
      const auto value = static_cast<std::size_t>(rows_[i].value);
      const bool in_order = values == Values::dense
                                ? value == i
                                : i == 0 || static_cast<std::size_t>(rows_[i - 1].value) < value;
      // consteval: an invalid table does not compile.
      if (!in_order) throw "a row is missing or out of order";  // NOLINT(bugprone-std-exception-*)
    }
  }

  /// "unknown" for a value without a row.
  [[nodiscard]] constexpr std::string_view text(Enum value) const {
    const Name<Enum>* const row = row_of(value);
    return row != nullptr ? row->text : std::string_view("unknown");
  }
  /// Empty for a value without a row.
  [[nodiscard]] constexpr std::string_view meaning(Enum value) const {
    const Name<Enum>* const row = row_of(value);
    return row != nullptr ? row->meaning : std::string_view();
  }
  [[nodiscard]] constexpr std::optional<Enum> find(std::string_view text) const {
    for (const Name<Enum>& row : rows_) {
      if (row.text == text) return row.value;
    }
    return std::nullopt;
  }
  /// All names: "clflush, clflushopt, clwb".
  [[nodiscard]] std::string list() const {
    std::string names;
    for (const Name<Enum>& row : rows_) {
      if (!names.empty()) names += ", ";
      names += row.text;
    }
    return names;
  }
  /// `kind` is what the enumeration stands for: "granularity".
  ///
  /// Fails: invalid_argument, with the list of names.
  [[nodiscard]] Result<Enum> parse(std::string_view text, std::string_view kind) const {
    if (const std::optional<Enum> found = find(text)) return *found;
    return fail(Code::invalid_argument,
                "parse '" + std::string(text) + "' as a " + std::string(kind),
                "unknown " + std::string(kind), "use one of " + list());
  }
  [[nodiscard]] constexpr const std::array<Name<Enum>, kCount>& rows() const { return rows_; }

 private:
  [[nodiscard]] constexpr const Name<Enum>* row_of(Enum value) const {
    for (const Name<Enum>& row : rows_) {
      if (row.value == value) return &row;
    }
    return nullptr;
  }

  std::array<Name<Enum>, kCount> rows_;
};

/// constexpr auto kTiers = make_names<Tier>({{Tier::hbm, "hbm"}, {Tier::ddr, "ddr"}});
template <typename Enum, std::size_t kCount>
[[nodiscard]] consteval NameTable<Enum, kCount> make_names(const Name<Enum> (&rows)[kCount]) {
  return NameTable<Enum, kCount>(rows, Values::dense);
}
/// As make_names(), for an enumeration with gaps.
template <typename Enum, std::size_t kCount>
[[nodiscard]] consteval NameTable<Enum, kCount> make_sparse_names(
    const Name<Enum> (&rows)[kCount]) {
  return NameTable<Enum, kCount>(rows, Values::sparse);
}

}  // namespace headrace
