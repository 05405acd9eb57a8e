// SPDX-License-Identifier: Apache-2.0
// Server: the process that serves the files of the devices. The launcher forks it inside the
// namespace; when the launcher is killed it ends what runs there, and with that the namespace.
#pragma once

#include <sys/types.h>

#include "headrace/base/result.hpp"
#include "launch/emulator/file_system.hpp"
#include "launch/emulator/process.hpp"

namespace headrace::emu {

/// Threading: confined.
class Server {
 public:
  /// Forks it and waits until the files are in their places. Before the first thread, with all
  /// signals blocked.
  ///
  /// Fails: with what the server could not do.
  static Result<Server> start(OwnedFile fuse, const Served& served);
  [[nodiscard]] pid_t process_id() const { return process_id_; }
  /// Ends it. The errno of the first line of the trace that could not be written, or 0.
  int stop();

 private:
  OwnedFile line_;  ///< The server reads the other end: a byte asks it to stop, the end of the file
                    ///< says that the launcher is dead.
  pid_t process_id_ = -1;
};

}  // namespace headrace::emu
