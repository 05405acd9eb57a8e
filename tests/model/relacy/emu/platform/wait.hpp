// SPDX-License-Identifier: Apache-2.0
// emu/platform/wait.hpp for the model checker. What the models run claims never to wait in earnest:
// whoever does has failed.
#pragma once

#include "headrace/base/relacy.hpp"

namespace headrace::emu::platform {

inline void pause() {
  RL_ASSERT(!"waits for another thread");
}

}  // namespace headrace::emu::platform
