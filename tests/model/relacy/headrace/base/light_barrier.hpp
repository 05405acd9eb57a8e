// SPDX-License-Identifier: Apache-2.0
// headrace/base/light_barrier.hpp for the model checker; see headrace/platform/barrier.hpp there.
#pragma once

#include "headrace/base/relacy.hpp"

namespace headrace {

/// What light barriers are, by model. full: as every heavy barrier makes them. Or nothing, for
/// protocols that need no heavy one. interrupted: a heavy barrier waits until the other thread has
/// had a full fence at one of its light barriers, or in interrupt(); for one thread on each side.
enum class LightBarriers : unsigned char { full, nothing, interrupted };
inline LightBarriers light_barriers = LightBarriers::full;
enum Interrupt : int { none, pending, not_running };
inline rl::atomic<int>* interrupt_state = nullptr;

/// The kernel's interrupt for a heavy barrier may come here.
inline void interrupt(Interrupt next = Interrupt::none) {
  if (next == Interrupt::none && (*interrupt_state)($).load(rl::mo_relaxed) != Interrupt::pending) {
    return;
  }
  rl::atomic_thread_fence(rl::mo_seq_cst, $);
  (*interrupt_state)($).exchange(int{next}, rl::mo_relaxed);
}

inline void light_barrier() {
  if (light_barriers == LightBarriers::full) rl::atomic_thread_fence(rl::mo_seq_cst, $);
  if (light_barriers == LightBarriers::interrupted) interrupt();
}

}  // namespace headrace
