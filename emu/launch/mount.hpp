// SPDX-License-Identifier: Apache-2.0
// Mount: puts a FUSE file system on a directory and takes it away again, as root by itself, as
// anybody else by fusermount3. Serving its files is another matter, and another process's.
#pragma once

#include <string>

#include "emu/launch/process.hpp"
#include "headrace/base/result.hpp"

namespace headrace::emu {

struct Mounted {
  OwnedFile file;         ///< Whoever reads and answers it serves the files. None if it failed.
  std::string complaint;  ///< Then: libfuse's or fusermount3's last line.
};
/// Mounts on `directory`. A fusermount3 has ended when it returns. No other thread may be.
[[nodiscard]] Mounted mount_fuse(const std::string& directory);
/// Such a complaint in terms of what this machine lacks.
[[nodiscard]] Failure explain_mount(std::string complaint);

/// Takes the mount from the directory, and the directory away; whoever holds the mount elsewhere
/// keeps it. True if the directory is gone.
[[nodiscard]] bool remove_mounted(const std::string& directory);

}  // namespace headrace::emu
