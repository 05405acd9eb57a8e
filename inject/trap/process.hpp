// SPDX-License-Identifier: Apache-2.0
// Process: everything that the preload knows of the process it is in and that a child made by fork
// must not believe. It lies in pages that the kernel hands to such a child as zeroes
// (MADV_WIPEONFORK), and all zero is its state at the start: the child begins afresh, however it
// was made (fork, _Fork, clone), whatever other threads were just doing. A child made by vfork
// shares the memory and with it the parent's state, rightly.
#pragma once

#include <cstdint>
#include <span>

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
  inject::InjectLock action_lock;       // Of the asked actions, in signals.cpp.
  Atomic<std::int64_t> owner;           // Its number; 0 in a child that has not asked yet.
};

[[nodiscard]] Process& process() noexcept;

/// Asks the kernel to wipe it at fork. Once, before the program runs.
void wipe_process_at_fork() noexcept;

}  // namespace headrace::emu
