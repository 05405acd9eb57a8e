// SPDX-License-Identifier: Apache-2.0
// Location of the files that tests read.
#pragma once

#include <string>

namespace headrace::test {

/// The folder tests/ of the checkout.
std::string test_data();

}  // namespace headrace::test
