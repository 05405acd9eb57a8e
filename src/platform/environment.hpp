// SPDX-License-Identifier: Apache-2.0
// Variables of the environment, as far as they may be trusted.
#pragma once

#include <optional>
#include <string>

namespace headrace::platform {

/// True if this program has more rights than the user who started it (setuid, file capabilities):
/// then nothing of the environment may decide what it reads.
[[nodiscard]] bool has_borrowed_rights();
/// The variable; nothing if it is not set, empty, or may not be trusted.
[[nodiscard]] std::optional<std::string> trusted_variable(const char* name);

}  // namespace headrace::platform
