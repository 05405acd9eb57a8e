// SPDX-License-Identifier: Apache-2.0
// Trap: handles an instruction that the CPU refused. A submission or a wait is emulated and the
// thread continues behind it; otherwise the signal goes to the program.
#pragma once

#include <ucontext.h>

#include <csignal>

#include "inject/trap/signals.hpp"

namespace headrace::emu {

/// The handler, on a private stack, with all signals blocked but SIGSEGV, SIGBUS and SIGILL.
[[nodiscard]] Onward on_signal(siginfo_t& info, ucontext_t& context) noexcept;

}  // namespace headrace::emu
