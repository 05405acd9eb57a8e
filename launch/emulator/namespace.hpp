// SPDX-License-Identifier: Apache-2.0
// The namespace in which the command sees the emulated devices. The launcher itself enters it, so
// the kernel removes every mount when the last process in it ends, however it ends.
#pragma once

#include <string>

#include "headrace/base/result.hpp"
#include "launch/emulator/process.hpp"

namespace headrace::emu {

inline constexpr const char* kEmulatorDirectory = "/dev/dsa-emulator";
inline constexpr const char* kRegistersPath = "/dev/dsa-emulator/registers";
inline constexpr const char* kRefuseMmapPath = "/dev/dsa-emulator/refuse-mmap";
inline constexpr const char* kForceAccessPath = "/dev/dsa-emulator/force-access";
inline constexpr const char* kByEnvironmentPath = "/dev/dsa-emulator/by-environment";
inline constexpr const char* kPreloadPath = "/dev/dsa-emulator/libheadrace-dsa-trap.so";

/// Moves this process, which must be single-threaded, into a private mount namespace, and into a
/// user namespace if it lacks the privilege for that. The user id stays the same.
///
/// Fails: unsupported or permission_denied, with what forbids it and how to allow it.
[[nodiscard]] Result<void> enter_namespace();

/// Replaces /dev, /sys/bus, /sys/devices and /sys/module by extensible directories with the same
/// content, and mounts a FUSE file system. Returns the FUSE connection.
[[nodiscard]] Result<OwnedFile> make_places();

/// Binds the directories of the file system, which must already be served, to their paths.
[[nodiscard]] Result<void> bind_files(bool trace);

/// Makes the dynamic loader load the library at `path` into every program from now on, by an
/// overlay on /etc with /etc/ld.so.preload.
///
/// Returns: false if overlays are refused here; use LD_PRELOAD then.
[[nodiscard]] Result<bool> preload_everywhere(const std::string& path);

}  // namespace headrace::emu
