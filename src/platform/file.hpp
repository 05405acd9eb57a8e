// SPDX-License-Identifier: Apache-2.0
// Reading whole files, and writing them atomically.
#pragma once

#include <string>
#include <string_view>

#include "headrace/base/result.hpp"

namespace headrace::platform {

/// Reads a regular file; a pipe or a terminal would block the caller.
///
/// Fails: not_found, permission_denied or io_failed; capacity_exceeded beyond `byte_count_max`.
[[nodiscard]] Result<std::string> load_file(const std::string& path, std::size_t byte_count_max);

/// Whether `path` is a regular file visible to this process.
[[nodiscard]] bool is_file(const std::string& path) noexcept;

/// Writes a temporary file beside `path` and renames it: a reader sees the old file or the new one.
/// Follows a symbolic link; keeps the mode of an existing file.
///
/// Fails: not_found, permission_denied or io_failed; capacity_exceeded if the disk is full;
///        invalid_argument if `path` exists and is not a regular file. Leaves no file behind.
[[nodiscard]] Result<void> save_file(const std::string& path, std::string_view text);

}  // namespace headrace::platform
