// SPDX-License-Identifier: Apache-2.0
#include "inject/trap/pause.hpp"

#include <x86intrin.h>

#include "emu/platform/guarded.hpp"
#include "inject/kernel.hpp"

namespace headrace::emu {
namespace {

/// What Linux puts into IA32_UMWAIT_CONTROL: the longest sleep, in time-stamp units. [S]
constexpr std::uint64_t kLimit = 100'000;

struct Watched {
  std::uint64_t line = 0;  // 0: none.
  std::uint64_t seen[8] = {};
};
constinit thread_local Watched watched [[gnu::tls_model("initial-exec")]];

bool read_line(std::uint64_t line, std::uint64_t (&into)[8]) noexcept {
  return !guarded::copy_up(reinterpret_cast<std::uint64_t>(&into[0]), line, sizeof(into)).stop;
}

bool has_changed() noexcept {
  std::uint64_t now[8];
  if (!read_line(watched.line, now)) return true;
  for (unsigned i = 0; i < 8; ++i) {
    if (now[i] != watched.seen[i]) return true;
  }
  return false;
}

/// Waits until `done` or the deadline; true if the limit came first.
template <typename Done>
bool wait(std::uint64_t deadline, Done done) noexcept {
  const std::uint64_t limit = __rdtsc() + kLimit;
  while (!done()) {
    const std::uint64_t now = __rdtsc();
    if (now >= deadline) return false;
    if (now >= limit) return true;
    kernel::yield();
  }
  return false;
}

}  // namespace

bool watch(std::uint64_t address) noexcept {
  watched.line = address & ~std::uint64_t{63};
  if (read_line(watched.line, watched.seen)) return true;
  watched.line = 0;
  return false;
}

bool wait_watched(std::uint64_t deadline) noexcept {
  if (watched.line == 0) return false;
  const bool limited = wait(deadline, has_changed);
  watched.line = 0;
  return limited;
}

bool wait_until(std::uint64_t deadline) noexcept {
  return wait(deadline, [] { return false; });
}

}  // namespace headrace::emu
