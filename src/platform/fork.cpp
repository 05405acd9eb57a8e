// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/fork.hpp"

#include <pthread.h>

namespace headrace::platform {

namespace detail {
Atomic<std::uint32_t> fork_count{0};
}  // namespace detail

void watch_forks() noexcept {
  // Where the C library has no memory for the handler, a child is not told from its parent.
  static const int kRegistered = ::pthread_atfork(nullptr, nullptr, [] {
    detail::fork_count.fetch_add_relaxed(1); /* One thread. */
  });
  static_cast<void>(kRegistered);
}

}  // namespace headrace::platform
