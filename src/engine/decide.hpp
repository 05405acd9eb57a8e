// SPDX-License-Identifier: Apache-2.0
// The body of route(), in line: of most submissions little of it is left.
#pragma once

#include "headrace/engine/route.hpp"

namespace headrace::engine::detail {

/// Bytes from which on a device is expected to be faster.
[[nodiscard]] inline std::size_t bytes_for_device(const Workload& work,
                                                  const PathThresholds& thresholds) {
  if (work.operation_count != 0) {
    std::size_t sum = 0;
    const bool beyond =
        __builtin_mul_overflow(thresholds.batched.count(), work.operation_count, &sum);
    return beyond ? ~std::size_t{0} : sum;
  }
  return thresholds.asynchronous.count();
}

/// The next mover in turn that can do it.
inline void take_turn(const Workload& work, const RouteFacts& facts, std::size_t first,
                      std::size_t count, MoverChoice& choice) {
  for (std::size_t k = 0; k < count; ++k) {
    const std::size_t index = first + (count == 1 ? 0 : (work.turn + k) % count);
    if (can_carry_out(facts.movers[index], work)) return choice.add(index);
  }
}

/// As a policy wishes. Returns false if it chose nobody, or a mover that does not exist.
[[nodiscard]] bool ask_policy(const Workload& work, const SubmitOptions& options,
                              const RouteFacts& facts, std::size_t first, std::size_t count,
                              MoverChoice& choice);

/// As route().
[[gnu::always_inline, nodiscard]] inline Route decide(const Workload& work,
                                                      const SubmitOptions& options,
                                                      const RouteFacts& facts) {
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

}  // namespace headrace::engine::detail
