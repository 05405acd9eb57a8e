// SPDX-License-Identifier: Apache-2.0
// The microcoded fill.
#include "headrace/platform/string_fill.hpp"
#include "kernels.hpp"

namespace headrace::copy::detail {

void* set_rep_stosb(void* target, int value, std::size_t byte_count) noexcept {
  platform::rep_stosb(static_cast<std::byte*>(target), static_cast<std::byte>(value), byte_count);
  return target;
}

}  // namespace headrace::copy::detail
