// SPDX-License-Identifier: Apache-2.0
// Whether this process is the one that an object was made in. Threads and portals do not cross
// fork(), so what has them must not be used in a child.
#pragma once

#include <cstdint>

#include "headrace/base/atomic.hpp"

namespace headrace::platform {

namespace detail {
extern Atomic<std::uint32_t> fork_count;
}  // namespace detail

/// How many forks lie between the process in which this was first called and this one. Counted by a
/// handler of pthread_atfork, so a child of a raw clone() looks like its parent.
///
/// Cost: watch_forks() once, a load afterwards.
[[nodiscard]] inline std::uint32_t fork_count() noexcept {
  return detail::fork_count.load_relaxed();  // Changes only in a process of one thread.
}

/// Starts counting. Idempotent.
void watch_forks() noexcept;

/// An open descriptor whose locks must not live on in a child of fork(): the child closes it, and
/// `fault` becomes `value` there.
///
/// Threading: immutable; `fault` has to outlive it.
class ForkGuard {
 public:
  ForkGuard(int descriptor, Atomic<std::uint32_t>& fault, std::uint32_t value);
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;
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
