// SPDX-License-Identifier: Apache-2.0
// Ends what a command has left running. Every process is held by a pidfd before it is looked at, so
// a signal never reaches another process that has got its number.
#pragma once

#include <sys/types.h>

#include <vector>

namespace headrace::emu {

enum class Ending : unsigned char {
  ask_descendants,    ///< Of this process, which must be a subreaper: SIGTERM, then SIGKILL.
  kill_in_namespace,  ///< Those in this process's mount namespace: SIGKILL.
};

/// Ends them, but for `spared`, and reaps children of this process.
///
/// Returns: those that still run after seconds, because they wait in the kernel for something that
///          does not come.
[[nodiscard]] std::vector<pid_t> end_processes(Ending ending, const std::vector<pid_t>& spared);

}  // namespace headrace::emu
