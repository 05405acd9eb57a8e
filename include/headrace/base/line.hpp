// SPDX-License-Identifier: Apache-2.0
// The size of a cache line. Includes no inline functions, so that files compiled for one
// instruction set may include it.
#pragma once

#include <cstddef>

namespace headrace {

/// On every processor that Headrace runs on.
inline constexpr std::size_t kLineBytes = 64;

}  // namespace headrace
