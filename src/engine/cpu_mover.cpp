// SPDX-License-Identifier: Apache-2.0
#include "cpu_mover.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "headrace/base/check.hpp"
#include "headrace/base/units.hpp"
#include "headrace/platform/thread.hpp"
#include "mapped.hpp"
#include "outcome.hpp"
#include "software/software.hpp"

namespace headrace::engine {

Result<std::unique_ptr<Mover>> CpuMover::make(const CpuMoverOptions& options) {
  std::unique_ptr<CpuMover> mover(new CpuMover(options));
  const Result<void> started = mover->start(options.thread_count);
  if (!started) return fail(started.error());
  return mover;
}

CpuMover::CpuMover(const CpuMoverOptions& options)
    : info_{.name = fmt::format("cpu/node{}", options.node.value()),
            .node = options.node,
            .operations = OperationSet::all().without(OperationKind::drain),
            .batches = true,
            .note = counted(options.thread_count, "worker thread")},
      cpus_(options.cpus),
      piece_bytes_(options.piece_bytes),
      queue_depth_max_(options.queue_depth_max),
      check_memory_(options.check_memory) {}

CpuMover::~CpuMover() {
  stop();
}

Result<void> CpuMover::start(std::size_t thread_count) {
  workers_.reserve(thread_count);
  for (std::size_t i = 0; i < thread_count; ++i) {
    try {
      workers_.emplace_back(&CpuMover::run_worker, this, i);
    } catch (const std::system_error& error) {
      return fail(Code::unsupported, fmt::format("start worker {} of {}", i + 1, info_.name),
                  "the system makes no more threads", "use fewer threads, or raise the limit",
                  error.code().value());
    }
  }
  const Lock lock(mutex_);
  while (started_count_ < thread_count) worker_started_.wait(mutex_);
  return start_result_;
}

void CpuMover::run_worker(std::size_t worker_index) {
  platform::name_this_thread(fmt::format("hr-{}-{}", info_.node->value(), worker_index));
  Result<void> pinned = platform::pin_this_thread(cpus_);
  if (!pinned) {
    Error error = pinned.error().within(fmt::format("start a worker of {}", info_.name));
    error.code = error.os_errno == EPERM ? Code::permission_denied : Code::unsupported;
    pinned = fail(std::move(error));
  }
  {
    const Lock lock(mutex_);
    ++started_count_;
    if (start_result_) start_result_ = pinned;
  }
  worker_started_.notify_one();
  if (pinned) work();
}

Submit CpuMover::submit(Share& share) noexcept {
  bool wake = false;
  share.outcome = {};
  share.bytes_taken = 0;
  share.bytes_finished = 0;
  // Now and not by a worker: others may take pieces of the share as soon as one has.
  const bool batch = !share.batch().operations.empty();
  const auto bad = batch ? std::nullopt : detail::inaccessible(share.operation(), check_memory_);
  {
    const Lock lock(mutex_);
    if (stopping_) return Submit::closed;
    // The lock orders the writers of the count.
    const std::size_t held_count = held_count_.load_relaxed();
    if (held_count >= queue_depth_max_ && !share.overdue) return Submit::full;
    if (bad) share.outcome = {.cause = Cause::page_fault, .fault_address = *bad};
    held_count_.store_relaxed(held_count + 1);  // As above.
    push(share);
    wake = idle_count_ > 0;
  }
  if (wake) work_arrived_.notify_one();
  return Submit::accepted;
}

void CpuMover::work() {
  mutex_.lock();
  while (true) {
    while (head_ == nullptr && !stopping_) {
      ++idle_count_;
      work_arrived_.wait(mutex_);
      --idle_count_;
    }
    if (head_ == nullptr) break;
    const Piece piece = take();
    Share& share = *piece.share;
    if (piece.begins) {
      const bool more_for_others = head_ != nullptr && idle_count_ > 0;
      mutex_.unlock();
      if (more_for_others) work_arrived_.notify_one();
      const ShareOutcome outcome = carry_out(piece);
      mutex_.lock();
      account_for(piece, outcome);
    }
    if (share.queued || share.bytes_finished < share.bytes_taken) continue;
    // Room for another share before the job ends: whoever waited for it may submit at once.
    held_count_.store_relaxed(held_count_.load_relaxed() - 1);  // The lock orders the writers.
    ShareOutcome outcome = share.outcome;
    mutex_.unlock();
    outcome.stopped = outcome.stopped && outcome.cause == Cause::none && !outcome.result.different;
    finish(share, outcome);
    mutex_.lock();
  }
  mutex_.unlock();
}

CpuMover::Piece CpuMover::take() {
  Share& share = pop();
  const std::size_t offset = share.bytes_taken;
  // Of a stopped share nothing more is handed out, nor of one whose end is known. What does not
  // begin must be accounted for before the lock is released: it does not keep the share from being
  // ended by another worker.
  const bool known = share.outcome.cause != Cause::none || share.outcome.result.different;
  if (known || stopping_ || share.job->stop_requested()) {
    share.outcome.stopped = !known;
    detail::note_rest(share.batch(), 0, {.stopped = true});
    return {&share, offset, 0, false, {}};
  }
  const std::size_t length = std::min(piece_bytes(share), share.byte_count - offset);
  share.bytes_taken += length;
  const bool whole = offset == 0 && length == share.byte_count;
  const bool alone = whole || !share.job->operation().has_independent_parts();
  if (!alone && share.bytes_taken < share.byte_count) push(share);
  return {&share, offset, length, true, alone ? share.outcome.result : OperationResult{}};
}

std::size_t CpuMover::piece_bytes(const Share& share) const {
  if (!share.batch().operations.empty()) return share.byte_count;
  const std::size_t cut = share.job->operation().cut_bytes();
  if (cut == 0) return share.byte_count;
  return std::max(piece_bytes_ / cut, std::size_t{1}) * cut;
}

ShareOutcome CpuMover::carry_out(const Piece& piece) const {
  const Share& share = *piece.share;
  if (!share.batch().operations.empty())
    return software::execute_batch(share.batch(), *share.job, check_memory_);
  return software::execute(share.job->operation().part(share.offset_bytes + piece.offset_bytes,
                                                       piece.length_bytes, piece.before));
}

void CpuMover::account_for(const Piece& piece, const ShareOutcome& outcome) {
  Share& share = *piece.share;
  share.bytes_finished += piece.length_bytes;
  detail::merge(share.outcome, outcome, piece.offset_bytes);
  const bool more = share.bytes_taken < share.byte_count && !share.queued;
  if (more && share.bytes_finished == share.bytes_taken) push(share);
}

void CpuMover::push(Share& share) {
  share.next = nullptr;
  share.queued = true;
  (head_ == nullptr ? head_ : tail_->next) = &share;
  tail_ = &share;
}

Share& CpuMover::pop() {
  Share& share = *head_;
  head_ = share.next;
  share.queued = false;
  return share;
}

void CpuMover::stop() noexcept {
  {
    const Lock lock(mutex_);
    stopping_ = true;
  }
  work_arrived_.notify_all();
  for (std::thread& worker : workers_) {
    HEADRACE_CHECK(worker.get_id() != std::this_thread::get_id(),
                   "a callback may not stop the engine that calls it");
    worker.join();
  }
  workers_.clear();
}

}  // namespace headrace::engine
