// SPDX-License-Identifier: Apache-2.0
// Examines a command before it starts: whether it exists, and whether a library can be preloaded
// into it. Starts nothing.
#pragma once

#include <string>

#include "launch/child.hpp"

namespace headrace::emu {

using launch::kExitNotExecutable;
using launch::kExitNotFound;

/// Why a command cannot be started, and the exit code that a shell would return.
struct Refusal {
  int exit_code = 0;  ///< 0: it can be started.
  std::string sentence;
};

struct Program {
  std::string path;  ///< Found as execvp finds it.
  std::string note;  ///< A remark that does not prevent the start, or empty.
  Refusal refusal;
};

/// Finds `command` in PATH unless it has a slash, follows "#!" lines, and reads the ELF header of
/// the final program.
[[nodiscard]] Program judge_program(const std::string& command);

}  // namespace headrace::emu
