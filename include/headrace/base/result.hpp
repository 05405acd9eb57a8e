// SPDX-License-Identifier: Apache-2.0
// Result<T>: a value, or the Error that says why there is none. The one place that names
// tl::expected.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "headrace/base/error.hpp"

namespace headrace {

/// tl::expected and not std::expected: GCC 12 has the latter only under C++23 and Clang before 19
/// cannot see it there, so a public type would change with the consumer's flags.
template <typename T>
using Result = tl::expected<T, Error>;
using Failure = tl::unexpected<Error>;

/// Makes the failed side of any Result.
[[nodiscard]] inline Failure fail(Code code, std::string tried, std::string cause,
                                  std::string remedy, int os_errno = 0) {
  return Failure(Error{code, os_errno, std::move(tried), std::move(cause), std::move(remedy)});
}
[[nodiscard]] inline Failure fail(Error error) {
  return Failure(std::move(error));
}

}  // namespace headrace
