// SPDX-License-Identifier: Apache-2.0
// Connection: this process's Client, made when the process first shows that it needs one, so that
// the thousands of processes that never do (a shell, a compiler) cost a file mapping and no thread.
#pragma once

#include "emu/device/device.hpp"
#include "inject/trap/portals.hpp"

namespace headrace::emu {

/// The Client, its engine threads running; null if there can be none (said once on stderr).
/// Async-signal-safe but for starting the threads, at a process's first call: the hooks of open and
/// mmap see to it that this is rarely inside a handler.
[[nodiscard]] Client* connection() noexcept;

/// ENQCMD by this process's Client: false means retry. Where there can be none, too.
[[nodiscard]] bool enqueue(PortalName portal, const dsa::Descriptor& descriptor) noexcept;
/// MOVDIR64B by this process's Client. Where there can be none, it is lost and counted.
void store(PortalName portal, const dsa::Descriptor& descriptor) noexcept;

/// Whether there are devices at all: without, every hook passes through.
[[nodiscard]] bool emulated() noexcept;
/// mmap of a portal is to fail with EPERM, as without CAP_SYS_RAWIO on affected parts.
[[nodiscard]] bool mmap_refused() noexcept;
/// A submission by an instruction that the CPU refuses is to be met as one by a CPU that knows it.
[[nodiscard]] bool access_forced() noexcept;

}  // namespace headrace::emu
