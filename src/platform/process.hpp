// SPDX-License-Identifier: Apache-2.0
// This process, its environment variables, if they may be trusted, and fork(). Threads and portals
// do not survive fork(), so objects that have them must not be used in a child.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "headrace/base/atomic.hpp"

namespace headrace::platform {

/// Id of this process, for messages.
[[nodiscard]] std::uint64_t process_id();
/// The kernel's number of the calling thread.
[[nodiscard]] std::uint64_t thread_id();
/// True if this program has more privileges than the user who started it (setuid, file
/// capabilities): then the environment must not decide which files it reads.
[[nodiscard]] bool has_borrowed_rights();
/// The variable; nothing if it is not set, empty, or not trusted.
[[nodiscard]] std::optional<std::string> trusted_variable(const char* name);

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
