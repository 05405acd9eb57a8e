// SPDX-License-Identifier: Apache-2.0
// What fills and compares, behind the signature of a copy: for a Meter whose bytes are alike.
#pragma once

#include "headrace/copy/fill_compare.hpp"
#include "headrace/copy/generated.hpp"

namespace headrace::copy {

/// With this targets are filled.
inline constexpr unsigned char kFillValue = 0x5a;

/// By memset and memcmp, each called as a kernel is.
[[nodiscard]] HEADRACE_API Move libc_fill_move();
[[nodiscard]] HEADRACE_API Move libc_compare_move();
/// By set_bytes and first_difference.
[[nodiscard]] HEADRACE_API Move tuned_fill_move();
[[nodiscard]] HEADRACE_API Move tuned_compare_move();
/// By a kernel, found in a table as it will be. Null where it does not run here.
[[nodiscard]] HEADRACE_API Move kernel_move(FillKernel kernel);
[[nodiscard]] HEADRACE_API Move kernel_move(CompareKernel kernel);

}  // namespace headrace::copy
