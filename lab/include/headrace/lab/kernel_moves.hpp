// SPDX-License-Identifier: Apache-2.0
// What fills and compares, behind the signature of a copy: for a Meter whose bytes are alike.
#pragma once

#include "headrace/copy/fill_compare.hpp"
#include "headrace/copy/generated.hpp"

namespace headrace::copy::lab {

/// With this targets are filled.
inline constexpr unsigned char kFillValue = 0x5a;

/// By memset and memcmp, each called as a kernel is.
[[nodiscard]] Move libc_fill_move();
[[nodiscard]] Move libc_compare_move();
/// By set_bytes and first_difference.
[[nodiscard]] Move tuned_fill_move();
[[nodiscard]] Move tuned_compare_move();
/// By a kernel, found in a table as it will be. Null where it does not run here.
[[nodiscard]] Move kernel_move(FillKernel kernel);
[[nodiscard]] Move kernel_move(CompareKernel kernel);

}  // namespace headrace::copy::lab
