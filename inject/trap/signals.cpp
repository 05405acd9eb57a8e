// SPDX-License-Identifier: Apache-2.0
#include "inject/trap/signals.hpp"

#include "headrace/base/atomic.hpp"
#include "inject/trap/entry.hpp"
#include "inject/trap/process.hpp"

namespace headrace::emu {
namespace {

using kernel::signal_bit;
using kernel::SignalSet;

constexpr std::uint64_t kSiginfo = 4;
constexpr std::uint64_t kRestorer = 0x0400'0000;
constexpr std::uint64_t kOnStack = 0x0800'0000;
constexpr std::uint64_t kRestart = 0x1000'0000;
constexpr std::uint64_t kNoDefer = 0x4000'0000;
constexpr std::uint64_t kResetHand = 0x8000'0000;

constexpr SignalSet kTakenSet = signal_bit(SIGILL) | signal_bit(SIGSEGV) | signal_bit(SIGBUS);
constexpr SignalSet kProxySet =
    signal_bit(kProxies[0]) | signal_bit(kProxies[1]) | signal_bit(kProxies[2]);

/// The program's requested actions. A child of fork inherits them. Guarded by Process::action_lock;
/// writers block all signals, so that no handler waits for a writer that it interrupted.
constinit KernelAction asked_actions[kTaken.size()];
constinit Atomic<std::uint32_t> taken;

long kernel_action(int signal, const KernelAction* action, KernelAction* former) noexcept {
  return kernel::call(__NR_rt_sigaction, signal, kernel::as_argument(action),
                      kernel::as_argument(former), sizeof(SignalSet));
}

/// Installs our handler with the SA_ONSTACK and SA_RESTART flags that the program requested.
void install(int signal, std::uint64_t asked_flags) noexcept {
  // SIGSEGV and SIGBUS stay unblocked in the handler: it reads the program's memory, which may
  // fault. SA_NODEFER, because the kernel would block the signal itself.
  const KernelAction ours{
      .handler = reinterpret_cast<std::uint64_t>(&headrace_trap_entry),
      .flags = kSiginfo | kRestorer | kNoDefer | (asked_flags & (kOnStack | kRestart)),
      .restorer = reinterpret_cast<std::uint64_t>(&headrace_trap_restorer),
      .mask = ~kTakenSet};
  kernel_action(signal, &ours, nullptr);
}

/// A child of vfork shares its parent's memory but has separate signal actions: its requests must
/// not change the parent's table.
bool in_borrowed_memory() noexcept {
  Atomic<std::int64_t>& owner = process().owner;
  const std::int64_t self = kernel::call(__NR_getpid);
  // relaxed: a child of fork finds 0 and stores its number, the same from every thread.
  const std::int64_t found = owner.load_relaxed();
  if (found == 0) owner.store_relaxed(self);
  return found != 0 && found != self;
}

void end_by(int signal, siginfo_t& info, bool repeats) noexcept {
  const KernelAction byDefault{};
  kernel_action(signal, &byDefault, nullptr);
  if (repeats) return;
  kernel::call(__NR_rt_tgsigqueueinfo, kernel::call(__NR_getpid), kernel::call(__NR_gettid), signal,
               kernel::as_argument(&info));
}

}  // namespace

kernel::SignalSet to_kernel(SignalSet asked) {
  SignalSet kept = asked & ~(kTakenSet | kProxySet);
  for (std::size_t i = 0; i < kTaken.size(); ++i) {
    if ((asked & signal_bit(kTaken[i])) != 0) kept |= signal_bit(kProxies[i]);
  }
  return kept;
}

kernel::SignalSet to_program(SignalSet kept) {
  SignalSet shown = kept & ~kTakenSet;
  for (std::size_t i = 0; i < kTaken.size(); ++i) {
    if ((kept & signal_bit(kProxies[i])) != 0) shown |= signal_bit(kTaken[i]);
  }
  return shown;
}

bool signals_taken() noexcept {
  return taken.load_relaxed() != 0;  // relaxed: set before the program runs.
}

void take_signals() noexcept {
  process().owner.store_relaxed(kernel::call(__NR_getpid));  // relaxed: no other thread yet.
  for (std::size_t i = 0; i < kTaken.size(); ++i) {
    KernelAction inherited;
    kernel_action(kTaken[i], nullptr, &inherited);
    // Only "ignore" survives exec.
    asked_actions[i].handler = inherited.handler;
    install(kTaken[i], kRestart);
  }
  // Signals blocked here were blocked by the program that called exec; if it had this preload, as
  // proxies.
  const SignalSet inherited = kernel::mask();
  kernel::set_mask(to_kernel(inherited) | (inherited & kProxySet));
  taken.store_relaxed(1);  // relaxed: as above.
}

void exchange_action(std::size_t index, const KernelAction* asked, KernelAction* former) noexcept {
  const int signal = kTaken[index];
  if (in_borrowed_memory()) {
    // Its handlers cannot run there, but "default" and "ignore" before exec are common.
    KernelAction given;
    if (asked != nullptr) {
      given = *asked;
      given.flags |= kRestorer;
      given.restorer = reinterpret_cast<std::uint64_t>(&headrace_trap_restorer);
      given.mask = to_kernel(asked->mask);
    }
    kernel_action(signal, asked == nullptr ? nullptr : &given, former);
    return;
  }
  const kernel::Quiet quiet;
  const inject::Hold hold(process().action_lock);
  if (former != nullptr) *former = asked_actions[index];
  if (asked == nullptr) return;
  asked_actions[index] = *asked;
  const bool handled = asked->handler > 1;
  install(signal, handled ? asked->flags : kRestart);
}

Onward deliver(siginfo_t& info, ucontext_t& context, bool repeats) noexcept {
  const int signal = info.si_signo;
  const std::size_t index = taken_index(signal).value_or(0);
  // Sent by kill or similar, not caused by the thread.
  const bool sent = info.si_code <= 0;
  const SignalSet interrupted = word_of(context.uc_sigmask);
  const bool blocked = (interrupted & signal_bit(kProxies[index])) != 0;

  KernelAction asked;
  {
    // This handler does not block its own signal, and another process may send one: the nested
    // handler would wait for the lock that its thread holds.
    const kernel::Quiet quiet;
    const inject::Hold hold(process().action_lock);
    asked = asked_actions[index];
    const bool runs = asked.handler > 1 && !blocked;
    if (runs && (asked.flags & kResetHand) != 0) asked_actions[index].handler = 0;
  }
  if (sent && (blocked || asked.handler == 1)) return {};
  if (blocked || asked.handler <= 1) {
    end_by(signal, info, repeats && !sent);
    return {};
  }
  SignalSet now = interrupted | to_kernel(asked.mask);
  if ((asked.flags & kNoDefer) == 0) now |= signal_bit(kProxies[index]);
  return {.handler = asked.handler, .mask = now};
}

}  // namespace headrace::emu
