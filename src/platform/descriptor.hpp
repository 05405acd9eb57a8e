// SPDX-License-Identifier: Apache-2.0
// Helpers for opening files: a descriptor that closes itself, and an errno as a Failure.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "headrace/base/owned.hpp"
#include "headrace/base/result.hpp"

namespace headrace::platform {

/// Closes `descriptor`, unless it is negative.
void close_descriptor(int descriptor) noexcept;

/// A descriptor that is closed at the end.
using Descriptor = Owned<int, close_descriptor>;

/// Writes all of `bytes`. Returns 0 or the errno.
[[nodiscard]] int write_all(int descriptor, std::span<const std::byte> bytes);

/// Failure for the errno of a system call on a file.
[[nodiscard]] Failure file_failure(int os_errno, std::string tried);

}  // namespace headrace::platform
