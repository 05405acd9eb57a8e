// SPDX-License-Identifier: Apache-2.0
#include "headrace/engine/route.hpp"

#include "decide.hpp"

namespace headrace::engine {

bool detail::ask_policy(Workload work, const SubmitOptions& options, const RouteFacts& facts,
                        std::size_t first, std::size_t count, MoverChoice& choice) {
  const MoveContext context{
      .movers = facts.movers.subspan(first, count),
      .kind = work.kind,
      .source_node = options.source_node,
      .target_node = options.target_node,
      .caller_node = facts.caller_node != nullptr ? facts.caller_node() : std::nullopt,
      .byte_count = work.byte_count,
      .sequence = work.turn,
      .packages = facts.packages,
      .loads = facts.loads.from(first)};
  MoverChoice wanted;
  if (options.policy != nullptr && *options.policy) {
    (*options.policy)(context, wanted);
  } else if (facts.policy != nullptr) {
    (*facts.policy)(context, wanted);
  } else {
    movers::near_target(context, wanted);
  }
  for (const std::uint32_t index : wanted.chosen()) {
    if (index >= count) return false;
    if (can_carry_out(facts.movers[first + index], work)) choice.add(first + index);
  }
  return !wanted.chosen().empty();
}

void detail::choose_instead(OperationKind kind, OperationSet kinds, std::size_t operation_count,
                            const RouteFacts& facts, Route& made) {
  made.fell_back = true;
  take_turn({.kind = kind, .kinds = kinds, .operation_count = operation_count}, facts, 0,
            facts.processor_count, made.movers);
  if (made.movers.chosen().empty()) made.by = Route::By::calling_thread;
}

Route route(const Workload& work, const SubmitOptions& options, const RouteFacts& facts) {
  Route made;
  detail::decide(work, options, facts, made);
  return made;
}

}  // namespace headrace::engine
