// SPDX-License-Identifier: Apache-2.0
// Entry: where the kernel enters our handler, and how it is left. In assembly, because it changes
// stacks, and because a signal that is not ours has to reach the program's handler as if we had not
// been there: on the kernel's own frame, by a jump.
#pragma once

#include <csignal>

extern "C" {
/// Handler of SIGILL, SIGSEGV and SIGBUS.
[[gnu::visibility("hidden")]] void headrace_trap_entry(int signal, siginfo_t* info, void* context);
/// Returns from a handler: rt_sigreturn, in the bytes by which unwinders know a signal frame.
[[gnu::visibility("hidden")]] void headrace_trap_restorer();
}
