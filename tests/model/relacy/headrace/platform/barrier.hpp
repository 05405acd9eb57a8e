// SPDX-License-Identifier: Apache-2.0
// headrace/platform/barrier.hpp for the model checker. Mostly both barriers are full fences here:
// the kernel guarantees that a heavy barrier acts as a full fence in every thread (membarrier(2)).
// That guarantee is not checked.
#pragma once

#include "headrace/base/light_barrier.hpp"
#include "headrace/base/relacy.hpp"

namespace headrace::platform {

inline bool has_heavy_barrier() noexcept {
  return true;
}
using headrace::light_barrier;
inline void heavy_barrier() {
  rl::atomic_thread_fence(rl::mo_seq_cst, $);
  if (light_barriers != LightBarriers::interrupted) return;
  int expected = Interrupt::none;
  (*interrupt_state)($).compare_exchange_strong(expected, int{Interrupt::pending}, rl::mo_relaxed);
  while ((*interrupt_state)($).load(rl::mo_relaxed) == Interrupt::pending) rl::yield(1, $);
  rl::atomic_thread_fence(rl::mo_seq_cst, $);
}
inline void shared_heavy_barrier() {
  heavy_barrier();
}

}  // namespace headrace::platform
