// SPDX-License-Identifier: Apache-2.0
// ThreadPool: a client's threads for one device: a scheduler, up to kEngineMax workers (threads
// that run tasks; a worker claims an engine for each task), and a completer that delivers delayed
// completions (Pace).
#pragma once

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <optional>

#include "emu/device/runner.hpp"
#include "emu/device/scheduler.hpp"
#include "emu/platform/process.hpp"

namespace headrace::emu {

class Client;

/// Threading: shared.
class ThreadPool {
 public:
  ThreadPool(Client& client, std::uint32_t device);

  [[nodiscard]] Scheduler& scheduler() { return scheduler_; }

  /// Starts the first worker and, with latency, the completer.
  [[nodiscard]] Result<void> start();
  /// Starts one more worker unless all are running. Returns 0 or the errno of the failure.
  int grow() noexcept;
  /// Wakes a worker after a push.
  void notify() noexcept;
  void stop() noexcept;
  /// One deterministic step, chosen among everything runnable. Returns false if nothing is;
  /// `engine_wanted` says whether only an engine was missing.
  bool step(Random& chance, bool& engine_wanted);
  /// Whether a step would find work, if an engine is free.
  [[nodiscard]] bool is_ready() { return !scheduler_.halted() && !scheduler_.idle(); }
  /// Waits briefly until an engine may be free. `waiting_since` is 0 at the first call of a wait:
  /// in a long one, engines are taken from dead and stopped clients.
  void await_engine(std::uint64_t& waiting_since);
  /// Aborts all that is left, on this thread.
  void abort_all();

 private:
  struct Worker {
    ThreadPool* thread_pool = nullptr;
    std::optional<Runner> runner;
    std::uint32_t engine_held = kEngineMax;
    std::uint64_t held_since_ns = 0;
    platform::QuietThread thread;
  };

  [[nodiscard]] Atomic<std::uint32_t>& bell();
  void complete_all();
  /// Takes what is due soon or stale; otherwise sets how long to `wait`.
  [[nodiscard]] std::optional<Pending> take_due(std::chrono::nanoseconds& wait);
  void complete(const Pending& pending) noexcept;
  void postpone(const Pending& pending);
  void ring_completer() noexcept;
  /// Free-running with latency: starts the thread that delivers completions. Returns 0 or an errno.
  [[nodiscard]] int start_completer();
  void work(Worker& worker);
  void run(Worker& worker, const Task& task);
  [[nodiscard]] bool turn_is_over(Worker& worker, std::uint32_t queue);
  void serve_between_submissions();
  void help() noexcept;
  void wake_one() noexcept;
  [[nodiscard]] bool mail_waits() noexcept;

  Client& client_;
  const std::uint32_t device_;
  Scheduler scheduler_;
  Atomic<std::uint32_t> started_;
  /// Low half: sleeping workers; high half: workers that will check again without being woken. One
  /// word, so no ordering between two is needed; private to this process, so no client can
  /// overwrite it.
  Atomic<std::uint32_t> idle_;
  std::array<Worker, kEngineMax> workers_;
  Mutex pending_mutex_;
  /// Delayed completions by the time when they are due.
  std::multimap<std::uint64_t, Pending> pending_ HEADRACE_GUARDED_BY(pending_mutex_);
  Atomic<std::uint32_t> completer_bell_;
  std::optional<Runner> completer_;
  platform::QuietThread completer_thread_;
};

}  // namespace headrace::emu
