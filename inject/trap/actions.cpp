// SPDX-License-Identifier: Apache-2.0
// Hooks of the calls that set what a signal does: sigaction and its older kin. A program that makes
// the system call itself is not seen: it replaces our handler, and its next submission is then an
// illegal instruction to it.
#include <cerrno>
#include <csignal>
#include <cstring>

#include "inject/trap/connection.hpp"
#include "inject/trap/hook.hpp"
#include "inject/trap/next.hpp"
#include "inject/trap/signals.hpp"

namespace headrace::emu {
namespace {

using kernel::SignalSet;
using Handler = void (*)(int);
using Action = int(int, const struct sigaction*, struct sigaction*);
using Signal = Handler(int, Handler);
using Interrupt = int(int, int);

constinit Next<Action> next_sigaction("sigaction");
constinit Next<Signal> next_signal("signal");
constinit Next<Signal> next_bsd_signal("bsd_signal");
constinit Next<Signal> next_ssignal("ssignal");
constinit Next<Signal> next_sysv_signal("sysv_signal");
constinit Next<Signal> next_sysv_signal_reserved("__sysv_signal");
constinit Next<Signal> next_sigset("sigset");
constinit Next<int(int)> next_sigignore("sigignore");
constinit Next<Interrupt> next_siginterrupt("siginterrupt");

SignalSet first_word(const sigset_t& set) {
  SignalSet word = 0;
  __builtin_memcpy(&word, &set, sizeof(word));
  return word;
}

KernelAction from_library(const struct sigaction& asked) {
  KernelAction action;
  action.handler = reinterpret_cast<std::uint64_t>(asked.sa_sigaction);
  action.flags = static_cast<std::uint32_t>(asked.sa_flags);
  action.mask = first_word(asked.sa_mask);
  return action;
}

struct sigaction to_library(const KernelAction& action) {
  struct sigaction shown{};
  shown.sa_sigaction = reinterpret_cast<void (*)(int, siginfo_t*, void*)>(action.handler);
  shown.sa_flags = static_cast<int>(static_cast<std::uint32_t>(action.flags));
  __builtin_memcpy(&shown.sa_mask, &action.mask, sizeof(action.mask));
  return shown;
}

/// What `signal` and its kin do for one of the three: a handler, with flags.
Handler replace(std::size_t index, Handler handler, std::uint64_t flags, SignalSet mask) noexcept {
  KernelAction asked;
  asked.handler = reinterpret_cast<std::uint64_t>(handler);
  asked.flags = flags;
  asked.mask = mask;
  KernelAction former;
  exchange_action(index, &asked, &former);
  return reinterpret_cast<Handler>(former.handler);
}

/// BSD's: stays in place, blocks itself, restarts system calls.
Handler replace_bsd(Next<Signal>& next, int signal, Handler handler) noexcept {
  const auto index = taken_index(signal);
  if (!index || !emulated()) return next(signal, handler);
  return replace(*index, handler, SA_RESTART, kernel::signal_bit(signal));
}

/// System V's: good for one signal, blocks nothing.
Handler replace_sysv(Next<Signal>& next, int signal, Handler handler) noexcept {
  const auto index = taken_index(signal);
  if (!index || !emulated()) return next(signal, handler);
  return replace(*index, handler, SA_RESETHAND | SA_NODEFER, 0);
}

}  // namespace

void find_next_actions() noexcept {
  next_sigaction.get();
  next_signal.get();
  next_bsd_signal.get();
  next_ssignal.get();
  next_sysv_signal.get();
  next_sysv_signal_reserved.get();
  next_sigset.get();
  next_sigignore.get();
  next_siginterrupt.get();
}

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
    const SignalSet mask = to_kernel(first_word(asked->sa_mask));
    __builtin_memcpy(&changed.sa_mask, &mask, sizeof(mask));
  }
  const int result = next_sigaction(signal, asked == nullptr ? nullptr : &changed, former);
  if (result == 0 && former != nullptr) {
    const SignalSet mask = to_program(first_word(former->sa_mask));
    __builtin_memcpy(&former->sa_mask, &mask, sizeof(mask));
  }
  return result;
}

HEADRACE_HOOK Handler signal(int number, Handler handler) noexcept {
  return replace_bsd(next_signal, number, handler);
}
HEADRACE_HOOK Handler bsd_signal(int number, Handler handler) noexcept {
  return replace_bsd(next_bsd_signal, number, handler);
}
HEADRACE_HOOK Handler ssignal(int number, Handler handler) noexcept {
  return replace_bsd(next_ssignal, number, handler);
}
HEADRACE_HOOK Handler sysv_signal(int number, Handler handler) noexcept {
  return replace_sysv(next_sysv_signal, number, handler);
}
HEADRACE_HOOK Handler __sysv_signal(int number, Handler handler) noexcept {
  return replace_sysv(next_sysv_signal_reserved, number, handler);
}

HEADRACE_HOOK Handler sigset(int number, Handler handler) noexcept {
  const auto index = taken_index(number);
  if (!index || !emulated()) return next_sigset(number, handler);
  const SignalSet deputy = kernel::signal_bit(kDeputies[*index]);
  const SignalSet mask = kernel::mask();
  const auto hold = reinterpret_cast<Handler>(2);  // SIG_HOLD
  Handler former = nullptr;
  if (handler == hold) {
    KernelAction now;
    exchange_action(*index, nullptr, &now);
    former = reinterpret_cast<Handler>(now.handler);
    kernel::set_mask(mask | deputy);
  } else {
    former = replace(*index, handler, 0, 0);
    kernel::set_mask(mask & ~deputy);
  }
  return (mask & deputy) != 0 ? hold : former;
}

HEADRACE_HOOK int sigignore(int number) noexcept {
  const auto index = taken_index(number);
  if (!index || !emulated()) return next_sigignore(number);
  replace(*index, SIG_IGN, 0, 0);
  return 0;
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
