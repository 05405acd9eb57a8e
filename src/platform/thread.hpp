// SPDX-License-Identifier: Apache-2.0
// Threads: where they run, where they may run, what they are called.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "headrace/base/result.hpp"
#include "headrace/base/units.hpp"

namespace headrace::platform {

/// Processors that this thread may run on, ascending; never empty.
[[nodiscard]] std::vector<CpuId> allowed_cpus();
/// Restricts the calling thread, or `thread`, to `cpus`.
///
/// Fails: invalid_argument if none of them may be used.
[[nodiscard]] Result<void> pin_this_thread(std::span<const CpuId> cpus);
[[nodiscard]] Result<void> pin_thread(std::thread& thread, std::span<const CpuId> cpus);
/// Processor and node that this thread runs on at this moment; nothing where the kernel does not
/// tell.
[[nodiscard]] std::optional<CpuId> current_cpu();
[[nodiscard]] std::optional<NodeId> current_node();
/// Processor time that the calling thread has used so far.
[[nodiscard]] std::chrono::nanoseconds thread_cpu_time();
/// Names the calling thread for debuggers and /proc; cut to 15 characters.
void name_this_thread(const std::string& name);

}  // namespace headrace::platform
