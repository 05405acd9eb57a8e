// SPDX-License-Identifier: Apache-2.0
// This process.
#pragma once

#include <cstdint>

namespace headrace::platform {

/// Id of this process, for messages.
[[nodiscard]] std::uint64_t process_id();
/// The kernel's number of the calling thread.
[[nodiscard]] std::uint64_t thread_id();

}  // namespace headrace::platform
