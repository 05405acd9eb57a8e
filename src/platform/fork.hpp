// SPDX-License-Identifier: Apache-2.0
// Detects fork(). Threads and portals do not survive fork(), so objects that have them must not be
// used in a child.
#pragma once

#include <cstdint>

#include "headrace/base/atomic.hpp"

namespace headrace::platform {

namespace detail {
extern Atomic<std::uint32_t> fork_count;
}  // namespace detail

/// Number of forks between the process that first called watch_forks() and this one. Counted by a
/// pthread_atfork handler, so a child of a raw clone() has its parent's count.
///
/// Cost: watch_forks() once, a load afterwards.
[[nodiscard]] inline std::uint32_t fork_count() noexcept {
  return detail::fork_count.load_relaxed();  // Changes only in a process of one thread.
}

/// Starts counting. Idempotent.
void watch_forks() noexcept;

/// Guards an open descriptor whose locks must not survive in a child of fork(): the child closes it
/// and sets `fault` to `value`.
///
/// Threading: immutable; `fault` must outlive it.
class ForkGuard {
 public:
  ForkGuard(int descriptor, Atomic<std::uint32_t>& fault, std::uint32_t value);
  ForkGuard& operator=(ForkGuard&&) = delete;
  ~ForkGuard();

 private:
  friend void close_in_child() noexcept;
  int descriptor_;
  Atomic<std::uint32_t>& fault_;
  std::uint32_t value_;
  ForkGuard* next_;
  ForkGuard** before_;
};

}  // namespace headrace::platform
