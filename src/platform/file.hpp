// SPDX-License-Identifier: Apache-2.0
// Reading whole files.
#pragma once

#include <string>

#include "headrace/base/result.hpp"

namespace headrace::platform {

/// Reads a regular file; a pipe or a terminal would block the caller.
///
/// Fails: not_found, permission_denied or io_failed; capacity_exceeded beyond `byte_count_max`.
[[nodiscard]] Result<std::string> load_file(const std::string& path, std::size_t byte_count_max);

/// Whether `path` is a regular file visible to this process.
[[nodiscard]] bool is_file(const std::string& path) noexcept;

}  // namespace headrace::platform
