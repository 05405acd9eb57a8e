// SPDX-License-Identifier: Apache-2.0
// Hooks of the calls that set signal actions: sigaction and its older variants. A program that
// makes the raw system call, or calls functions that POSIX calls obsolete (sigset, sighold,
// sigrelse, sigignore, sigblock, sigsetmask), replaces or blocks our handler unnoticed; its next
// submission is then an illegal instruction.
#include <csignal>

#include "inject/trap/connection.hpp"
#include "inject/trap/next.hpp"
#include "inject/trap/signals.hpp"

namespace headrace::emu {
namespace {

using kernel::SignalSet;
using Handler = void (*)(int);
using Signal = Handler(int, Handler);

HEADRACE_NEXT<int(int, const struct sigaction*, struct sigaction*)> next_sigaction("sigaction");
HEADRACE_NEXT<Signal> next_signal("signal");
HEADRACE_NEXT<Signal> next_sysv_signal("__sysv_signal");
HEADRACE_NEXT<int(int, int)> next_siginterrupt("siginterrupt");

KernelAction from_library(const struct sigaction& asked) {
  KernelAction action;
  action.handler = reinterpret_cast<std::uint64_t>(asked.sa_sigaction);
  action.flags = static_cast<std::uint32_t>(asked.sa_flags);
  action.mask = word_of(asked.sa_mask);
  return action;
}

struct sigaction to_library(const KernelAction& action) {
  struct sigaction shown{};
  shown.sa_sigaction = reinterpret_cast<void (*)(int, siginfo_t*, void*)>(action.handler);
  shown.sa_flags = static_cast<int>(static_cast<std::uint32_t>(action.flags));
  set_word(shown.sa_mask, action.mask);
  return shown;
}

/// Implements `signal` and variants for one of the three: a handler with flags.
Handler replace(std::size_t index, Handler handler, std::uint64_t flags, SignalSet mask) noexcept {
  KernelAction asked;
  asked.handler = reinterpret_cast<std::uint64_t>(handler);
  asked.flags = flags;
  asked.mask = mask;
  KernelAction former;
  exchange_action(index, &asked, &former);
  return reinterpret_cast<Handler>(former.handler);
}

}  // namespace

extern "C" {

HEADRACE_HOOK int sigaction(int signal, const struct sigaction* asked,
                            struct sigaction* former) noexcept {
  if (!emulated()) return next_sigaction(signal, asked, former);
  if (const auto index = taken_index(signal)) {
    KernelAction to;
    if (asked != nullptr) to = from_library(*asked);
    KernelAction from;
    exchange_action(*index, asked == nullptr ? nullptr : &to, &from);
    if (former != nullptr) *former = to_library(from);
    return 0;
  }
  struct sigaction changed{};
  if (asked != nullptr) {
    changed = *asked;
    // A handler may submit: none may block the three.
    set_word(changed.sa_mask, to_kernel(word_of(asked->sa_mask)));
  }
  const int result = next_sigaction(signal, asked == nullptr ? nullptr : &changed, former);
  if (result == 0 && former != nullptr) {
    set_word(former->sa_mask, to_program(word_of(former->sa_mask)));
  }
  return result;
}

/// BSD semantics: stays installed, blocks itself, restarts system calls.
HEADRACE_HOOK Handler signal(int number, Handler handler) noexcept {
  const auto index = taken_index(number);
  if (!index || !emulated()) return next_signal(number, handler);
  return replace(*index, handler, SA_RESTART, kernel::signal_bit(number));
}
HEADRACE_HOOK_TOO(bsd_signal, signal);
HEADRACE_HOOK_TOO(ssignal, signal);
HEADRACE_HOOK_TOO(sysv_signal, __sysv_signal);
/// System V semantics: reset after one signal, blocks nothing.
HEADRACE_HOOK Handler __sysv_signal(int number, Handler handler) noexcept {
  const auto index = taken_index(number);
  if (!index || !emulated()) return next_sysv_signal(number, handler);
  return replace(*index, handler, SA_RESETHAND | SA_NODEFER, 0);
}

HEADRACE_HOOK int siginterrupt(int number, int interrupts) noexcept {
  const auto index = taken_index(number);
  if (!index || !emulated()) return next_siginterrupt(number, interrupts);
  KernelAction action;
  exchange_action(*index, nullptr, &action);
  action.flags &= ~std::uint64_t{SA_RESTART};
  if (interrupts == 0) action.flags |= SA_RESTART;
  exchange_action(*index, &action, nullptr);
  return 0;
}

}  // extern "C"
}  // namespace headrace::emu
