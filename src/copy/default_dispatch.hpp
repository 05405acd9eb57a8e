// SPDX-License-Identifier: Apache-2.0
// The table behind move_bytes, for those who fill it.
#pragma once

#include "headrace/copy/dispatch.hpp"

namespace headrace::copy::detail {

[[nodiscard]] Dispatch& default_dispatch();

}  // namespace headrace::copy::detail
