// SPDX-License-Identifier: Apache-2.0
#include "mover.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "../completions.hpp"
#include "../memory_access.hpp"
#include "../software/software.hpp"
#include "headrace/base/check.hpp"
#include "headrace/base/units.hpp"
#include "headrace/platform/thread.hpp"

namespace headrace::engine {

Result<std::unique_ptr<Mover>> CpuMover::make(const CpuMoverOptions& options) {
  std::unique_ptr<CpuMover> mover(new CpuMover(options));
  const Result<void> started = mover->start();
  if (!started) return fail(started.error());
  return mover;
}

CpuMover::CpuMover(const CpuMoverOptions& options)
    : info_{.name = fmt::format("cpu/node{}", options.node.value()),
            .node = options.node,
            .operations = OperationSet::all().without(OperationKind::drain),
            .batches = true,
            .note = counted(options.thread_count, "worker thread")},
      options_(options) {}

CpuMover::~CpuMover() {
  stop();
}

Result<void> CpuMover::start() {
  const std::size_t thread_count = options_.thread_count;
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
  Result<void> pinned = platform::pin_this_thread(options_.cpus);
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

Submit CpuMover::post(Request& request) noexcept {
  bool wake = false;
  // Now and not by a worker: others may take pieces of the request as soon as one has.
  const auto bad = request.is_batch()
                       ? std::nullopt
                       : detail::inaccessible(request.operation(), options_.check_memory);
  {
    const Lock lock(mutex_);
    if (stopping_) return Submit::closed;
    // The lock orders the writers of the count.
    const std::size_t held_count = held_count_.load_relaxed();
    if (held_count >= options_.queue_depth_max && !request.is_overdue()) return Submit::full;
    request.outcome = {};
    if (bad) request.outcome = {.cause = Cause::page_fault, .fault_address = *bad};
    request.bytes_taken = 0;
    request.bytes_finished = 0;
    held_count_.store_relaxed(held_count + 1);  // As above.
    push(request);
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
    Request& request = *piece.request;
    if (piece.begins) {
      const bool more_for_others = head_ != nullptr && idle_count_ > 0;
      mutex_.unlock();
      if (more_for_others) work_arrived_.notify_one();
      const Completion outcome = carry_out(piece);
      mutex_.lock();
      account_for(piece, outcome);
    }
    if (request.queued || request.bytes_finished < request.bytes_taken) continue;
    // Room for another request before the job ends: a waiting thread may submit at once.
    held_count_.store_relaxed(held_count_.load_relaxed() - 1);  // The lock orders the writers.
    Completion outcome = request.outcome;
    mutex_.unlock();
    if (outcome.result.different) outcome.state = JobState::idle;  // What was left does not matter.
    request.complete(outcome);
    mutex_.lock();
  }
  mutex_.unlock();
}

CpuMover::Piece CpuMover::take() {
  Request& request = pop();
  const std::size_t offset = request.bytes_taken;
  // Of a stopped request nothing more is handed out, nor of one whose end is known. What does not
  // begin must be accounted for before the lock is released: it does not keep the request from
  // being ended by another worker.
  const bool known = request.outcome.cause != Cause::none || request.outcome.result.different;
  if (known || stopping_ || request.stop_requested()) {
    if (!known) request.outcome.state = JobState::stopped;
    detail::note_rest(request.batch(), 0, detail::kStopped);
    return {&request, offset, 0, false, {}};
  }
  const std::size_t length = std::min(piece_bytes(request), request.byte_count() - offset);
  request.bytes_taken += length;
  const bool whole = offset == 0 && length == request.byte_count();
  const bool alone = whole || !request.operation().has_independent_parts();
  if (!alone && request.bytes_taken < request.byte_count()) push(request);
  return {&request, offset, length, true, alone ? request.outcome.result : OperationResult{}};
}

std::size_t CpuMover::piece_bytes(const Request& request) const {
  if (request.is_batch()) return request.byte_count();
  const std::size_t cut = request.operation().cut_bytes();
  if (cut == 0) return request.byte_count();
  return std::max(options_.piece_bytes / cut, std::size_t{1}) * cut;
}

Completion CpuMover::carry_out(const Piece& piece) const {
  const Request& request = *piece.request;
  if (request.is_batch()) return software::execute_batch(request, options_.check_memory);
  return software::execute(
      request.operation().part(piece.offset_bytes, piece.length_bytes, piece.before));
}

void CpuMover::account_for(const Piece& piece, const Completion& outcome) {
  Request& request = *piece.request;
  request.bytes_finished += piece.length_bytes;
  detail::merge(request.outcome, outcome, piece.offset_bytes);
  const bool more = request.bytes_taken < request.byte_count() && !request.queued;
  if (more && request.bytes_finished == request.bytes_taken) push(request);
}

void CpuMover::push(Request& request) {
  request.next = nullptr;
  request.queued = true;
  (head_ == nullptr ? head_ : tail_->next) = &request;
  tail_ = &request;
}

Request& CpuMover::pop() {
  Request& request = *head_;
  head_ = request.next;
  request.queued = false;
  return request;
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
