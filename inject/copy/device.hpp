// SPDX-License-Identifier: Apache-2.0
// The devices that copies of this process may use: found and opened by the constructor, and by a
// child of fork for itself. Not for the copying (device_copy.hpp).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "inject/copy/device_copy.hpp"

namespace headrace::preload {

/// Finds the work queues that this process may map, and opens the shared ones.
///
/// Threading: the constructor's, once.
/// Returns: null if there is none; `note` says in one clause what was found.
[[nodiscard]] Device* open_devices(bool dedicated_too, std::string& note);

/// Opens the dedicated queues, at the first call in a process. Nothing but system calls; errno is
/// kept.
///
/// Threading: shared.
/// Returns: how many another process has.
std::uint32_t open_dedicated(Device& device) noexcept;

/// Writes to stderr, if that is the file that it was when the devices were opened: programs close
/// it and open their data in its place. Nothing but system calls.
///
/// Threading: shared.
void say(std::string_view line) noexcept;

}  // namespace headrace::preload
