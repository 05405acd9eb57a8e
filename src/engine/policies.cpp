// SPDX-License-Identifier: Apache-2.0
// The policies that choose movers by name.
#include <algorithm>

#include "headrace/engine/mover.hpp"

namespace headrace::engine::movers {
namespace {

void near(const MoveContext& context, std::optional<NodeId> node, MoverChoice& choice) {
  if (node) {
    for (std::size_t i = 0; i < context.movers.size(); ++i) {
      if (context.movers[i]->info().node == node) choice.add(i);
    }
  }
  if (choice.chosen().empty()) choice.add(0);
}

}  // namespace

void near_target(const MoveContext& context, MoverChoice& choice) {
  near(context, context.target_node, choice);
}

void near_source(const MoveContext& context, MoverChoice& choice) {
  near(context, context.source_node, choice);
}

void all(const MoveContext& context, MoverChoice& choice) {
  for (std::size_t i = 0; i < context.movers.size(); ++i) choice.add(i);
}

void round_robin(const MoveContext& context, MoverChoice& choice) {
  choice.add(context.sequence % context.movers.size());
}

}  // namespace headrace::engine::movers
