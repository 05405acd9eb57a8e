// SPDX-License-Identifier: Apache-2.0
// Connection: this process's Client, created on first need, so that processes that never use a
// device (a shell, a compiler) cost a file mapping and no thread.
#pragma once

#include "emu/device/device.hpp"
#include "inject/trap/portals.hpp"

namespace headrace::emu {

/// The Client with running engine threads; null if none can be made (reported once on stderr).
/// Async-signal-safe, except that the first call of a process starts the threads: the hooks of open
/// and mmap make it rare for that to happen in a handler.
[[nodiscard]] Client* connection() noexcept;

/// ENQCMD (shared) or MOVDIR64B (dedicated) through this process's Client. False: retry, or dropped
/// and counted; also if there is no Client.
bool submit(PortalName portal, const dsa::Descriptor& descriptor, dsa::QueueMode mode) noexcept;

/// Whether there are emulated devices; if not, every hook passes through.
[[nodiscard]] bool emulated() noexcept;
/// Whether mmap of a portal fails with EPERM, as without CAP_SYS_RAWIO on affected parts.
[[nodiscard]] bool mmap_refused() noexcept;
/// Whether to treat an unsupported submission instruction as a CPU that supports it would.
[[nodiscard]] bool access_forced() noexcept;

}  // namespace headrace::emu
