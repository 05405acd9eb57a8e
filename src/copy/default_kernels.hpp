// SPDX-License-Identifier: Apache-2.0
// The tables behind set_bytes and first_difference, for those who fill them.
#pragma once

#include "headrace/copy/fill_compare.hpp"

namespace headrace::copy::detail {

[[nodiscard]] KernelTable<Fill>& default_fills();
[[nodiscard]] KernelTable<FirstDifference>& default_comparisons();

}  // namespace headrace::copy::detail
