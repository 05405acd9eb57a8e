// SPDX-License-Identifier: Apache-2.0
// The C library's memmove, which selects code for this processor.
#include <cstring>

#include "kernels.hpp"

namespace headrace::copy::detail {

void move_libc(std::byte* target, const std::byte* source, std::size_t byte_count) {
  std::memmove(target, source, byte_count);
}

}  // namespace headrace::copy::detail
