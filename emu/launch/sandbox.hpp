// SPDX-License-Identifier: Apache-2.0
// Sandbox: the mount namespace in which the emulated devices are in their places. Bubblewrap builds
// it and goes; what is in it lives as long as somebody is inside.
#pragma once

#include <string>

#include "emu/launch/process.hpp"
#include "headrace/base/result.hpp"

namespace headrace::emu {

inline constexpr const char* kEmulatorDirectory = "/dev/dsa-emulator";
inline constexpr const char* kRegistersPath = "/dev/dsa-emulator/registers";
inline constexpr const char* kPreloadPath = "/dev/dsa-emulator/libheadrace-dsa-trap.so";

struct SandboxOptions {
  std::string files_directory;  ///< Where the FileSystem is mounted.
  std::string preload_path;     ///< As seen from outside.
  bool trace = false;
};

struct Sandbox {
  OwnedFile registers;  ///< A file of registers_bytes() zeros, gone with the namespace.
  OwnedFile mount_namespace;
  OwnedFile user_namespace;  ///< The caller's own if it is root.
  bool has_user_namespace = false;
};

/// Fails: unsupported if this machine lacks bubblewrap or user namespaces, saying which.
[[nodiscard]] Result<Sandbox> make_sandbox(const SandboxOptions& options);

/// Gives the caller, root, a mount namespace of its own, so that no mount is ever seen outside.
[[nodiscard]] Result<void> leave_mount_namespace();

/// What runs inside for a moment: makes the registers and hands everything to `socket`. The exit
/// code.
[[nodiscard]] int hand_over(int socket);

}  // namespace headrace::emu
