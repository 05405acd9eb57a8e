// SPDX-License-Identifier: Apache-2.0
// Whole files: read, and written whole or not at all.
#pragma once

#include <string>
#include <string_view>

#include "headrace/base/result.hpp"

namespace headrace::platform {

/// Regular files only: a pipe or a terminal would keep the caller waiting for a writer.
///
/// Fails: not_found, permission_denied or io_failed; capacity_exceeded beyond `byte_count_max`.
[[nodiscard]] Result<std::string> load_file(const std::string& path, std::size_t byte_count_max);

/// Whether there is a regular file that this process can see.
[[nodiscard]] bool is_file(const std::string& path) noexcept;

/// Writes a temporary file beside `path` and renames it: a reader sees the old file or the new one.
/// A symbolic link is followed; the mode of a file that is there is kept.
///
/// Fails: not_found, permission_denied or io_failed; capacity_exceeded if there is no room;
///        invalid_argument if something other than a regular file is there. Then nothing is left
///        behind.
[[nodiscard]] Result<void> save_file(const std::string& path, std::string_view text);

}  // namespace headrace::platform
