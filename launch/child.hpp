// SPDX-License-Identifier: Apache-2.0
// Child: the command of 'headrace emulate' and 'headrace run', run as a child of the launcher.
// Signals, stops and the exit code pass through the launcher.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headrace/base/result.hpp"

namespace headrace::launch {

/// Exit codes of a command that could not be started, as of a shell.
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;

struct Command {
  std::string path;  ///< Resolved by the launcher; searched in PATH if it has no slash.
  std::vector<std::string> words;
  std::vector<std::pair<std::string, std::string>> environment = {};  ///< Added to the launcher's.
  bool fixed_addresses = false;  ///< Disables address space randomisation.
};

/// Reserves the standard file descriptors that the caller closed, so that the launcher's own files
/// do not get their numbers; the command finds them closed again.
void occupy_closed_files();
/// Blocks every signal except those of faults for the rest of the process. Call before start().
void block_signals();

/// Threading: confined.
class Child {
 public:
  /// Starts the command; it ends with this process (PR_SET_PDEATHSIG).
  ///
  /// Fails: with os_errno of exec; capacity_exceeded if its arguments are too long.
  static Result<Child> start(const Command& command);
  [[nodiscard]] pid_t process_id() const { return process_id_; }
  /// Waits for the command, passing on the signals that this process gets, stopping when it stops.
  /// Its wait status. `ended` is called with each other child that has ended; true ends the wait
  /// with nothing.
  std::optional<int> wait(const std::function<bool(pid_t)>& ended);

 private:
  pid_t process_id_ = -1;
};

/// Ends this process as `wait_status` says: by exit code, or by the same signal without a core.
[[noreturn]] void end_as(int wait_status);

/// Prints one sentence on stderr.
void complain(const std::string& sentence);

}  // namespace headrace::launch
