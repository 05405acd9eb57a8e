// SPDX-License-Identifier: Apache-2.0
// Assertions. A failed check is a bug in Headrace or in its caller; it prints the values and
// aborts. Errors that a user, a file or a machine can cause are returned instead.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "headrace/base/export.hpp"

namespace headrace::detail {

[[noreturn]] HEADRACE_API void check_failed(const char* expression, const char* reason,
                                            const char* file, int line,
                                            const std::string& values) noexcept;

template <typename T>
std::string check_value(const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_enum_v<T>) {
    return std::to_string(static_cast<std::int64_t>(value));
  } else if constexpr (std::is_arithmetic_v<T>) {
    return std::to_string(value);
  } else if constexpr (std::is_pointer_v<T>) {
    return std::to_string(reinterpret_cast<std::uintptr_t>(value));
  } else {
    return std::string(value);
  }
}

template <typename... Values>
std::string check_values(const Values&... values) {
  std::string text;
  ((text += (text.empty() ? "" : ", ") + check_value(values)), ...);
  return text;
}

}  // namespace headrace::detail

/// HEADRACE_CHECK(condition, "why it must hold", values to print...): always on.
#define HEADRACE_CHECK(condition, reason, ...)                                    \
  (__builtin_expect(static_cast<bool>(condition), 1)                              \
       ? static_cast<void>(0)                                                     \
       : ::headrace::detail::check_failed(#condition, reason, __FILE__, __LINE__, \
                                          ::headrace::detail::check_values(__VA_ARGS__)))
