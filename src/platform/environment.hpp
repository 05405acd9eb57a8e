// SPDX-License-Identifier: Apache-2.0
// Environment variables, if they may be trusted.
#pragma once

#include <optional>
#include <string>

namespace headrace::platform {

/// True if this program has more privileges than the user who started it (setuid, file
/// capabilities): then the environment must not decide which files it reads.
[[nodiscard]] bool has_borrowed_rights();
/// The variable; nothing if it is not set, empty, or not trusted.
[[nodiscard]] std::optional<std::string> trusted_variable(const char* name);

}  // namespace headrace::platform
