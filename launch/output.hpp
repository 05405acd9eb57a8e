// SPDX-License-Identifier: Apache-2.0
// Where the launcher writes its report: atomically to a regular file, or directly to anything else.
#pragma once

#include <string>
#include <string_view>

#include "headrace/base/result.hpp"

namespace headrace::launch {

/// A path that means stdout.
inline constexpr std::string_view kStdout = "-";
/// Checks whether a file could be written at `path` later.
///
/// Fails: not_found, permission_denied or invalid_argument, before anything is started.
[[nodiscard]] Result<void> check_writable(const std::string& option, const std::string& path);
/// Writes the whole text: to a temporary file that is renamed, or directly to stdout or a special
/// file.
[[nodiscard]] Result<void> write_whole(const std::string& path, const std::string& text);

}  // namespace headrace::launch
