// SPDX-License-Identifier: Apache-2.0
// Scheduler: one client's descriptors on one device, and which of them runs next. Implements the
// ordering rules (FIFO, fence, drain, priorities, limits) and runs nothing: workers
// (emu/device/thread_pool.hpp) take tasks, run them and report their end.
//
// Agents:     submitters push (lock-free, also in a signal handler); workers take and finish, under
//             a mutex that no submitter locks.
// Invariants: a WQ's ring holds each of its reserved slots once, so it is never full; a slot
//             belongs to the thread that reserved it until a worker has taken its content; batch:
//             finished_count <= taken_count <= run_count <= fetched_count.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "emu/device/registers.hpp"
#include "emu/operation/operation.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/base/random.hpp"

namespace headrace::emu {

inline constexpr std::uint32_t kBatchActiveMax = 8;
inline constexpr std::uint32_t kMembersAtOnceMax = 16;

/// A descriptor as it was submitted.
struct Slot {
  dsa::Descriptor descriptor{};
  std::uint64_t sequence = 0;
  std::uint64_t generation = 0;
  Origin origin = Origin::portal;
};

/// A batch in progress. Guarded by the scheduler's mutex, except the descriptors, which are
/// constant once fetched.
struct Batch {
  bool active = false;
  bool listed = false;  ///< The list is fetched; before that the batch belongs to its worker.
  std::uint32_t queue = 0;
  std::uint32_t entry = 0;
  Slot slot;
  std::uint32_t fetched_count = 0;
  std::uint32_t run_count = 0;  ///< Runnable: up to the first fence closed by an earlier failure.
  std::uint32_t taken_count = 0;
  std::uint32_t finished_count = 0;
  bool failed = false;
  bool aborted = false;
  std::optional<Fault> list_fault;
  std::span<dsa::Descriptor, kBatchMax> descriptors;

  explicit Batch(std::span<dsa::Descriptor, kBatchMax> room) : descriptors(room) {}
};

enum class TaskKind : std::uint8_t {
  none,
  single,   ///< One descriptor, not a batch.
  list,     ///< Fetch the descriptors of a batch.
  members,  ///< Descriptors `first` to `last - 1` of a batch.
};

/// Work for one engine.
struct Task {
  TaskKind kind = TaskKind::none;
  std::uint32_t queue = 0;
  std::uint32_t entry = 0;
  std::uint32_t engine = 0;
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  std::uint64_t byte_count = 0;
  bool more = false;  ///< Work is left for other engines.
  Slot slot;
  Batch* batch = nullptr;
};

/// Result of a task, for the ordering rules.
struct Outcome {
  bool failed = false;   ///< Some status was not success.
  bool aborted = false;  ///< By a reset, a disable or the end of the client.
};

/// Threading: shared.
class Scheduler {
 public:
  Scheduler(Registers& registers, const RunOptions& run_options, std::uint32_t device, Owner owner);

  /// Reserves the slot of `entry` for a push; cancel() releases it before a push. Returns false if
  /// the last push there has not been taken: then this client already holds the entry, whatever its
  /// word in the registers says. Async-signal-safe.
  [[nodiscard]] bool reserve(std::uint32_t queue, std::uint32_t entry) noexcept;
  void cancel(std::uint32_t queue, std::uint32_t entry) noexcept;
  /// Enqueues reserved entry `entry` of WQ `queue`. Wait-free, except for interrupted submitters of
  /// the same process. Async-signal-safe.
  void push(std::uint32_t queue, std::uint32_t entry, const Slot& slot) noexcept;
  /// Whether a pushed entry is waiting for a worker. Async-signal-safe.
  [[nodiscard]] bool has_queued() const noexcept;

  /// Takes the next task and claims an engine for it; keeps `engine_held` (kEngineMax: none) if
  /// that serves its group. A stale task comes with engine kEngineMax if none is free. Without
  /// `choice` the WQ furthest behind its share goes first; with it, a random one weighted by
  /// priority.
  ///
  /// Returns: a task of kind none if there is none; `engine_wanted` says whether only an engine was
  /// missing.
  [[nodiscard]] Task take(std::uint32_t& engine_held, bool& engine_wanted, Random* choice);
  /// Reports the end of a task whose records (of a batch: those of its members) are written.
  ///
  /// Returns: the batch whose last member this was; the caller writes its record, then calls
  /// finish_batch.
  [[nodiscard]] Batch* finish(const Task& task, Outcome outcome);
  void finish_batch(Batch& batch);
  /// Makes everything stale: the client is going away.
  void abandon() noexcept { abandoned_.store_release(1); }  // edge: emu-abandon (release)
  [[nodiscard]] bool abandoned() const noexcept;
  [[nodiscard]] bool stale(std::uint32_t queue, std::uint64_t generation) const noexcept;
  [[nodiscard]] bool halted() const noexcept;
  /// Nothing queued, nothing running.
  [[nodiscard]] bool idle();
  void release_engine(std::uint32_t& engine_held) noexcept;
  /// Takes engines from dead or stopped clients; reaps the dead.
  void recover_engines() noexcept;
  /// True if another client waits for the engine and either has a WQ that is behind its share or
  /// has waited for one turn.
  [[nodiscard]] bool should_yield(std::uint32_t engine, std::uint32_t queue,
                                  std::uint64_t held_ns) const noexcept;

  [[nodiscard]] DeviceRegisters& device() { return device_; }
  [[nodiscard]] std::uint32_t device_index() const { return device_index_; }

 private:
  using Slots = std::array<std::array<Slot, kEntryMax>, kQueueMax>;
  /// Separate from the batches, which the scheduler scans at every turn.
  using Lists = std::array<std::array<dsa::Descriptor, kBatchMax>, kBatchActiveMax>;
  struct Candidate {
    std::uint32_t queue = 0;
    Batch* batch = nullptr;  // Null: the head of the ring.
    std::uint32_t head_entry = 0;
    bool stale = false;  ///< Of an ended generation: aborted without an engine.
  };

  [[nodiscard]] std::optional<Candidate> candidate(std::uint32_t queue) HEADRACE_REQUIRES(mutex_);
  [[nodiscard]] std::uint32_t choose(std::span<const Candidate> from, Random* choice) const;
  [[nodiscard]] bool claim_engine(std::uint32_t group, std::uint32_t& engine_held) noexcept;
  [[nodiscard]] Task start(const Candidate& candidate, std::uint32_t engine)
      HEADRACE_REQUIRES(mutex_);
  [[nodiscard]] Task take_members(Batch& batch, std::uint32_t engine) HEADRACE_REQUIRES(mutex_);
  [[nodiscard]] std::uint32_t takeable(const Batch& batch) const;
  void charge(std::uint32_t queue, std::uint64_t cost) noexcept;
  [[nodiscard]] std::uint32_t priority_of(std::uint32_t queue) const noexcept;
  /// Virtual time of a WQ; its group's clock if implausibly far ahead of that.
  [[nodiscard]] std::uint64_t time_of(std::uint32_t queue) const noexcept;

  Registers& registers_;
  DeviceRegisters& device_;
  const std::uint32_t device_index_;
  const Owner owner_;
  std::array<EntryRing<kEntryMax>, kQueueMax> rings_;
  const bool one_at_a_time_;  ///< Of a batch: delayed completions are paced one by one.
  std::unique_ptr<Slots> slots_;
  std::array<std::array<Atomic<std::uint32_t>, kEntryMax>, kQueueMax> reserved_;  // 0 or 1.
  Atomic<std::uint32_t> abandoned_;
  Mutex mutex_;
  std::unique_ptr<Lists> lists_;
  std::vector<Batch> batches_ HEADRACE_GUARDED_BY(mutex_);
  /// Active batches per WQ: mostly none.
  std::array<std::uint32_t, kQueueMax> active_counts_ HEADRACE_GUARDED_BY(mutex_){};
  std::uint32_t active_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::array<std::uint32_t, kQueueMax> unfinished_ HEADRACE_GUARDED_BY(mutex_){};
};

}  // namespace headrace::emu
