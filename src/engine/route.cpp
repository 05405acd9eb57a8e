// SPDX-License-Identifier: Apache-2.0
#include "headrace/engine/route.hpp"

namespace headrace::engine {
namespace {

/// Bytes from which on a device is expected to be faster.
std::size_t bytes_for_device(const Workload& work, const PathThresholds& thresholds) {
  if (work.operation_count != 0) {
    std::size_t sum = 0;
    const bool beyond =
        __builtin_mul_overflow(thresholds.batched.count(), work.operation_count, &sum);
    return beyond ? ~std::size_t{0} : sum;
  }
  // Coalesced jobs cost what those of a batch do.
  return (work.coalesces ? thresholds.batched : thresholds.asynchronous).count();
}

/// The next mover in turn that can do it.
void take_turn(const Workload& work, const RouteFacts& facts, std::size_t first, std::size_t count,
               MoverChoice& choice) {
  for (std::size_t k = 0; k < count; ++k) {
    const std::size_t index = first + (count == 1 ? 0 : (work.turn + k) % count);
    if (can_carry_out(facts.movers[index], work)) return choice.add(index);
  }
}

/// As a policy wishes. Returns false if it chose nobody, or a mover that does not exist.
bool ask_policy(const Workload& work, const SubmitOptions& options, const RouteFacts& facts,
                std::size_t first, std::size_t count, MoverChoice& choice) {
  const MoveContext context{
      .movers = facts.movers.subspan(first, count),
      .kind = work.kind,
      .source_node = options.source_node ? options.source_node : work.source_node,
      .target_node = options.target_node ? options.target_node : work.target_node,
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

}  // namespace

Route route(const Workload& work, const SubmitOptions& options, const RouteFacts& facts) {
  Route made;
  const std::size_t device_count = facts.movers.size() - facts.processor_count;
  const Path path = options.path ? *options.path : facts.path;
  const bool is_small = work.byte_count < bytes_for_device(work, facts.thresholds);
  const bool has_both = device_count != 0 && facts.processor_count != 0;

  // Nothing to do at all; or so little that to hand it to a mover takes longer.
  const bool nothing = work.byte_count == 0 && work.kind == OperationKind::copy;
  const bool little = has_both && is_small && path == Path::automatic && work.byte_count != 0 &&
                      work.byte_count <= kInlineBytesMax && !work.kinds.has(OperationKind::drain);
  if (nothing || (little && !work.deferred)) {
    made.by = Route::By::calling_thread;
    return made;
  }

  const bool prefers_device = path == Path::hardware || (path == Path::automatic && !is_small);
  const bool only_devices = path != Path::software && facts.processor_count == 0;
  const bool by_device = device_count != 0 && (prefers_device || only_devices);
  made.fell_back = path == Path::hardware && device_count == 0;
  made.or_processors = path == Path::automatic && by_device && facts.processor_count != 0;
  const std::size_t first = by_device ? facts.processor_count : 0;
  const std::size_t count = by_device ? device_count : facts.processor_count;
  if (count == 0) {
    made.by = Route::By::calling_thread;
    return made;
  }
  const bool own_policy = options.policy != nullptr && *options.policy;
  const bool knows_nodes =
      options.source_node || options.target_node || work.source_node || work.target_node;
  if (!own_policy && facts.policy == nullptr && !knows_nodes) {
    made.any = true;
    take_turn(work, facts, first, count, made.movers);
  } else if (!ask_policy(work, options, facts, first, count, made.movers)) {
    made.by = Route::By::nobody;
    return made;
  }
  if (made.movers.chosen().empty()) {
    made.by = Route::By::calling_thread;
    made.fell_back = true;
  }
  return made;
}

}  // namespace headrace::engine
