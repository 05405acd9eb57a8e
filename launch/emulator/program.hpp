// SPDX-License-Identifier: Apache-2.0
// What a command is, judged before it is started: whether it exists, and whether a library can be
// put under it. Does not start anything.
#pragma once

#include <string>

#include "launch/child.hpp"

namespace headrace::emu {

using launch::kExitNotExecutable;
using launch::kExitNotFound;

/// Why a command is not started, and the exit code that a shell would give.
struct Refusal {
  int exit_code = 0;  ///< 0: it may be started.
  std::string sentence;
};

struct Program {
  std::string path;  ///< Found as execvp finds it.
  std::string note;  ///< Something to know, or empty; does not keep it from running.
  Refusal refusal;
};

/// Finds `command` in PATH unless it has a slash, follows "#!" lines, and reads the ELF header of
/// what would run in the end.
[[nodiscard]] Program judge_program(const std::string& command);

}  // namespace headrace::emu
