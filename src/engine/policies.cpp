// SPDX-License-Identifier: Apache-2.0
// The policies that choose movers by name.
#include <optional>

#include "headrace/engine/mover.hpp"

namespace headrace::engine::movers {
namespace {

void add_movers_of(std::optional<NodeId> node, const MoveContext& context, MoverChoice& choice) {
  if (!node) return;
  for (std::size_t i = 0; i < context.movers.size(); ++i) {
    if (context.movers[i]->info().node == node) choice.add(i);
  }
}

void near(std::optional<NodeId> wanted, std::optional<NodeId> next_best, const MoveContext& context,
          MoverChoice& choice) {
  add_movers_of(wanted, context, choice);
  if (choice.chosen().empty()) add_movers_of(next_best, context, choice);
  if (choice.chosen().empty()) choice.add(0);
}

}  // namespace

void near_target(const MoveContext& context, MoverChoice& choice) {
  near(context.target_node, context.source_node, context, choice);
}

void near_source(const MoveContext& context, MoverChoice& choice) {
  near(context.source_node, context.target_node, context, choice);
}

void all(const MoveContext& context, MoverChoice& choice) {
  for (std::size_t i = 0; i < context.movers.size(); ++i) choice.add(i);
}

void round_robin(const MoveContext& context, MoverChoice& choice) {
  choice.add(context.sequence % context.movers.size());
}

}  // namespace headrace::engine::movers
