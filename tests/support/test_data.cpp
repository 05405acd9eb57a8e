// SPDX-License-Identifier: Apache-2.0
#include "support/test_data.hpp"

namespace headrace::test {

std::string test_data() {
  return HEADRACE_TEST_DATA;
}

}  // namespace headrace::test
