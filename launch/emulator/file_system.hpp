// SPDX-License-Identifier: Apache-2.0
// Serves a Tree by FUSE. Attributes bypass caches; portals are pages that can be mapped, are opened
// by the driver's rules, and accept descriptors by write().
#pragma once

#include "emu/device/device.hpp"
#include "headrace/base/atomic.hpp"
#include "headrace/base/result.hpp"
#include "launch/emulator/process.hpp"
#include "launch/emulator/reaper.hpp"
#include "launch/emulator/tree.hpp"

namespace headrace::emu {

/// What to serve; all of it must outlive the file system.
struct Served {
  const Tree& tree;
  Control& control;          ///< Commands to it are traced.
  bool refuse_mmap = false;  ///< Portals cannot be mapped.
  int trace_file = -1;       ///< Trace lines are appended to it; -1: no trace.
};

/// Serves the FUSE connection `file` on separate threads until this process ends. `reaper` is
/// notified of every process that opens a portal.
///
/// Returns: the errno of the first line of the trace that could not be written, or 0.
/// Fails:   out_of_memory.
[[nodiscard]] Result<const Atomic<int>*> serve_files(OwnedFile file, const Served& served,
                                                     Reaper& reaper);

}  // namespace headrace::emu
