// SPDX-License-Identifier: Apache-2.0
// headrace/base/light_barrier.hpp for the model checker; see headrace/platform/barrier.hpp there.
#pragma once

#include "headrace/base/relacy.hpp"

namespace headrace {

inline void light_barrier() {
  rl::atomic_thread_fence(rl::mo_seq_cst, $);
}

}  // namespace headrace
