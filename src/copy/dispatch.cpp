// SPDX-License-Identifier: Apache-2.0
// The table of this process.
#include "headrace/copy/dispatch.hpp"

#include <cstring>

namespace headrace::copy {

constinit Dispatch<Move> detail::default_dispatch(&std::memmove);

}  // namespace headrace::copy
