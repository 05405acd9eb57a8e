// SPDX-License-Identifier: Apache-2.0
// Signals: SIGILL, SIGSEGV and SIGBUS are the preload's, and the program does not notice. What it
// asks for is kept in a table and read back to it; the kernel keeps our handler.
//
// A mask cannot be kept in a table: the kernel saves and restores masks where no function is called
// (return from a handler, siglongjmp, swapcontext, exec, a new thread). So each of the three has a
// deputy, a real-time signal of which the kernel keeps the mask bit in its stead: "SIGILL is
// blocked" is written as "its deputy is blocked". A program that blocks or waits for a deputy
// for its own sake (the three signals below SIGRTMAX - 2) does not get it.
#pragma once

#include <ucontext.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <optional>

#include "inject/kernel.hpp"

namespace headrace::emu {

inline constexpr std::array<int, 3> kTaken = {SIGILL, SIGSEGV, SIGBUS};
inline constexpr std::array<int, 3> kDeputies = {59, 60, 61};

/// As the kernel takes it; functions by their address. `handler`: 0 is SIG_DFL, 1 SIG_IGN.
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

/// The first word of a set of the C library's is the kernel's.
inline kernel::SignalSet word_of(const sigset_t& set) {
  kernel::SignalSet word = 0;
  __builtin_memcpy(&word, &set, sizeof word);
  return word;
}
inline void set_word(sigset_t& set, kernel::SignalSet word) {
  __builtin_memcpy(&set, &word, sizeof word);
}

/// The program's mask as the kernel may have it, and back.
[[nodiscard]] kernel::SignalSet to_kernel(kernel::SignalSet asked);
[[nodiscard]] kernel::SignalSet to_program(kernel::SignalSet kept);

/// Where the thread goes on when our handler is done: in the program's handler with a mask, or,
/// with no handler, where it was.
struct Onward {
  std::uint64_t handler = 0;
  kernel::SignalSet mask = 0;
};

/// Puts our handlers in place and unblocks the three signals. Once, before the program runs.
void take_signals() noexcept;
/// True between take_signals() and the end.
[[nodiscard]] bool signals_taken() noexcept;

/// Gives a signal that is not ours to the program, as the kernel would have: to its handler, or to
/// the default action. `info` and `context` are the kernel's and may have been changed to tell of
/// another fault than the one that happened; `repeats` says that they were not, so that the same
/// fault happens again if the thread goes on.
[[nodiscard]] Onward deliver(siginfo_t& info, ucontext_t& context, bool repeats) noexcept;

/// What the program asks for one of the three, and what it had asked before. The kernel's layout
/// but for `mask`, which is the program's.
void exchange_action(std::size_t index, const KernelAction* asked, KernelAction* former) noexcept;

}  // namespace headrace::emu
