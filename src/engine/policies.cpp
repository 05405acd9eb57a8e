// SPDX-License-Identifier: Apache-2.0
// The policies that choose movers by name.
#include <array>
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

/// Nobody is nearer than others, or it is not known: the work is spread.
void take_turns(const MoveContext& context, MoverChoice& choice) {
  choice.add(context.sequence % context.movers.size());
}

void near(std::optional<NodeId> wanted, std::optional<NodeId> next_best, const MoveContext& context,
          MoverChoice& choice) {
  add_movers_of(wanted, context, choice);
  if (choice.chosen().empty()) add_movers_of(next_best, context, choice);
  if (choice.chosen().empty()) take_turns(context, choice);
}

std::optional<std::uint32_t> package_of(std::optional<NodeId> node, const MoveContext& context) {
  for (const NodePackage& place : context.packages) {
    if (node && place.node == *node) return place.package;
  }
  return std::nullopt;
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

void least_loaded(const MoveContext& context, MoverChoice& choice) {
  const std::size_t count = context.movers.size();
  std::size_t best = context.sequence % count;
  for (std::size_t k = 1; k < count; ++k) {
    const std::size_t index = (context.sequence + k) % count;
    if (context.movers[index]->load() < context.movers[best]->load()) best = index;
  }
  choice.add(best);
}

void push_pull(const MoveContext& context, MoverChoice& choice) {
  add_movers_of(context.source_node, context, choice);
  add_movers_of(context.target_node, context, choice);
  if (choice.chosen().empty()) take_turns(context, choice);
}

void smart_copy(const MoveContext& context, MoverChoice& choice) {
  const std::optional<std::uint32_t> package = package_of(context.source_node, context);
  if (!package || package != package_of(context.target_node, context)) {
    return push_pull(context, choice);
  }
  for (std::size_t i = 0; i < context.movers.size(); ++i) {
    if (package_of(context.movers[i]->info().node, context) == package) choice.add(i);
  }
  if (choice.chosen().empty()) take_turns(context, choice);
}

void round_robin(const MoveContext& context, MoverChoice& choice) {
  take_turns(context, choice);
}

std::span<const Named> named() {
  static constexpr std::array<Named, 7> kNamed{{{"near_target", near_target},
                                                {"near_source", near_source},
                                                {"all", all},
                                                {"round_robin", round_robin},
                                                {"least_loaded", least_loaded},
                                                {"push_pull", push_pull},
                                                {"smart_copy", smart_copy}}};
  return kNamed;
}

}  // namespace headrace::engine::movers
