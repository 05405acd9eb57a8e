// SPDX-License-Identifier: Apache-2.0
// Where the launcher writes what was counted: a regular file as a whole, or what is there.
#pragma once

#include <string>
#include <string_view>

#include "headrace/base/result.hpp"

namespace headrace::launch {

/// A path that means stdout.
inline constexpr std::string_view kStdout = "-";
/// Whether a file can be written at `path` later on.
///
/// Fails: not_found, permission_denied or invalid_argument, before anything is started.
[[nodiscard]] Result<void> check_writable(const std::string& option, const std::string& path);
/// Writes it whole: beside it and renamed, or straight into stdout or what is no regular file.
[[nodiscard]] Result<void> write_whole(const std::string& path, const std::string& text);

}  // namespace headrace::launch
