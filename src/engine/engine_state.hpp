// SPDX-License-Identifier: Apache-2.0
// What an engine is inside: its movers, the gate that counts who needs them, the way a job goes
// from submission to its end. Not for: moving bytes (movers do that, but for what they refuse).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "headrace/engine/engine.hpp"

namespace headrace::engine {

/// Threading: shared.
class EngineState {
 public:
  EngineState(std::vector<std::unique_ptr<Mover>> movers, MoverPolicy policy);

  [[nodiscard]] Submit submit_copy(Job& job, const CopyPlan& plan, const SubmitOptions& options);
  void stop();
  void poll() noexcept;
  [[nodiscard]] std::span<const std::unique_ptr<Mover>> movers() const { return movers_; }
  [[nodiscard]] EngineStatistics statistics() const;

  /// Keeps the engine alive until leave(). Only for who knows that it lives at this moment.
  void visit() noexcept;
  void leave(std::uint64_t count = 1) noexcept;

  static void end_share(Share& share, const ShareOutcome& outcome) noexcept;

 private:
  class Presence;

  [[nodiscard]] bool enter(std::uint64_t count) noexcept;
  [[nodiscard]] bool is_closed() const noexcept;
  /// The choice of the policy; nobody if an index does not exist.
  [[nodiscard]] MoverChoice choose(const CopyPlan& plan, const SubmitOptions& options,
                                   std::uint64_t turn) const;
  void prepare_shares(Job& job, const CopyPlan& plan, std::span<const std::uint32_t> chosen);
  /// Gives each share of `job` to one of `chosen`; the last one may end the job. Refuses only while
  /// nobody has taken anything.
  [[nodiscard]] Submit hand_out(Job& job, std::span<const std::uint32_t> chosen,
                                std::uint64_t turn);
  static void move_here(Share& share) noexcept;
  static void end_job(Job& job, const Completion& completion) noexcept;
  static void publish(Job& job, std::uint32_t word) noexcept;
  void count(const Completion& completion) noexcept;

  std::vector<std::unique_ptr<Mover>> movers_;
  MoverPolicy policy_;

  /// The number of those for whom the movers must live - calls of submit_copy, jobs that run,
  /// threads that poll for a job - and, in the highest bit, whether the gate is closed. A job
  /// begins only if its submission came before the closing, so a closed gate with nobody inside
  /// stays so, but for calls of submit_copy that met the closing, add themselves and leave at once.
  alignas(64) Atomic<std::uint64_t> gate_{0};
  Atomic<std::uint64_t> sequence_{0};
  Atomic<std::uint64_t> jobs_submitted_{0};
  Atomic<std::uint64_t> submissions_refused_{0};
  /// Apart from the above: other threads write these.
  alignas(64) Atomic<std::uint64_t> jobs_done_{0};
  Atomic<std::uint64_t> jobs_failed_{0};
  Atomic<std::uint64_t> jobs_stopped_{0};
  Atomic<std::uint64_t> bytes_moved_{0};
};

}  // namespace headrace::engine
