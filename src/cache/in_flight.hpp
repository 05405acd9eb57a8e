// SPDX-License-Identifier: Apache-2.0
// InFlightMoves: the jobs of one shard's moving entries. A job is ten times as large as an entry,
// so an entry has one only while it runs, or a thread waits for it.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "entry.hpp"
#include "headrace/base/atomic.hpp"
#include "headrace/base/counter.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/engine/engine.hpp"
#include "headrace/platform/cpu.hpp"

namespace headrace::cache::detail {

struct Core;

/// Who waits spins for as long as an eviction mostly holds it, before it sleeps: to sleep and to be
/// woken takes several times as long.
///
/// Threading: shared.
class HEADRACE_TSA(capability("mutex")) ShardMutex {
 public:
  void lock() HEADRACE_TSA(acquire_capability()) HEADRACE_TSA(no_thread_safety_analysis) {
    // relaxed, as below: advice.
    for (int left = 1024; is_held_.load_relaxed() && left != 0; --left) platform::pause();
    mutex_.lock();
    is_held_.store_relaxed(true);
  }
  void unlock() HEADRACE_TSA(release_capability()) HEADRACE_TSA(no_thread_safety_analysis) {
    is_held_.store_relaxed(false);
    mutex_.unlock();
  }

 private:
  Mutex mutex_;
  Atomic<bool> is_held_{false};
};

/// An entry has a move from when it is listed until its job has ended, no thread uses it and a
/// later call has noticed that. A move in use:
///   undecided  = 1 until the submitter has submitted it, or will not;
///   user_count = number of threads that wait for, poll or stop it.
/// This includes entries that can no longer be found, so that a thread that changes bytes finds
/// every move that reads them.
///
/// Threading: shared.
class InFlightMoves {
 public:
  struct Move;
  class Gathering;

  explicit InFlightMoves(Core& core) : core_(core) {}

  /// Also the shard's mutex: an entry is listed and its move registered in one critical section.
  /// Here because moves outlive the shard. On its own line: misses write it, hits read its
  /// neighbours.
  alignas(64) ShardMutex mutex;
  Counter bytes_moved;  ///< Here because the moves of one shard share them, and no more.
  Counter moves_failed;

  /// Makes sure that begin_move() of `thread`, any number, has a free move.
  ///
  /// Fails: throws std::bad_alloc.
  void reserve_one(std::uint32_t thread) HEADRACE_REQUIRES(mutex);
  /// Assigns a move to an entry that may be submitted next. From now on stop_overlapping() waits
  /// for it, so the caller must make an RegisteredMove of it.
  [[nodiscard]] Move& begin_move(EntryState& entry, bool is_gathered, std::uint32_t thread)
      HEADRACE_REQUIRES(mutex);

  /// A registered move until its submission is decided.
  ///
  /// Threading: owned by the submitter.
  class RegisteredMove {
   public:
    explicit RegisteredMove(Move& move) : move_(&move) {}
    RegisteredMove& operator=(RegisteredMove&&) = delete;
    ~RegisteredMove() {
      if (move_ != nullptr) decide(*move_);
    }
    /// Submits the copy of the entry, once. Returns whether the engine accepted the job.
    ///
    /// Fails: throws what the policies throw.
    [[nodiscard]] bool submit(engine::Engine& engine, engine::SubmitOptions& options);

   private:
    friend class Gathering;
    Move* move_;
  };

  /// As an RegisteredMove of several entries, whose copies are one batch of the engine: one job, in
  /// the move of the first. It is never stopped, because some of its copies may still be wanted; a
  /// thread that would stop it waits for it.
  ///
  /// Threading: owned by the submitter.
  class Gathering {
   public:
    explicit Gathering(InFlightMoves& moves) : moves_(moves) {}
    Gathering(Gathering&& other) noexcept
        : moves_(other.moves_), members_(std::move(other.members_)) {}
    ~Gathering() { end(); }
    /// Takes over a registered move that was made with `is_gathered`.
    ///
    /// Fails: throws std::bad_alloc; then the caller keeps it.
    void add(RegisteredMove& registered_move);
    void end() noexcept;  ///< Ends all registrations, submitted or not. Idempotent.
    /// Submits the copies of all entries, once. Returns whether the engine accepted the job.
    ///
    /// Fails: throws std::bad_alloc.
    [[nodiscard]] bool submit(engine::Engine& engine, engine::SubmitOptions options);

   private:
    InFlightMoves& moves_;
    std::vector<Move*> members_;
  };

  /// Waits for the job, if there still is one. Returns whether it has ended.
  bool wait(EntryState& entry, std::chrono::nanoseconds time_max);
  void poll(EntryState& entry);  ///< Polls the job: some movers advance only then.
  void stop(EntryState& entry);  ///< Asks the job to end early; returns at once.
  /// Takes the move off an entry, unless its job runs or a thread uses it. Returns whether it has
  /// none now.
  [[nodiscard]] bool try_finish(EntryState& entry) HEADRACE_REQUIRES(mutex);
  /// Stops the job and waits for it. The entry may be gone afterwards.
  void finish(EntryState& entry);
  /// Stops every job that reads some of `region`, or is about to, and waits for it.
  void stop_overlapping(const Region& region);

 private:
  /// The moves of some threads, so that a thread uses those again that it used last: a job has many
  /// lines.
  struct alignas(64) List {
    Move* free = nullptr;
    Move* newest = nullptr;
    Move* oldest = nullptr;
    std::uint32_t in_use_count = 0;
  };
  /// What the engine borrows for a batch. All three vectors have the same order.
  struct Group {
    std::vector<engine::Operation> operations;
    std::vector<engine::Completion> completions;
    std::vector<Move*> members;
  };
  static void move_ended(void* context, const engine::Completion& completion) noexcept;
  static void batch_ended(void* context, const engine::Completion& completion) noexcept;
  static void end(const Move& move, const engine::Completion& completion) noexcept;
  [[nodiscard]] static inline engine::Job& job_of(Move& move);
  [[nodiscard]] static inline const engine::Job& job_of(const Move& move);
  /// The submitter has submitted the move, or will not. Its last access to the move.
  static void decide(Move& move) noexcept;
  /// Undoes a batch that was not submitted.
  void disband(std::span<Move* const> members) noexcept;
  static void stop(Move& move);
  static void stop_and_wait(Move& move);  ///< The move must be decided.
  /// Calls `use` with the move of the entry, if it has one.
  template <typename Use>
  void with_move(const EntryState& entry, Use use);
  void let_go(Move& move);
  [[nodiscard]] static inline bool over(const Move& move);
  [[nodiscard]] static bool reads(const Move& move, const Region& region);
  inline void retire(Move& move) HEADRACE_REQUIRES(mutex);
  void sweep(const List& list) HEADRACE_REQUIRES(mutex);
  /// A move that reads some of `region`, or null. Retires ended moves on the way.
  [[nodiscard]] Move* find(const Region& region) HEADRACE_REQUIRES(mutex);

  Core& core_;
  /// By number, from 1. Addresses are stable.
  std::deque<Move> moves_ HEADRACE_GUARDED_BY(mutex);
  std::array<List, 4> lists_ HEADRACE_GUARDED_BY(mutex);
};

/// Threading: shared, per field:
///   undecided  written by the submitter, read under the mutex or by a user of the move.
///   leader, group, entry, user_count and the neighbours: under the mutex.
///   the rest   written only while the move is free.
struct alignas(64) InFlightMoves::Move {
  engine::Job job;
  std::unique_ptr<Group> group;  ///< Set in the first move of a batch.
  /// Set in the other moves of a batch: the first one, whose job they share and of which they are
  /// users.
  Move* leader = nullptr;
  bool is_gathered = false;  ///< In a batch, or about to be.
  InFlightMoves* owner = nullptr;
  List* list = nullptr;
  /// Null if it is free, or if the entry ended while a thread was still using the move.
  EntryState* entry = nullptr;
  std::uint32_t number = 0;
  std::uint32_t user_count = 0;
  Atomic<std::uint32_t> undecided{0};
  Move* next = nullptr;  ///< Links of the list; `next` also of its free ones.
  Move* previous = nullptr;
};

inline engine::Job& InFlightMoves::job_of(Move& move) {
  return move.leader != nullptr ? move.leader->job : move.job;
}
inline const engine::Job& InFlightMoves::job_of(const Move& move) {
  return move.leader != nullptr ? move.leader->job : move.job;
}

}  // namespace headrace::cache::detail
