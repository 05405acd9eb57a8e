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

/// Calls `work`. Valgrind counts this function by name: exported, so that stripping keeps it.
extern "C" [[gnu::visibility("default")]] void headrace_bench_counted(void (*work)(const void*),
                                                                      const void* what);

namespace headrace::bench {

/// Calls `work` inside headrace_bench_counted().
template <typename Work>
void run_counted(const Work& work) {
  headrace_bench_counted([](const void* what) { (*static_cast<const Work*>(what))(); }, &work);
}

}  // namespace headrace::bench
