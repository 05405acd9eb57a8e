// SPDX-License-Identifier: Apache-2.0
// Movements: the jobs of the entries that are moving. A job is ten times as large as an entry, so
// it is there only while it runs, or somebody waits for it.
#pragma once

#include <cstdint>
#include <deque>

#include "entry.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/engine/engine.hpp"

namespace headrace::cache::detail {

struct Ledger;

/// An entry has a movement from before its job is submitted until the job has ended, nobody uses it
/// and somebody has looked. A movement in use:
///   user_count = the submitter, until it has submitted + threads that wait, poll or stop.
///
/// Threading: shared.
class Movements {
 public:
  explicit Movements(Ledger& ledger) : ledger_(ledger) {}

  /// Submits the copy of `entry`. Returns whether the engine has taken the job.
  ///
  /// Fails: throws std::bad_alloc, or what the policies throw; then there is no movement.
  [[nodiscard]] bool start(EntryState& entry, engine::Engine& engine, const engine::CopyPlan& plan,
                           engine::SubmitOptions options);
  /// Waits for the job, if it is still there.
  void wait(EntryState& entry);
  /// Drives the job if its mover must be polled.
  void poll(EntryState& entry);
  /// Asks the job to end early; returns at once.
  void stop(EntryState& entry);
  /// Stops the job and waits for it.
  void finish(EntryState& entry);

 private:
  struct Movement {
    engine::Job job;
    Movements* owner = nullptr;
    EntryState* entry = nullptr;
    std::uint32_t user_count = 0;
    std::uint32_t next_free = 0;
  };

  static void move_ended(void* context, const engine::Completion& completion) noexcept;
  [[nodiscard]] Movement* hold(EntryState& entry);
  void let_go(Movement& movement);
  [[nodiscard]] bool over(const Movement& movement) const;
  void retire(Movement& movement) HEADRACE_REQUIRES(mutex_);
  void sweep() HEADRACE_REQUIRES(mutex_);

  Ledger& ledger_;
  Mutex mutex_;
  /// By number, from 1: movements never move.
  std::deque<Movement> movements_ HEADRACE_GUARDED_BY(mutex_);
  std::uint32_t free_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::uint32_t in_use_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace::cache::detail
