// SPDX-License-Identifier: Apache-2.0
#include "mover.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "../completions.hpp"
#include "../memory_access.hpp"
#include "../software/software.hpp"
#include "../waiter.hpp"
#include "headrace/base/atomic.hpp"
#include "headrace/base/check.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/base/units.hpp"
#include "headrace/platform/thread.hpp"

namespace headrace::engine {
namespace {

/// A worker takes a piece of the request at the head of the queue and moves the request to the tail
/// if bytes are left, so all queued requests advance at the same rate: a small job waits for one
/// piece of each job before it, not for their completion. Several workers may hold pieces of one
/// request.
///
/// Invariants of a request held, under mutex_:
///   0 <= bytes_finished <= bytes_taken <= byte_count
///   queued <=> it is in the queue
///   It completes when it is not queued and bytes_finished == bytes_taken. The worker whose piece
///   makes that true completes it; there is exactly one, because the sums change under the lock.
/// bytes_finished counts completed pieces; outcome.bytes_done is less if a comparison found a
/// difference or a check an error. An operation without independent parts has one piece in flight
/// at a time, because each needs the result of the one before.
///
/// Threading: shared.
class CpuMover final : public Mover {
 public:
  explicit CpuMover(const CpuMoverOptions& options)
      : info_{.name = fmt::format("cpu/node{}", options.node.value()),
              .node = options.node,
              .operations = OperationSet::all().without(OperationKind::drain),
              .batches = true,
              .note = counted(options.thread_count, "worker thread")},
        options_(options) {}
  ~CpuMover() override { stop(); }

  /// Called once, before any request.
  [[nodiscard]] Result<void> start() {
    workers_.reserve(options_.thread_count);
    for (std::size_t i = 0; i < options_.thread_count; ++i) {
      auto worker = platform::start_thread(fmt::format("start worker {} of {}", i + 1, info_.name),
                                           &CpuMover::run_worker, this, i);
      if (!worker) return fail(std::move(worker.error()));
      workers_.push_back(std::move(*worker));
      const Result<void> pinned = platform::pin_thread(workers_[i], options_.cpus);
      if (!pinned) {
        Error error = pinned.error().within(fmt::format("start a worker of {}", info_.name));
        error.code = error.os_errno == EPERM ? Code::permission_denied : Code::unsupported;
        return fail(std::move(error));
      }
    }
    return {};
  }

  [[nodiscard]] const MoverInfo& info() const override { return info_; }

  [[nodiscard]] Submit post(Request& request) noexcept override {
    bool wake = false;
    // Checked here and not by a worker: once one has a piece, others may take more.
    const bool asks = options_.check_memory || request.byte_count() >= detail::kAskedBytesMin;
    const auto bad = !asks || request.is_batch()
                         ? std::nullopt
                         : detail::inaccessible(request.operation(), options_.check_memory);
    {
      const Lock lock(mutex_);
      if (stopping_) return Submit::closed;
      // Written under the lock only.
      const std::size_t held_count = held_count_.load_relaxed();
      if (held_count >= options_.queue_depth_max && !request.is_overdue()) return Submit::full;
      request.outcome = {};
      if (bad) request.outcome = {.cause = Cause::page_fault, .fault_address = *bad};
      request.bytes_taken = 0;
      request.bytes_finished = 0;
      held_count_.store_relaxed(held_count + 1);  // As above.
      push(request);
      wake = idle_count_ > 0 && looking_count_ == 0;
    }
    if (wake) arrivals_.notify_one();
    return Submit::accepted;
  }

  [[nodiscard]] std::size_t load() const noexcept override {
    return held_count_.load_relaxed();  // A snapshot.
  }

  void stop() noexcept override {
    {
      const Lock lock(mutex_);
      stopping_ = true;
      count_arrival();
    }
    arrivals_.notify_all();
    for (std::thread& worker : workers_) {
      HEADRACE_CHECK(worker.get_id() != std::this_thread::get_id(),
                     "a callback may not stop the engine that calls it");
      worker.join();
    }
    workers_.clear();
  }

 private:
  /// The part of a request that one worker copies.
  struct Piece {
    Request* request;
    std::size_t offset_bytes;
    std::size_t length_bytes;
    bool begins;             ///< False if there is nothing to do: the request was stopped.
    OperationResult before;  ///< Result of the pieces before it, if parts are not independent.
  };

  void run_worker(std::size_t worker_index) {
    platform::name_this_thread(fmt::format("hr-{}-{}", info_.node->value(), worker_index));
    WaitHistory history;
    mutex_.lock();
    while (true) {
      while (head_ == nullptr && !stopping_) {
        const std::uint32_t seen = arrivals_.load_relaxed();  // Written under the lock only.
        if (options_.waiting != Waiting::sleep && look_for(history, seen)) continue;
        ++idle_count_;
        mutex_.unlock();
        // edge: work-arrived (acquire)
        arrivals_.wait_acquire(seen);
        mutex_.lock();
        --idle_count_;
      }
      if (head_ == nullptr) break;
      const Piece piece = take();
      Request& request = *piece.request;
      if (piece.begins) {
        const bool more_for_others = head_ != nullptr && idle_count_ > 0 && looking_count_ == 0;
        mutex_.unlock();
        if (more_for_others) arrivals_.notify_one();
        const Completion outcome = carry_out(piece);
        mutex_.lock();
        request.bytes_finished += piece.length_bytes;
        detail::merge(request.outcome, outcome, piece.offset_bytes);
        const bool more = request.bytes_taken < request.byte_count() && !request.queued;
        if (more && request.bytes_finished == request.bytes_taken) push(request);
      }
      if (request.queued || request.bytes_finished < request.bytes_taken) continue;
      // Frees the entry before the job completes: the waiting thread may submit immediately.
      held_count_.store_relaxed(held_count_.load_relaxed() - 1);  // The lock orders the writers.
      Completion outcome = request.outcome;
      mutex_.unlock();
      // Bytes after the difference do not count.
      if (outcome.result.different) outcome.state = JobState::idle;
      request.complete(outcome);
      mutex_.lock();
    }
    mutex_.unlock();
  }

  /// Waits for a request without the lock and without sleeping, for as long as recent waits of this
  /// kind were worth it. Waking a sleeping worker costs the thread that posts some 10 microseconds,
  /// and the worker starts 10 microseconds later. A thread that posts meanwhile wakes no worker.
  /// Before it returns, this function checks again under the lock, so that no request is missed.
  bool look_for(WaitHistory& history, std::uint32_t seen) HEADRACE_REQUIRES(mutex_) {
    ++looking_count_;
    mutex_.unlock();
    const std::uint64_t begin = platform::ticks();
    const std::uint64_t ticks_max = history.begin();
    std::uint64_t ticks = 0;
    // edge: work-arrived (acquire)
    while (arrivals_.load_acquire() == seen && (ticks = platform::ticks() - begin) < ticks_max) {
      platform::pause();
    }
    mutex_.lock();
    --looking_count_;
    const bool found = arrivals_.load_relaxed() != seen;  // Written under the lock only.
    history.end(ticks, found);
    return found;
  }

  [[nodiscard]] Piece take() HEADRACE_REQUIRES(mutex_) {
    Request& request = *head_;
    head_ = request.next;
    request.queued = false;
    const std::size_t offset = request.bytes_taken;
    // No more pieces of a request that was stopped or whose outcome is known. Updated before the
    // lock is released, because another worker may complete the request.
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

  [[nodiscard]] std::size_t piece_bytes(const Request& request) const {
    const std::size_t cut = request.operation().cut_bytes();
    if (cut == 0) return request.byte_count();
    return std::max(options_.piece_bytes / cut, std::size_t{1}) * cut;
  }

  /// Executes a piece, or a whole batch.
  [[nodiscard]] Completion carry_out(const Piece& piece) const {
    const Request& request = *piece.request;
    if (request.is_batch()) return software::execute_batch(request, options_.check_memory);
    return software::execute(
        request.operation().part(piece.offset_bytes, piece.length_bytes, piece.before));
  }

  void push(Request& request) HEADRACE_REQUIRES(mutex_) {
    request.next = nullptr;
    request.queued = true;
    (head_ == nullptr ? head_ : tail_->next) = &request;
    tail_ = &request;
    count_arrival();
  }
  void count_arrival() HEADRACE_REQUIRES(mutex_) {
    // edge: work-arrived (release)
    arrivals_.store_release(arrivals_.load_relaxed() + 1);  // The lock orders the writers.
  }

  const MoverInfo info_;
  const CpuMoverOptions options_;

  Mutex mutex_;
  /// Changes, under mutex_, with what an idle worker waits for: it sleeps while it has the value
  /// that it read when it found nothing to do. Costs its poster less than a condition variable.
  Atomic<std::uint32_t> arrivals_{0};
  Request* head_ HEADRACE_GUARDED_BY(mutex_) = nullptr;
  Request* tail_ HEADRACE_GUARDED_BY(mutex_) = nullptr;
  /// Requests accepted and not completed. Written under mutex_, read by policies without it.
  Atomic<std::size_t> held_count_{0};
  std::size_t idle_count_ HEADRACE_GUARDED_BY(mutex_) = 0;     ///< Workers that sleep ...
  std::size_t looking_count_ HEADRACE_GUARDED_BY(mutex_) = 0;  ///< ... and that look for work.
  bool stopping_ HEADRACE_GUARDED_BY(mutex_) = false;

  /// Written by start() and stop(), which do not overlap.
  std::vector<std::thread> workers_;
};

}  // namespace

Result<std::unique_ptr<Mover>> make_cpu_mover(const CpuMoverOptions& options) {
  auto mover = std::make_unique<CpuMover>(options);
  HEADRACE_TRY(mover->start());
  return mover;
}

}  // namespace headrace::engine
