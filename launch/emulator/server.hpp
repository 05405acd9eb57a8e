// SPDX-License-Identifier: Apache-2.0
// Server: the process that serves the devices' files. The launcher forks it inside the namespace;
// if the launcher is killed, the server ends all processes there, and so the namespace.
#pragma once

#include <sys/types.h>

#include "headrace/base/result.hpp"
#include "launch/emulator/file_system.hpp"
#include "launch/emulator/process.hpp"

namespace headrace::emu {

/// Threading: confined.
class Server {
 public:
  /// Forks the server and waits until the files are in place. Call before creating threads, with
  /// all signals blocked.
  ///
  /// Fails: with the error of the server.
  static Result<Server> start(OwnedFile fuse, const Served& served);
  [[nodiscard]] pid_t process_id() const { return process_id_; }
  /// Stops the server. Returns the errno of the first trace line that could not be written, or 0.
  int stop();

 private:
  OwnedFile line_;  ///< The server reads the other end: a byte asks it to stop; end of file means
                    ///< that the launcher is dead.
  pid_t process_id_ = -1;
};

}  // namespace headrace::emu
