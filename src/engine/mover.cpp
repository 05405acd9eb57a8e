// SPDX-License-Identifier: Apache-2.0
#include "headrace/engine/mover.hpp"

#include "engine_state.hpp"

namespace headrace::engine {

std::string_view name(Submit submit) {
  switch (submit) {
    case Submit::accepted:
      return "accepted";
    case Submit::full:
      return "full";
    case Submit::closed:
      return "closed";
  }
  return "unknown";
}

void Mover::finish(Share& share, const ShareOutcome& outcome) noexcept {
  EngineState::end_share(share, outcome);
}

}  // namespace headrace::engine
