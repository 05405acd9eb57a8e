// SPDX-License-Identifier: Apache-2.0
// Helpers for a benchmark of two processes on two processors: the child sends, the parent receives
// and measures.
#pragma once

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "headrace/base/atomic.hpp"
#include "headrace/platform/cpu.hpp"
#include "measure.hpp"
#include "threads.hpp"

namespace headrace::bench {

using Clock = std::chrono::steady_clock;

/// The processors: the first that this process may use, and the last, preferably of another core.
struct Places {
  int sender = 0;
  int receiver = 0;
  bool same_core = false;  ///< The two are hardware threads of one core.
  bool same_cpu = false;   ///< Only one is available.
};

inline std::string sibling_list(int cpu) {
  std::ifstream file(
      fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
  std::string text;
  std::getline(file, text);
  return text;
}

inline Places find_places() {
  const std::vector<int> cpus = allowed_processors();
  Places places{.sender = cpus.back(), .receiver = cpus.front()};
  const std::string siblings = sibling_list(places.receiver);
  for (const int each : cpus) {
    // The last one on another core, if any.
    if (sibling_list(each) != siblings) places.sender = each;
  }
  places.same_cpu = places.sender == places.receiver;
  places.same_core = sibling_list(places.sender) == siblings;
  return places;
}

/// Memory shared by parent and child, zeroed and faulted in.
inline void* shared_memory(std::size_t byte_count) {
  void* const mapped = ::mmap(nullptr, byte_count, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (mapped == MAP_FAILED) die("cannot get memory");
  return mapped;
}

/// Runs `work` in a child pinned to `cpu`; the child is killed when its parent ends.
template <typename Work>
pid_t run_child(int cpu, const Work& work) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child < 0) die("cannot fork");
  if (child != 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  pin(cpu);
  work();
  ::_exit(0);
}

inline void wait_for_child(pid_t child) {
  int status = 0;
  if (::waitpid(child, &status, 0) != child || status != 0) die("the sender failed");
}

}  // namespace headrace::bench
