// SPDX-License-Identifier: Apache-2.0
// The devices that copies of this process may use: found and opened by the constructor, and by a
// child of fork for itself. Not for the copying (device_copy.hpp).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "inject/copy/device_copy.hpp"

namespace headrace::preload {

/// Finds the shared work queues that this process may map, and opens them.
///
/// Threading: the constructor's, once.
/// Returns: null if there is none; `note` says in one clause what was found.
[[nodiscard]] Device* open_devices(std::string& note);

/// Writes to stderr, if that is the file that it was when the devices were opened: programs close
/// it and open their data in its place. Nothing but system calls.
///
/// Threading: shared.
void say(std::string_view line) noexcept;

}  // namespace headrace::preload
