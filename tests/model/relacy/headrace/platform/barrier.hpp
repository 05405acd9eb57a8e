// SPDX-License-Identifier: Apache-2.0
// headrace/platform/barrier.hpp for the model checker. What the kernel promises of the pair - the
// heavy barrier has the effect of a full one in every thread - is what two full fences promise each
// other; that it holds on this machine is the kernel's word (membarrier(2)), not checked here.
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
}
inline void shared_heavy_barrier() {
  heavy_barrier();
}

}  // namespace headrace::platform
