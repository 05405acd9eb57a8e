// SPDX-License-Identifier: Apache-2.0
// FileSystem: serves a Tree by FUSE. Attributes are read and written past any cache; portals are
// pages that can be mapped, opened by the driver's rules, and take descriptors by write().
#pragma once

#include <memory>
#include <string>

#include "emu/device/device.hpp"
#include "emu/launch/process.hpp"
#include "emu/launch/reaper.hpp"
#include "emu/launch/tree.hpp"
#include "headrace/base/result.hpp"

namespace headrace::emu {

/// Threading: shared.
class FileSystem {
 public:
  /// Serves what is mounted and answered by `file` (mount.hpp), from threads of its own. Until
  /// publish() there are directories only. Threads start here: whoever forks does so before.
  ///
  /// Fails: out_of_memory.
  static Result<std::unique_ptr<FileSystem>> serve(OwnedFile file);
  FileSystem(const FileSystem&) = delete;
  FileSystem& operator=(const FileSystem&) = delete;
  /// Ends the connection: whatever still uses the files gets ENOTCONN. Joins.
  virtual ~FileSystem() = default;

  /// Serves `tree` from now on; whatever is named here must outlive this object. `reaper` is told
  /// who opens a portal. Lines of the trace are appended to `trace_file` if that is no -1.
  /// Commands to `control` are traced from then on.
  virtual void publish(const Tree& tree, Control& control, Reaper& reaper, bool refuse_mmap,
                       int trace_file) = 0;
  /// errno of the first line of the trace that could not be written, 0 if all were.
  [[nodiscard]] virtual int trace_error() const = 0;

 protected:
  FileSystem() = default;
};

}  // namespace headrace::emu
