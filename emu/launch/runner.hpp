// SPDX-License-Identifier: Apache-2.0
// Runner: the command's process, a child of the launcher: forked early, sent into the namespace
// late, watched until it ends. Signals go through it as if the launcher were not there.
#pragma once

#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "emu/launch/process.hpp"
#include "emu/launch/sandbox.hpp"
#include "headrace/base/result.hpp"

namespace headrace::emu {

struct Command {
  std::string path;
  std::vector<std::string> words;
  std::vector<std::pair<std::string, std::string>> environment;  ///< Added to the launcher's own.
  bool fixed_addresses = false;  ///< Switch the randomisation of addresses off.
  sigset_t signal_mask{};        ///< The command's.
};

/// Threading: confined.
class Runner {
 public:
  /// Forks. Before the first thread, with every signal blocked.
  static Result<Runner> fork_command(const Command& command);
  /// Sends the child into the namespace, where it becomes the command.
  ///
  /// Fails: with os_errno of exec, or what kept it from the namespace.
  Result<void> go(const Sandbox& sandbox);
  /// Waits for the command, handing on the signals that this process gets, stopping when it stops.
  /// Its wait status.
  int wait();
  /// Ends what the command left behind: asks (SIGTERM), then kills.
  static void end_remains(const NamespaceIdentity& identity);

 private:
  OwnedFile line_;
  pid_t process_id_ = -1;
};

/// Blocks every signal that can be, and says which were blocked before.
[[nodiscard]] sigset_t block_signals();
/// Ends this process as `wait_status` says: by exit code, or by the same signal without a core.
[[noreturn]] void end_as(int wait_status);

}  // namespace headrace::emu
