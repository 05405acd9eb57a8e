// SPDX-License-Identifier: Apache-2.0
// Counts the instructions of the calling thread by single-stepping: each instruction traps (trap
// flag TF) and the next one is decoded. Takes some microseconds per instruction. Not for: programs
// that handle SIGTRAP, several threads, or programs under a debugger.
#pragma once

#include <cstdint>

namespace headrace::bench {

struct Steps {
  std::uint64_t instructions = 0;
  /// With the prefix LOCK, or XCHG with memory, which locks without it.
  std::uint64_t locked = 0;
  /// Calls of pthread_mutex_lock and pthread_mutex_trylock.
  std::uint64_t mutexes = 0;
  std::uint64_t system_calls = 0;
  /// Of system_calls: membarrier.
  std::uint64_t barriers = 0;
};

void begin_stepping();
/// Returns the counts since begin_stepping().
[[nodiscard]] Steps end_stepping();

}  // namespace headrace::bench
