// SPDX-License-Identifier: Apache-2.0
// The named mover policies.
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "headrace/engine/mover.hpp"

namespace headrace::engine::movers {
namespace {

/// Adds the movers that satisfy one of `wanted`: first one queue of each device, in the order of
/// `wanted`, then a second queue of each, and so on. Queues of one device share its bandwidth, so a
/// device with many queues must not displace the others.
template <typename... Wanted>
void add(const MoveContext& context, MoverChoice& choice, const Wanted&... wanted) {
  constexpr std::uint64_t kNone = UINT64_MAX;  // Ranks have 32 bits.
  std::uint64_t next = 0;
  while (next != kNone && choice.chosen().size() < MoverChoice::kMoverMax) {
    const std::uint64_t rank = std::exchange(next, kNone);
    const auto add_of_rank = [&](const auto& is_wanted) {
      for (std::size_t i = 0; i < context.movers.size(); ++i) {
        const MoverInfo& info = context.movers[i];
        if (info.queue_rank < rank || !is_wanted(info)) continue;
        if (info.queue_rank == rank) {
          choice.add(i);
        } else {
          next = std::min<std::uint64_t>(next, info.queue_rank);
        }
      }
    };
    (add_of_rank(wanted), ...);
  }
}

auto is_of(std::optional<NodeId> node) {
  return [node](const MoverInfo& info) { return node && info.node == node; };
}

/// Round robin, if no mover is nearer or the nodes are unknown.
void take_turns(const MoveContext& context, MoverChoice& choice) {
  choice.add(context.sequence % context.movers.size());
}

void near(std::optional<NodeId> wanted, std::optional<NodeId> next_best, const MoveContext& context,
          MoverChoice& choice) {
  add(context, choice, is_of(wanted));
  if (choice.chosen().empty()) add(context, choice, is_of(next_best));
  if (choice.chosen().empty()) take_turns(context, choice);
}

/// Returns `node`, or for a node without movers the nearest node with processors, if known.
std::optional<NodeId> node_with_movers(std::optional<NodeId> node, const MoveContext& context) {
  if (std::ranges::any_of(context.movers, is_of(node))) return node;
  for (const NodePackage& place : context.packages) {
    if (node && place.node == *node && place.nearest) return place.nearest;
  }
  return node;
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
  add(context, choice, [](const MoverInfo&) { return true; });
}

void least_loaded(const MoveContext& context, MoverChoice& choice) {
  const std::size_t count = context.movers.size();
  std::size_t best = context.sequence % count;
  for (std::size_t k = 1; k < count; ++k) {
    const std::size_t index = (context.sequence + k) % count;
    if (context.loads(index) < context.loads(best)) best = index;
  }
  choice.add(best);
}

void push_pull(const MoveContext& context, MoverChoice& choice) {
  const std::optional<NodeId> source = node_with_movers(context.source_node, context);
  const std::optional<NodeId> target = node_with_movers(context.target_node, context);
  add(context, choice, is_of(source), is_of(target));
  if (choice.chosen().empty()) take_turns(context, choice);
}

void smart_copy(const MoveContext& context, MoverChoice& choice) {
  const std::optional<std::uint32_t> package = package_of(context.source_node, context);
  if (!package || package != package_of(context.target_node, context)) {
    return push_pull(context, choice);
  }
  add(context, choice,
      [&](const MoverInfo& info) { return package_of(info.node, context) == package; });
  if (choice.chosen().empty()) take_turns(context, choice);
}

void by_size(const MoveContext& context, MoverChoice& choice) {
  if (context.byte_count >= kBySizeBytes) return smart_copy(context, choice);
  add(context, choice, is_of(context.caller_node));
  if (choice.chosen().empty()) near_target(context, choice);
}

void round_robin(const MoveContext& context, MoverChoice& choice) {
  take_turns(context, choice);
}

std::span<const Named> named() {
  static constexpr std::array<Named, 8> kNamed{{{"near_target", near_target},
                                                {"near_source", near_source},
                                                {"all", all},
                                                {"round_robin", round_robin},
                                                {"least_loaded", least_loaded},
                                                {"push_pull", push_pull},
                                                {"smart_copy", smart_copy},
                                                {"by_size", by_size}}};
  return kNamed;
}

}  // namespace headrace::engine::movers
