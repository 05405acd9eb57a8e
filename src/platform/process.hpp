// SPDX-License-Identifier: Apache-2.0
// This process, and its environment variables, if they may be trusted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace headrace::platform {

/// Id of this process, for messages.
[[nodiscard]] std::uint64_t process_id();
/// The kernel's number of the calling thread.
[[nodiscard]] std::uint64_t thread_id();
/// True if this program has more privileges than the user who started it (setuid, file
/// capabilities): then the environment must not decide which files it reads.
[[nodiscard]] bool has_borrowed_rights();
/// The variable; nothing if it is not set, empty, or not trusted.
[[nodiscard]] std::optional<std::string> trusted_variable(const char* name);

}  // namespace headrace::platform
