// SPDX-License-Identifier: Apache-2.0
// Records what this process does with engines, caches, stores and queues, for
// `headrace sim replay`. HEADRACE_TRACE=FILE in the environment does so from the start.
// docs/reference/trace.md describes the file.
#pragma once

#include <cstdint>
#include <string>

#include "headrace/base/export.hpp"
#include "headrace/base/result.hpp"

namespace headrace::telemetry {

/// The file is never longer; what follows is not recorded, and counted as lost.
inline constexpr std::uint64_t kTraceBytesMax = std::uint64_t{256} << 20U;

/// Starts to record into `path`. Processes that record into the same file at the same time share
/// it; a trace that no living process records is replaced.
///
/// Threading: shared. Recording is lock-free; a thread writes 64 KiB at a time.
/// Fails:     invalid_argument if this process records already, or has recorded into this file, or
///            if the file is something else; permission_denied, capacity_exceeded, io_failed.
HEADRACE_API Result<void> start_trace(const std::string& path);
/// Stops recording. No effect if nothing is recorded.
HEADRACE_API void stop_trace();

}  // namespace headrace::telemetry
