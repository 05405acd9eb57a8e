// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/check.hpp"

#include <cstdio>
#include <cstdlib>

namespace headrace::detail {

void check_failed(const char* expression, const char* reason, const char* file, int line,
                  const std::string& values) noexcept {
  std::fprintf(stderr, "headrace: check failed at %s:%d: %s - %s%s%s%s\n", file, line, expression,
               reason, values.empty() ? "" : " [", values.c_str(), values.empty() ? "" : "]");
  std::abort();
}

}  // namespace headrace::detail
