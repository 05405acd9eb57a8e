// SPDX-License-Identifier: Apache-2.0
// Threads: affinity, current processor, CPU time and names.
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
/// Fails: invalid_argument if this process may use none of them.
[[nodiscard]] Result<void> pin_this_thread(std::span<const CpuId> cpus);
[[nodiscard]] Result<void> pin_thread(std::thread& thread, std::span<const CpuId> cpus);
/// Processor and node that this thread runs on at this moment; nothing if unknown.
[[nodiscard]] std::optional<CpuId> current_cpu();
[[nodiscard]] std::optional<NodeId> current_node();
/// CPU time that the calling thread has used so far.
[[nodiscard]] std::chrono::nanoseconds thread_cpu_time();
/// Names the calling thread for debuggers and /proc; truncated to 15 characters.
void name_this_thread(const std::string& name);

}  // namespace headrace::platform
