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
/// Whether the entry can still be found makes no difference: it is here that who changes bytes
/// finds everything that reads them.
///
/// Threading: shared.
class Movements {
  struct Movement;

 public:
  explicit Movements(Ledger& ledger) : ledger_(ledger) {}

  /// The movement of an entry before its submission, which need not follow: from now on
  /// stop_overlapping() waits for it.
  ///
  /// Threading: owned by the submitter.
  class Announcement {
   public:
    /// Fails: throws std::bad_alloc; then there is no movement.
    Announcement(Movements& movements, EntryState& entry)
        : movements_(movements), movement_(movements.announce(entry)) {}
    Announcement(const Announcement&) = delete;
    Announcement& operator=(const Announcement&) = delete;
    ~Announcement() { movements_.end_announcement(movement_); }
    /// Submits the copy of the entry, once. Returns whether the engine has taken the job.
    ///
    /// Fails: throws what the policies throw.
    [[nodiscard]] bool submit(engine::Engine& engine, const engine::CopyPlan& plan,
                              engine::SubmitOptions options);

   private:
    Movements& movements_;
    Movement& movement_;
  };

  /// Waits for the job, if it is still there.
  void wait(EntryState& entry);
  /// Drives the job if its mover must be polled.
  void poll(EntryState& entry);
  /// Asks the job to end early; returns at once.
  void stop(EntryState& entry);
  /// Stops the job and waits for it. The entry may be gone afterwards.
  void finish(EntryState& entry);
  /// Stops every job that reads some of `region`, or is about to, and waits for it.
  void stop_overlapping(const Region& region);

 private:
  struct Movement {
    engine::Job job;
    Movements* owner = nullptr;
    /// Null if it is free, or if the entry ended while somebody was still using the movement.
    EntryState* entry = nullptr;
    std::uint32_t number = 0;
    std::uint32_t user_count = 0;
    bool announced = false;  ///< The submitter has not done.
    /// Neighbours in used_, or the next one of free_.
    Movement* next = nullptr;
    Movement* previous = nullptr;
  };

  static void move_ended(void* context, const engine::Completion& completion) noexcept;
  [[nodiscard]] Movement& announce(EntryState& entry);
  void end_announcement(Movement& movement) noexcept;
  [[nodiscard]] Movement* hold(EntryState& entry);
  void let_go(Movement& movement);
  [[nodiscard]] static bool over(const Movement& movement);
  [[nodiscard]] static bool reads(const Movement& movement, const Region& region);
  void retire(Movement& movement) HEADRACE_REQUIRES(mutex_);
  void sweep() HEADRACE_REQUIRES(mutex_);
  /// One that reads some of `region`, or null. Retires what is over on the way.
  [[nodiscard]] Movement* find(const Region& region) HEADRACE_REQUIRES(mutex_);

  Ledger& ledger_;
  Mutex mutex_;
  /// Some announcement has ended.
  Condition decided_;
  /// By number, from 1: movements never move.
  std::deque<Movement> movements_ HEADRACE_GUARDED_BY(mutex_);
  Movement* free_ HEADRACE_GUARDED_BY(mutex_) = nullptr;
  Movement* used_ HEADRACE_GUARDED_BY(mutex_) = nullptr;
  std::uint32_t in_use_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
  /// Of decided_, so that a submission without any costs nothing.
  std::uint32_t sleeper_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace::cache::detail
