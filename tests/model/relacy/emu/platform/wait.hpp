// SPDX-License-Identifier: Apache-2.0
// emu/platform/wait.hpp for the model checker. The code under test must never wait: a wait is a
// failure.
#pragma once

#include "headrace/base/relacy.hpp"

namespace headrace::emu::platform {

inline void pause() {
  RL_ASSERT(!"waits for another thread");
}

}  // namespace headrace::emu::platform
