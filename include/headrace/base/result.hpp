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
