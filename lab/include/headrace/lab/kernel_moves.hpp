// SPDX-License-Identifier: Apache-2.0
// Fills and compares behind the signature of a copy, for a Meter with Options::alike.
#pragma once

#include "headrace/copy/fill_compare.hpp"
#include "headrace/copy/generated.hpp"

namespace headrace::copy::lab {

/// Fill value.
inline constexpr unsigned char kFillValue = 0x5a;

/// By memset and memcmp, each called through a pointer like a kernel.
[[nodiscard]] Move libc_fill_move();
[[nodiscard]] Move libc_compare_move();
/// By a kernel, called through a pointer. Null if it cannot run on this processor.
[[nodiscard]] Move kernel_move(FillKernel kernel);
[[nodiscard]] Move kernel_move(CompareKernel kernel);

}  // namespace headrace::copy::lab
