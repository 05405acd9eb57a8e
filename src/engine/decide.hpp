// SPDX-License-Identifier: Apache-2.0
// The body of route(), inline: most submissions execute little of it.
#pragma once

#include "headrace/engine/route.hpp"

namespace headrace::engine::detail {

/// Whether a processor is expected to be faster than a device.
[[nodiscard]] inline bool is_little(const Workload& work, const PathThresholds& thresholds) {
  if (work.operation_count == 0) return work.byte_count < thresholds.asynchronous.count();
  return work.byte_count / work.operation_count < thresholds.batched.count();
}

/// Chooses the next mover, round robin, that supports the operation.
inline void take_turn(const Workload& work, const RouteFacts& facts, std::size_t first,
                      std::size_t count, MoverChoice& choice) {
  for (std::size_t k = 0; k < count; ++k) {
    const std::size_t index = first + (count == 1 ? 0 : (work.turn + k) % count);
    if (can_carry_out(facts.movers[index], work)) return choice.add(index);
  }
}

/// Asks the policy. Returns false if it chose no mover, or one that does not exist.
[[nodiscard]] bool ask_policy(Workload work, const SubmitOptions& options, const RouteFacts& facts,
                              std::size_t first, std::size_t count, MoverChoice& choice);

/// No mover chosen so far can do the work: a processor does if it can, else the calling thread. Not
/// passed the Workload, which stays in registers.
void choose_instead(OperationKind kind, OperationSet kinds, std::size_t operation_count,
                    const RouteFacts& facts, Route& made);

/// route() into `made`.
[[gnu::always_inline]] inline void decide(const Workload& work, const SubmitOptions& options,
                                          const RouteFacts& facts, Route& made) {
  made.by = Route::By::movers;
  made.fell_back = false;
  made.any = false;
  made.or_processors = false;
  made.movers.clear();
  const std::size_t device_count = facts.movers.size() - facts.processor_count;
  const Path path = options.path ? *options.path : facts.path;
  bool by_device = device_count != 0;
  if (path == Path::automatic && is_little(work, facts.thresholds)) {
    // Executed inline if posting it to a mover takes longer than the operation.
    const bool has_both = by_device && facts.processor_count != 0;
    const bool little = has_both && !work.deferred && work.byte_count != 0 &&
                        work.byte_count <= kInlineBytesMax && !work.kinds.has(OperationKind::drain);
    if (little) {
      made.by = Route::By::calling_thread;
      return;
    }
    // Only a device has anything to drain within a batch.
    by_device = by_device && (facts.processor_count == 0 || work.kinds.has(OperationKind::drain));
  } else if (path == Path::cpu) {
    by_device = false;
  } else if (path == Path::dsa) {
    made.fell_back = !by_device;
  }
  const bool short_enough =
      work.byte_count <= options.inline_max.count() && work.byte_count != 0 && !by_device;
  if (short_enough && !work.deferred && !work.kinds.has(OperationKind::drain)) [[unlikely]] {
    made.by = Route::By::calling_thread;
    return;
  }
  const std::size_t first = by_device ? facts.processor_count : 0;
  const std::size_t count = by_device ? device_count : facts.processor_count;
  if (count == 0 || (work.byte_count == 0 && work.kind == OperationKind::copy)) [[unlikely]] {
    made.by = Route::By::calling_thread;
    made.fell_back = made.fell_back && work.byte_count != 0;
    return;
  }
  made.or_processors = path == Path::automatic && by_device && facts.processor_count != 0;
  const bool own_policy = options.policy != nullptr && *options.policy;
  if (!own_policy && facts.policy == nullptr && !options.source_node && !options.target_node)
      [[likely]] {
    made.any = true;
    take_turn(work, facts, first, count, made.movers);
  } else if (!ask_policy(work, options, facts, first, count, made.movers)) {
    made.by = Route::By::none;
    return;
  }
  if (made.movers.chosen().empty()) [[unlikely]]
    choose_instead(work.kind, work.kinds, work.operation_count, facts, made);
}

}  // namespace headrace::engine::detail
