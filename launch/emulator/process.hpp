// SPDX-License-Identifier: Apache-2.0
// Processes and file descriptors, as far as the launcher needs them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "headrace/platform/descriptor.hpp"

namespace headrace::emu {

/// A descriptor that is closed at the end.
using OwnedFile = headrace::platform::Descriptor;

/// A field of /proc/PROCESS/status, such as "Tgid:"; empty if it is not there.
[[nodiscard]] std::string status_field(const std::string& process, std::string_view name);
/// The process of a thread; 0 if it is not visible from here.
[[nodiscard]] std::int32_t process_of_thread(std::int32_t thread_id);
/// Whether a thread that waits for us is about to be killed: by SIGKILL, or by another signal that
/// it neither handles, ignores nor blocks. True if there is no such thread.
[[nodiscard]] bool is_ending(std::int32_t thread_id);
}  // namespace headrace::emu
