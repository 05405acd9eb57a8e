// SPDX-License-Identifier: Apache-2.0
// What the engine keeps in a Job, whose header shows only the bytes.
#pragma once

#include <array>
#include <cstdint>
#include <new>

#include "dependants.hpp"
#include "headrace/base/atomic.hpp"
#include "headrace/engine/job.hpp"
#include "headrace/engine/route.hpp"

namespace headrace::engine {

struct PartBlock;

struct Job::Fields {
  // Written by the submitter while the job does not run; published by the edges `job-submitted` and
  // those of the movers.
  Callback callback = nullptr;
  void* callback_context = nullptr;
  /// Called after the last touch of the job.
  void (*then)(void* context) noexcept = nullptr;
  void* then_context = nullptr;
  EngineState* engine = nullptr;
  /// If the last submission was a usual copy (EngineState::Usual): EngineState::threads_.id(), else
  /// 0. Then the job is of one part and has neither callback nor `then`, nor a pin.
  std::uint64_t usual_for = 0;
  /// Forks of the process before its engine was made.
  Atomic<std::uint32_t> fork_count{0};
  std::uint64_t begun_ticks = 0;
  /// A mover of the job (of a job with predecessors: of the engine) has no thread: a waiting thread
  /// polls instead of sleeping.
  Atomic<bool> polled{false};
  /// Had to wait for predecessors when accepted: a waiting thread polls all movers.
  bool held_back = false;
  /// `fell_back` is written only while the submitter still holds a part.
  Route route;
  std::uint32_t turn = 0;
  /// The set of the gate that the running job is in.
  std::uint64_t gate_set = 0;

  /// 1 if the job is not split.
  std::uint32_t part_count = 1;
  PartBlock* parts = nullptr;
  /// Parts that have not ended, including those not yet posted.
  Atomic<std::uint32_t> parts_left{0};

  // Predecessors and dependants.
  /// Predecessors that have not ended, plus one for the submission, and a bit if one failed.
  Atomic<std::uint32_t> predecessors_left{0};
  /// Nodes of the predecessors' lists; then links[0] is in the queue of jobs ready to begin.
  std::array<DependantLink, kPredecessorMax> links;
  /// Jobs that wait for this one. Empty unless it runs.
  Atomic<DependantLink*> dependants{nullptr};
};

inline Job::Fields& Job::fields() noexcept {
  static_assert(sizeof(Fields) <= sizeof(fields_) && alignof(Fields) <= 8);
  return *std::launder(reinterpret_cast<Fields*>(fields_));
}
inline const Job::Fields& Job::fields() const noexcept {
  return *std::launder(reinterpret_cast<const Fields*>(fields_));
}

}  // namespace headrace::engine
