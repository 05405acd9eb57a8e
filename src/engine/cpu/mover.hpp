// SPDX-License-Identifier: Apache-2.0
// The mover of processors: worker threads pinned to one node, and one queue of requests.
// Not for: faults in user memory, which end the process as anywhere else.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "headrace/base/atomic.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/engine/mover.hpp"

namespace headrace::engine {

struct CpuMoverOptions {
  NodeId node;
  /// Processors that the workers may run on; not empty.
  std::vector<CpuId> cpus;
  std::size_t thread_count = 1;
  /// What a worker copies before it looks for other work; not 0.
  std::size_t piece_bytes = 256U << 10U;
  /// Requests held at a time; not 0.
  std::size_t queue_depth_max = 1024;
  bool check_memory = false;  ///< As in EngineOptions.
};

/// A worker takes a piece of the request at the head of the queue and moves the request to the tail
/// if bytes are left, so all requests in the queue advance alike: a small job waits for one piece
/// of each job before it, not for their ends. Several workers may have pieces of one request.
///
/// Invariants of a request held, under mutex_:
///   0 <= bytes_finished <= bytes_taken <= byte_count
///   queued <=> it is in the queue
///   it ends when it is not queued and bytes_finished == bytes_taken; the worker whose piece makes
///   that true ends it, and there is exactly one, as the sums change under the lock.
/// bytes_finished counts pieces that have ended, outcome.bytes_done what was done of them: less
/// where a comparison found a difference or a check an error. Of an operation without independent
/// parts only one piece is out at a time, because it needs the result of the one before.
///
/// Threading: shared.
class CpuMover final : public Mover {
 public:
  /// Starts the workers and returns when each is pinned.
  ///
  /// Fails: unsupported or permission_denied if threads cannot be made or pinned.
  [[nodiscard]] static Result<std::unique_ptr<Mover>> make(const CpuMoverOptions& options);
  ~CpuMover() override;

  [[nodiscard]] const MoverInfo& info() const override { return info_; }
  [[nodiscard]] Submit post(Request& request) noexcept override;
  [[nodiscard]] std::size_t load() const noexcept override {
    return held_count_.load_relaxed();  // A snapshot.
  }
  void stop() noexcept override;

 private:
  /// A worker's part of a request.
  struct Piece {
    Request* request;
    std::size_t offset_bytes;
    std::size_t length_bytes;
    bool begins;             ///< False for a request that was stopped: there is nothing to do.
    OperationResult before;  ///< Of all before it, where parts are not independent.
  };

  explicit CpuMover(const CpuMoverOptions& options);
  [[nodiscard]] Result<void> start();
  void run_worker(std::size_t worker_index);
  void work();
  void push(Request& request) HEADRACE_REQUIRES(mutex_);
  Request& pop() HEADRACE_REQUIRES(mutex_);
  [[nodiscard]] Piece take() HEADRACE_REQUIRES(mutex_);
  /// Does a piece, or a whole batch.
  [[nodiscard]] Completion carry_out(const Piece& piece) const;
  void account_for(const Piece& piece, const Completion& outcome) HEADRACE_REQUIRES(mutex_);
  [[nodiscard]] std::size_t piece_bytes(const Request& request) const;

  const MoverInfo info_;
  const CpuMoverOptions options_;

  Mutex mutex_;
  Condition work_arrived_;
  Condition worker_started_;
  Request* head_ HEADRACE_GUARDED_BY(mutex_) = nullptr;
  Request* tail_ HEADRACE_GUARDED_BY(mutex_) = nullptr;
  /// Requests taken and not ended, queued or not. Written under mutex_, read by policies without
  /// it.
  Atomic<std::size_t> held_count_{0};
  std::size_t idle_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::size_t started_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
  Result<void> start_result_ HEADRACE_GUARDED_BY(mutex_);
  bool stopping_ HEADRACE_GUARDED_BY(mutex_) = false;

  /// Written by start() and stop(), which do not overlap.
  std::vector<std::thread> workers_;
};

}  // namespace headrace::engine
