// SPDX-License-Identifier: Apache-2.0
// Signals: the preload handles SIGILL, SIGSEGV and SIGBUS without the program noticing. What the
// program requests is kept in a table and read back to it; the kernel keeps our handler.
//
// A table cannot hold masks: the kernel saves and restores them where no function is called (return
// from a handler, siglongjmp, swapcontext, exec, a new thread). So each of the three has a proxy,
// a real-time signal whose mask bit stands for it: "SIGILL is blocked" is stored as "its proxy is
// blocked". A program that uses a proxy itself (the three signals below SIGRTMAX - 2) cannot block
// or wait for it.
#pragma once

#include <ucontext.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <optional>

#include "inject/kernel.hpp"

namespace headrace::emu {

inline constexpr std::array<int, 3> kTaken = {SIGILL, SIGSEGV, SIGBUS};
inline constexpr std::array<int, 3> kProxies = {59, 60, 61};

/// In the kernel's layout; functions by address. `handler`: 0 is SIG_DFL, 1 SIG_IGN.
struct KernelAction {
  std::uint64_t handler = 0;
  std::uint64_t flags = 0;
  std::uint64_t restorer = 0;
  kernel::SignalSet mask = 0;
};

/// Index in kTaken, or nothing.
[[nodiscard]] constexpr std::optional<std::size_t> taken_index(int signal) {
  for (std::size_t i = 0; i < kTaken.size(); ++i) {
    if (kTaken[i] == signal) return i;
  }
  return std::nullopt;
}

/// The first word of the C library's set is the kernel's set.
inline kernel::SignalSet word_of(const sigset_t& set) {
  kernel::SignalSet word = 0;
  __builtin_memcpy(&word, &set, sizeof word);
  return word;
}
inline void set_word(sigset_t& set, kernel::SignalSet word) {
  __builtin_memcpy(&set, &word, sizeof word);
}

/// The program's mask as the kernel stores it, and back.
[[nodiscard]] kernel::SignalSet to_kernel(kernel::SignalSet asked);
[[nodiscard]] kernel::SignalSet to_program(kernel::SignalSet kept);

/// Where the thread continues after our handler: in the program's handler, with a mask, or, without
/// a handler, where it was.
struct Onward {
  std::uint64_t handler = 0;
  kernel::SignalSet mask = 0;
};

/// Installs our handlers and unblocks the three signals. Call once, before the program runs.
void take_signals() noexcept;
/// True between take_signals() and the end.
[[nodiscard]] bool signals_taken() noexcept;

/// Delivers a signal that is not ours to the program as the kernel would: to its handler, or as the
/// default action. `info` and `context` are the kernel's, possibly changed to describe a different
/// fault; `repeats` says that they were not, so the same fault recurs if the thread continues.
[[nodiscard]] Onward deliver(siginfo_t& info, ucontext_t& context, bool repeats) noexcept;

/// Sets the program's action for one of the three signals and returns the previous one. In the
/// kernel's layout, except `mask`, which is the program's.
void exchange_action(std::size_t index, const KernelAction* asked, KernelAction* former) noexcept;

}  // namespace headrace::emu
