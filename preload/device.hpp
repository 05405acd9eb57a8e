// SPDX-License-Identifier: Apache-2.0
// The devices that copies of this process may use: found and opened by the constructor, and by a
// child of fork for itself. Not for the copying (device_copy.hpp).
#pragma once

#include <cstddef>
#include <string>

#include "preload/device_copy.hpp"

namespace headrace::preload {

/// Finds the shared work queues that this process may map, and opens them.
///
/// Threading: the constructor's, once.
/// Returns: null if there is none; `note` says in one clause what was found.
[[nodiscard]] Device* open_devices(std::string& note);

}  // namespace headrace::preload
