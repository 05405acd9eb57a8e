// SPDX-License-Identifier: Apache-2.0
// Result<T>: a value or an Error. The only header that names tl::expected.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "headrace/base/error.hpp"

namespace headrace {

/// Not std::expected: GCC 12 has it only in C++23 mode, and Clang before 19 cannot use GCC's. A
/// public type must not depend on the program's compiler flags.
template <typename T>
using Result = tl::expected<T, Error>;
using Failure = tl::unexpected<Error>;

/// Makes a failed Result of any type.
[[nodiscard]] inline Failure fail(Code code, std::string tried, std::string cause,
                                  std::string remedy, int os_errno = 0) {
  return Failure(Error{code, os_errno, std::move(tried), std::move(cause), std::move(remedy)});
}
[[nodiscard]] inline Failure fail(Error error) {
  return Failure(std::move(error));
}

}  // namespace headrace

// For functions that return a Result: they return the error of another one.

/// `variable` is a new Result, which has a value.
#define HEADRACE_TAKE(variable, ...) \
  auto variable = __VA_ARGS__;       \
  if (!variable) return ::headrace::fail(std::move(variable.error()))
/// The same, with `tried` as what was tried: Error::within().
#define HEADRACE_TAKE_WITHIN(tried, variable, ...) \
  auto variable = __VA_ARGS__;                     \
  if (!variable) return ::headrace::fail(variable.error().within(tried))
/// The same for a Result whose value is not needed.
#define HEADRACE_TRY(...)                       \
  do {                                          \
    HEADRACE_TAKE(headrace_tried, __VA_ARGS__); \
  } while (false)
#define HEADRACE_TRY_WITHIN(tried, ...)                       \
  do {                                                        \
    HEADRACE_TAKE_WITHIN(tried, headrace_tried, __VA_ARGS__); \
  } while (false)
