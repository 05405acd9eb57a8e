// SPDX-License-Identifier: Apache-2.0
// Entry: where the kernel enters our handler, and how it returns. In assembly, because it switches
// stacks, and because a signal that is not ours must reach the program's handler unchanged: by a
// jump, on the kernel's own frame.
#pragma once

#include <csignal>

extern "C" {
/// Handler of SIGILL, SIGSEGV and SIGBUS.
[[gnu::visibility("hidden")]] void headrace_trap_entry(int signal, siginfo_t* info, void* context);
/// Returns from a handler: rt_sigreturn, in the bytes by which unwinders recognise a signal frame.
[[gnu::visibility("hidden")]] void headrace_trap_restorer();
}
