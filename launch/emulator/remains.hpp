// SPDX-License-Identifier: Apache-2.0
// Ends processes that a command left running. Takes a pidfd of every process before inspecting it,
// so that a signal never reaches another process that reuses its number.
#pragma once

#include <sys/types.h>

#include <vector>

namespace headrace::emu {

enum class Ending : unsigned char {
  ask_descendants,    ///< Descendants of this process, which must be a subreaper: SIGTERM, then
                      ///< SIGKILL.
  kill_in_namespace,  ///< Processes in this process's mount namespace: SIGKILL.
};

/// Processes whose parent is this one.
[[nodiscard]] std::vector<pid_t> children_of_this_process();

/// Ends them, except `spared` and, among descendants, theirs; reaps children of this process.
///
/// Returns: processes that still run after some seconds, because they are blocked in the kernel.
[[nodiscard]] std::vector<pid_t> end_processes(Ending ending, const std::vector<pid_t>& spared);

}  // namespace headrace::emu
