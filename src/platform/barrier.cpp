// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/barrier.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "headrace/base/check.hpp"
#include "headrace/platform/line_flush.hpp"

namespace headrace::platform {
namespace {

long membarrier(int command) {
  return ::syscall(SYS_membarrier, command, 0, 0);
}

}  // namespace

bool has_heavy_barrier() noexcept {
  static const bool kRegistered = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
  return kRegistered;
}

void heavy_barrier() noexcept {
  if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0) return;
  // A child of fork() may have to register again.
  const bool again = errno == EPERM && membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0 &&
                     membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0;
  HEADRACE_CHECK(again, "the kernel goes on to do what it could do before", errno);
}

void join_shared_barrier() noexcept {
  static const bool kJoined = membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0;
  static_cast<void>(kJoined);
}

void shared_heavy_barrier() noexcept {
  if (membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0) full_fence();
}

}  // namespace headrace::platform
