// SPDX-License-Identifier: Apache-2.0
// Trap: what happens at an instruction that the CPU refused. If it is a submission or a wait, it is
// carried out and the thread goes on behind it; if not, the signal is the program's.
#pragma once

#include <ucontext.h>

#include <csignal>

#include "inject/trap/signals.hpp"

namespace headrace::emu {

/// The handler, on a stack of its own, with all signals blocked but SIGSEGV, SIGBUS and SIGILL.
[[nodiscard]] Onward on_signal(siginfo_t& info, ucontext_t& context) noexcept;

}  // namespace headrace::emu
