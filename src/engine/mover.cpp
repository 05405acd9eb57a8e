// SPDX-License-Identifier: Apache-2.0
#include "headrace/engine/mover.hpp"

#include "engine_state.hpp"

namespace headrace::engine {

void Mover::finish(Share& share, const ShareOutcome& outcome) noexcept {
  EngineState::end_share(share, outcome);
}

void Mover::finish_done_by_device(Share& share) noexcept {
  EngineState::end_share_done_by_device(share);
}

}  // namespace headrace::engine
