// SPDX-License-Identifier: Apache-2.0
// The size of a cache line. No inline functions: files compiled for one instruction set include
// this.
#pragma once

#include <cstddef>

namespace headrace {

/// On every supported processor.
inline constexpr std::size_t kLineBytes = 64;

}  // namespace headrace
