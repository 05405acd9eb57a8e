// SPDX-License-Identifier: Apache-2.0
// Finds and opens the devices for this process's copies; called by the constructor, and again in a
// child of fork. device_copy.hpp does the copying.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "inject/copy/device_copy.hpp"

namespace headrace::preload {

/// Finds the work queues that this process may map, and opens the shared ones.
///
/// Threading: constructor only, once.
/// Returns: null if there is none; `note` has one clause on what was found.
[[nodiscard]] Device* open_devices(bool dedicated_too, std::string& note);

/// Opens the dedicated queues, at the first call in a process. Makes only system calls; preserves
/// errno.
///
/// Threading: shared.
/// Returns: how many queues another process holds.
std::uint32_t open_dedicated(Device& device) noexcept;

/// Writes to stderr if that is still the same file as when the devices were opened: programs may
/// close it and open a data file under its number. Makes only system calls.
///
/// Threading: shared.
void say(std::string_view line) noexcept;

}  // namespace headrace::preload
