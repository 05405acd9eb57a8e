// SPDX-License-Identifier: Apache-2.0
// The table of this process.
#include "headrace/copy/dispatch.hpp"

#include <cstring>

#include "default_dispatch.hpp"

namespace headrace::copy {
namespace {

// Filled by the linker, not by code: it serves whoever copies before our constructors run.
constinit Dispatch table(&std::memmove);

}  // namespace

Dispatch& detail::default_dispatch() {
  return table;
}

// NOLINTNEXTLINE(misc-const-correctness): written through by a function that is chosen at run time.
void* move_bytes(void* target, const void* source, std::size_t byte_count) noexcept {
  return table.move_for(byte_count)(target, source, byte_count);
}

}  // namespace headrace::copy
