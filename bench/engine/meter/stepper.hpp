// SPDX-License-Identifier: Apache-2.0
// Counts the instructions of the calling thread by stepping through them: every one traps (the flag
// TF), and what comes next is looked at. Some microseconds each. Not for: programs with a handler
// of SIGTRAP of their own, several threads, or under a debugger.
#pragma once

#include <cstdint>

namespace headrace::bench {

struct Steps {
  std::uint64_t instructions = 0;
  /// With the prefix LOCK, or XCHG with memory, which locks without it.
  std::uint64_t locked = 0;
  /// Entries of pthread_mutex_lock and pthread_mutex_trylock.
  std::uint64_t mutexes = 0;
};

void begin_stepping();
/// What was counted since.
[[nodiscard]] Steps end_stepping();

}  // namespace headrace::bench
