// SPDX-License-Identifier: Apache-2.0
// Process: the preload's per-process state that a child of fork must not inherit. It is in pages
// that the kernel zeroes in the child (MADV_WIPEONFORK), and all zero is its initial state: the
// child starts fresh however it was made (fork, _Fork, clone) and whatever other threads were
// doing. A child of vfork shares the memory and with it the parent's state, correctly.
#pragma once

#include <cstdint>

#include "emu/device/device.hpp"
#include "headrace/base/atomic.hpp"
#include "inject/arena.hpp"
#include "inject/trap/portals.hpp"
#include "inject/trap/stacks.hpp"

namespace headrace::emu {

struct alignas(kPageBytes) Process {
  PortalTable portals;
  StackPool stacks;
  inject::Arena arena;
  Atomic<Client*> client;               // Null until the process needs one.
  Atomic<std::uint32_t> connect_state;  // Connect, in connection.cpp.
  inject::InjectLock action_lock;       // Guards the program's requested actions, in signals.cpp.
  Atomic<std::int64_t> owner;           // Process number; 0 in a child that has not asked yet.
};

[[nodiscard]] Process& process() noexcept;

/// Asks the kernel to zero it at fork. Call once, before the program runs.
void wipe_process_at_fork() noexcept;

}  // namespace headrace::emu
