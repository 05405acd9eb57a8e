// SPDX-License-Identifier: Apache-2.0
// This process.
#pragma once

#include <cstdint>

namespace headrace::platform {

/// Its number, for messages to people.
[[nodiscard]] std::uint64_t process_id();

}  // namespace headrace::platform
