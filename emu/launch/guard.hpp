// SPDX-License-Identifier: Apache-2.0
// Guard: sees to it that nothing is left when the launcher is killed. A small process that makes
// the directory under which the files are mounted, mounts them, and hands what answers them to the
// launcher; when the launcher is gone it kills what runs in the namespace and removes what it has
// made. One process does both, one after the other, so none of it can come too late for the other.
// If it is killed as well, the next start removes the directory. docs/internals/launcher.md
#pragma once

#include <string>

#include "emu/launch/process.hpp"
#include "headrace/base/result.hpp"

namespace headrace::emu {

/// Threading: confined.
class Guard {
 public:
  /// Forks the guard, which begins to mount. Before the first thread.
  ///
  /// Fails: io_failed if the system gives no process.
  static Result<Guard> start();
  /// Waits until the files are mounted. What answers them; nobody else holds it.
  ///
  /// Fails: unsupported, permission_denied or io_failed, saying what this machine lacks.
  Result<OwnedFile> take_files();
  /// Where they are mounted for a moment.
  [[nodiscard]] const std::string& directory() const { return directory_; }
  /// Takes the mount and the directory away; whoever holds the mount elsewhere keeps it.
  void detach();
  /// From now on everything in this namespace ends with the launcher.
  void watch(const OwnedFile& mount_namespace);
  /// There is nothing left to guard: it goes, and the directory if it is still there.
  void dismiss();

 private:
  std::string directory_;
  OwnedFile line_;
  pid_t process_id_ = -1;
};

}  // namespace headrace::emu
