// SPDX-License-Identifier: Apache-2.0
// The tables behind set_bytes and first_difference, and the mutex of the code that fills them.
#pragma once

#include "headrace/base/mutex.hpp"
#include "headrace/copy/fill_compare.hpp"

namespace headrace::copy::detail {

[[nodiscard]] KernelTable<Fill>& default_fills();
[[nodiscard]] KernelTable<FirstDifference>& default_comparisons();
/// Held while a profile is put into the tables, so that they never mix two profiles. Copies do not
/// take it.
[[nodiscard]] Mutex& profile_mutex();

}  // namespace headrace::copy::detail
