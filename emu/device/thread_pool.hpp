// SPDX-License-Identifier: Apache-2.0
// ThreadPool: what a client has for one device: a scheduler, up to kEngineMax workers (threads that
// run tasks; a worker is no engine, it claims one for each task), and a completer that gives the
// completions which are on their way (Pace).
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "emu/device/runner.hpp"
#include "emu/device/scheduler.hpp"
#include "emu/platform/process.hpp"

namespace headrace::emu {

class LocalClient;

/// Threading: shared.
class ThreadPool {
 public:
  ThreadPool(LocalClient& client, std::uint32_t device);

  [[nodiscard]] Scheduler& scheduler() { return scheduler_; }

  /// Starts what runs submissions: the first worker, and the completer of a device with latency.
  [[nodiscard]] Result<void> start();
  /// Starts one more worker if there may be one: 0, or the errno with which the system refused it.
  int grow() noexcept;
  /// Something was pushed.
  void announce() noexcept;
  void stop() noexcept;
  /// One step of the deterministic schedule, chosen among everything that could go on. False if
  /// there was nothing.
  bool step(Random& chance);
  /// Runs all that is left as aborted, on this thread.
  void abort_all();

 private:
  struct Worker {
    ThreadPool* thread_pool = nullptr;
    std::optional<Runner> runner;
    std::uint32_t engine_held = kEngineMax;
    std::uint64_t held_since_ns = 0;
    platform::QuietThread thread;
  };

  /// A completion on its way, small enough for a heap.
  struct Due {
    std::uint64_t at_ns = 0;
    std::uint32_t room = 0;
  };
  static bool is_later(const Due& one, const Due& other) { return one.at_ns > other.at_ns; }

  [[nodiscard]] Atomic<std::uint32_t>& bell();
  void complete_all();
  /// What is due soon or stale; else how long to `wait` for it.
  [[nodiscard]] std::optional<Pending> take_due(std::chrono::nanoseconds& wait);
  void complete(const Pending& pending) noexcept;
  void postpone(const Pending& pending);
  void ring_completer() noexcept;
  /// Free-running with a latency: a thread gives the completions. 0 or an errno.
  [[nodiscard]] int start_completer();
  void work(Worker& worker);
  void run(Worker& worker, const Task& task);
  void await_engine();
  [[nodiscard]] bool turn_is_over(Worker& worker, std::uint32_t queue);
  void serve_mail_only();
  void help() noexcept;
  void wake_one() noexcept;
  [[nodiscard]] bool mail_waits() noexcept;

  LocalClient& client_;
  const std::uint32_t device_;
  Scheduler scheduler_;
  Atomic<std::uint32_t> started_;
  /// Low half: sleeping workers; high half: workers that will look again without being woken. One
  /// word, so that no order between two is needed; in this process alone, so that no client can
  /// overwrite it.
  Atomic<std::uint32_t> idle_;
  std::array<Worker, kEngineMax> workers_;
  Mutex pending_mutex_;
  /// Completions on their way, and which of these rooms are empty.
  std::vector<Pending> pending_ HEADRACE_GUARDED_BY(pending_mutex_);
  std::vector<std::uint32_t> empty_rooms_ HEADRACE_GUARDED_BY(pending_mutex_);
  /// A heap of those that are not, the first one due on top.
  std::vector<Due> due_ HEADRACE_GUARDED_BY(pending_mutex_);
  Atomic<std::uint32_t> completer_bell_;
  std::optional<Runner> completer_;
  platform::QuietThread completer_thread_;
};

}  // namespace headrace::emu
