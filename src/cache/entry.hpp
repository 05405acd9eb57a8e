// SPDX-License-Identifier: Apache-2.0
// EntryState: one region, its copy, the job that makes the copy, and how far that has come. All
// handles (Entry) on a region share one. It does not know the cache, which may be gone before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "headrace/base/atomic.hpp"
#include "headrace/base/units.hpp"
#include "headrace/cache/cache.hpp"
#include "headrace/engine/job.hpp"
#include "ledger.hpp"

namespace headrace::cache::detail {

/// How far an entry has come. It only goes forward:
///
///     idle -> pending -> moving -> copied | left
///                   \-----------> copied | left
///
/// No phase is entered twice: who sleeps on a phase is woken by the next one for certain, because
/// an atomic wait ends only when it sees another value than the one it began with.
///
/// | phase   | entered by                             | data() | wait()                    |
/// | ------- | -------------------------------------- | ------ | ------------------------- |
/// | idle    | constructor: nobody else knows it      | source | returns                   |
/// | pending | access(), before others can find it    | source | sleeps until the next one |
/// | moving  | access(), once the engine has the job  | source | waits for the job         |
/// | copied  | the job's callback                     | copy   | returns                   |
/// | left    | the job's callback, or access() if the | source | returns                   |
/// |         | move cannot even be submitted          |        |                           |
///
/// idle is apart from pending so that an entry that nobody will ever submit - one that was not
/// placed, or that lost the race into the cache - can be destroyed at once. moving is apart from
/// pending so that every waiter can drive the job, not only the thread that submitted it: some
/// movers advance only while somebody waits for them. The step pending -> copied | left happens
/// when the job ends before the submitter comes to announce it.
enum class Phase : std::uint32_t { idle, pending, moving, copied, left };

/// True if the data stays where it is now.
[[nodiscard]] constexpr bool ended(Phase phase) {
  return phase != Phase::pending && phase != Phase::moving;
}

/// Threading: shared, per field:
///   references  atomic. One per handle, those on the shelf included.
///   phase       atomic; see Phase.
///   source      constant.
///   ledger      constant.
///   room, copy  the submitter writes them while the phase is idle or pending; read by others once
///               the phase is copied (edge entry-ended) and by the destructor (edge
///               entry-released).
///   job         engine's rules; nobody but the submitter touches it before the phase is moving
///               (edge entry-submitted).
struct EntryState {
  EntryState(std::span<const std::byte> source_bytes, std::shared_ptr<Ledger> shared_ledger)
      : source(source_bytes), ledger(std::move(shared_ledger)) {}
  EntryState(const EntryState&) = delete;
  EntryState& operator=(const EntryState&) = delete;
  /// Stops the move and waits for its end: it reads the source and writes the copy, which both may
  /// be gone afterwards. What a mover has begun is finished, so this takes as long as one piece.
  ~EntryState();

  [[nodiscard]] Phase current_phase() const;
  /// True if the caller's handle is the only one.
  [[nodiscard]] bool sole() const;
  void wait();
  /// Asks a move that nobody will look at to end early; returns at once.
  void stop();

  /// idle -> pending. Only while nobody else can reach the entry.
  void expect_submission();
  /// pending -> moving, unless the move has ended already.
  void announce_submission();
  /// -> copied or left; wakes everybody.
  void end(Phase last);
  /// engine::Job::Callback; `context` is the state.
  static void move_ended(void* context, const engine::Completion& completion) noexcept;

  /// Allocates the copy out of `reserved`, where its footprint has been reserved. The room is given
  /// back by free_copy() in any case.
  [[nodiscard]] bool allocate_copy(NodeId on_node, Room& reserved);
  void free_copy() noexcept;

  Atomic<std::uint32_t> references{1};
  Atomic<Phase> phase{Phase::idle};
  const std::span<const std::byte> source;
  const std::shared_ptr<Ledger> ledger;
  Room* room = nullptr;
  NodeId node;
  /// As allocated: at least as long as the source.
  std::span<std::byte> copy;
  engine::Job job;
};

/// Bytes of memory that a copy of `byte_count` bytes takes.
[[nodiscard]] std::uint64_t footprint_bytes(std::size_t byte_count);

}  // namespace headrace::cache::detail
