// SPDX-License-Identifier: Apache-2.0
// Guard: sees to it that nothing is left when the launcher is killed: a small process that waits
// for the launcher's end, then kills what runs in the namespace and removes the directory under
// which the files were mounted. If it is killed as well, the next start removes the directory.
#pragma once

#include <string>

#include "emu/launch/process.hpp"
#include "headrace/base/result.hpp"

namespace headrace::emu {

/// Threading: confined.
class Guard {
 public:
  /// Makes the directory and forks the guard. Before the first thread.
  static Result<Guard> start();
  /// Where the files may be mounted for a moment.
  [[nodiscard]] const std::string& directory() const { return directory_; }
  /// From now on everything in this namespace ends with the launcher.
  void watch(const NamespaceIdentity& identity);
  /// Removes the directory, from which the mount is gone. False if the system did not let us.
  [[nodiscard]] bool remove_directory() const;
  /// There is nothing left to guard: it goes, and the directory if it is still there.
  void dismiss();

 private:
  std::string directory_;
  OwnedFile line_;
  pid_t process_id_ = -1;
};

}  // namespace headrace::emu
