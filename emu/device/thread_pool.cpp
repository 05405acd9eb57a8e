// SPDX-License-Identifier: Apache-2.0
#include "emu/device/thread_pool.hpp"

#include <algorithm>

#include "emu/device/client.hpp"
#include "emu/platform/wait.hpp"

namespace headrace::emu {
namespace {

using namespace std::chrono_literals;

/// Polls of a worker, with PAUSE, before it sleeps: too short to cost anything measurable.
constexpr int kSpinMax = 1000;
/// Limits the sleep of an idle worker, in case the thread that should have woken it was killed.
constexpr auto kIdleSleep = 10s;
constexpr auto kEngineWait = 2ms;
/// A dead or stopped holder loses its engine after this long.
constexpr std::uint64_t kHolderPatienceNs = 100'000'000;
/// A completion due this soon is awaited by spinning.
constexpr std::uint64_t kSoonNs = 60'000;
/// A worker with a task of more bytes leaves the idle count.
constexpr std::uint64_t kBriefBytes = 64 << 10;

/// The word that counts workers available for a push.
namespace idle {
constexpr std::uint32_t kSleeper = 1;
constexpr std::uint32_t kPolling = 1U << 16U;
constexpr std::uint32_t kToSleep = kSleeper - kPolling;
constexpr std::uint32_t sleepers(std::uint32_t word) {
  return word & 0xffffU;
}
constexpr std::uint32_t polling(std::uint32_t word) {
  return word >> 16U;
}
}  // namespace idle

}  // namespace

ThreadPool::ThreadPool(Client& client, std::uint32_t device)
    : client_(client),
      device_(device),
      scheduler_(client.registers(), client.run_options(), device, client.owner()) {
  for (Worker& worker : workers_) {
    worker.thread_pool = this;
    worker.runner.emplace(client.context(), scheduler_);
  }
  completer_.emplace(client.context(), scheduler_);
}

Atomic<std::uint32_t>& ThreadPool::bell() {
  return client_.place().doorbells[device_];
}

Result<void> ThreadPool::start() {
  if (started_.load_relaxed() != 0) return {};  // concurrent calls have no effect
  int error = 0;
  // First: without the completer nothing would complete.
  if (client_.run_options().pace.latency_ns != 0 && !client_.run_options().deterministic()) {
    error = start_completer();
  }
  if (error == 0) error = grow();
  if (error == 0) return {};
  return fail(
      Code::capacity_exceeded, "start the engine threads of " + device_name(DeviceId(device_)),
      "a thread cannot be created",
      "raise the limit of processes (ulimit -u, or pids.max of the container), or end some", error);
}

int ThreadPool::grow() noexcept {
  std::uint32_t count = started_.load_relaxed();  // the exchange decides
  while (count < workers_.size()) {
    // edge: emu-workers (acq_rel)
    if (!started_.compare_exchange_acq_rel(count, count + 1)) continue;
    Worker& worker = workers_[count];
    // edge: emu-idle (acq_rel)
    idle_.fetch_add_acq_rel(idle::kPolling);
    const auto enter = [](void* self) {
      auto* const entered = static_cast<Worker*>(self);
      entered->thread_pool->work(*entered);
    };
    const int error = worker.thread.start("dsa-engine", enter, &worker);
    if (error != 0) {
      idle_.fetch_sub_acq_rel(idle::kPolling);  // edge: emu-idle (acq_rel)
      // Allows a later attempt, unless another worker was started meanwhile.
      std::uint32_t expected = count + 1;
      started_.compare_exchange_acq_rel(expected, count);  // edge: emu-workers (acq_rel)
    }
    return error;
  }
  return 0;
}

void ThreadPool::wake_one() noexcept {
  bell().fetch_add_acq_rel(1);  // edge: emu-idlebell (acq_rel)
  platform::wake(bell(), 1);
}

void ThreadPool::notify() noexcept {
  // edge: emu-idle (acq_rel)
  const std::uint32_t word = idle_.fetch_add_acq_rel(0);
  if (idle::polling(word) == 0 && idle::sleepers(word) != 0) wake_one();
}

void ThreadPool::stop() noexcept {
  scheduler_.abandon();
  ring(client_.place(), device_);
  notify_release(scheduler_.device());
  ring_completer();
  for (Worker& worker : workers_) worker.thread.join();
  completer_thread_.join();
}

int ThreadPool::start_completer() {
  if (completer_thread_.started()) return 0;
  const auto enter = [](void* self) { static_cast<ThreadPool*>(self)->complete_all(); };
  return completer_thread_.start("dsa-completer", enter, this);
}

void ThreadPool::abort_all() {
  scheduler_.abandon();
  Random chance(0);
  bool engine_wanted = false;  // What is aborted needs none.
  while (step(chance, engine_wanted)) {
  }
}

void ThreadPool::ring_completer() noexcept {
  completer_bell_.fetch_add_acq_rel(1);  // edge: emu-completer (acq_rel)
  platform::wake(completer_bell_, 1);
}

void ThreadPool::help() noexcept {
  // edge: emu-idle (acq_rel)
  const std::uint32_t word = idle_.fetch_add_acq_rel(0);
  if (idle::sleepers(word) != 0) {
    wake_one();
  } else {
    static_cast<void>(grow());  // Fewer workers suffice.
  }
}

void ThreadPool::run(Worker& worker, const Task& task) {
  // A worker that will be busy for long leaves another one awake.
  const bool away = task.byte_count > kBriefBytes || client_.run_options().faults.rule_count != 0 ||
                    client_.run_options().paced();
  if (away) {
    // edge: emu-idle (acq_rel)
    const std::uint32_t word = idle_.fetch_sub_acq_rel(idle::kPolling);
    if (idle::polling(word) == 1) {
      if (task.more || scheduler_.has_queued()) {
        help();
      } else if (idle::sleepers(word) == 0) {
        static_cast<void>(grow());  // Fewer workers suffice.
      }
    }
  }
  worker.runner->begin(task);
  while (!worker.runner->advance(nullptr)) {
    if (mail_waits()) client_.serve_mailbox(device_);
  }
  if (const auto pending = worker.runner->take_pending()) postpone(*pending);
  if (away) idle_.fetch_add_acq_rel(idle::kPolling);  // edge: emu-idle (acq_rel)
}

void ThreadPool::postpone(const Pending& pending) {
  {
    const Lock lock(pending_mutex_);
    pending_.emplace(pending.due_ns, pending);
  }
  ring_completer();
}

void ThreadPool::complete(const Pending& pending) noexcept {
  Atomic<std::uint32_t>& completing = client_.place().completing;
  completing.fetch_add_acq_rel(1);  // edge: emu-completing (acq_rel)
  completer_->complete(pending);
  completing.fetch_sub_acq_rel(1);  // edge: emu-completing (acq_rel)
  // Work that waited for it is ready now: a drain, a fence, the rest of a batch.
  notify();
}

std::optional<Pending> ThreadPool::take_due(std::chrono::nanoseconds& wait) {
  const Lock lock(pending_mutex_);
  wait = kIdleSleep;
  if (pending_.empty()) return std::nullopt;
  const std::uint64_t now = platform::now_ns();
  auto next = pending_.begin();
  if (now + kSoonNs < next->first || scheduler_.halted()) {
    // Sleeps in pieces, so that a reset takes effect soon: stale completions are due at once.
    wait = 1ms;
    if (now + kSoonNs < next->first) {
      wait = std::min(wait, std::chrono::nanoseconds(next->first - now - kSoonNs));
    }
    // Not std::find_if: Clang's analysis assumes that a lambda does not hold the lock.
    for (; next != pending_.end(); ++next) {
      const Task& task = next->second.task;
      if (scheduler_.stale(task.queue, task.slot.generation)) break;
    }
    if (next == pending_.end()) return std::nullopt;
    next->second.due_ns = now;
  }
  return pending_.extract(next).mapped();
}

void ThreadPool::complete_all() {
  while (true) {
    // edge: emu-completer (acquire)
    const std::uint32_t rung = completer_bell_.load_acquire();
    std::chrono::nanoseconds wait{};
    if (const auto next = take_due(wait)) {
      while (platform::now_ns() < next->due_ns) platform::pause();
      complete(*next);
      continue;
    }
    if (scheduler_.abandoned()) {
      if (scheduler_.idle()) return;
      wait = 1ms;
    }
    platform::sleep_on(completer_bell_, rung, wait);
  }
}

void ThreadPool::await_engine(std::uint64_t& waiting_since) {
  const std::uint64_t now = platform::now_ns();
  if (waiting_since == 0) waiting_since = now;
  if (now - waiting_since > kHolderPatienceNs) {
    scheduler_.recover_engines();
    waiting_since = now;
  }
  DeviceRegisters& device = scheduler_.device();
  // edge: emu-released (acquire)
  const std::uint32_t released = device.released.load_acquire();
  device.waiter_count.fetch_add_relaxed(1);  // the wait is bounded: a lost wake costs 2 ms
  platform::sleep_on(device.released, released, kEngineWait);
  device.waiter_count.fetch_sub_relaxed(1);  // as above
}

bool ThreadPool::turn_is_over(Worker& worker, std::uint32_t queue) {
  if (scheduler_.device().waiter_count.load_relaxed() == 0) return false;  // a hint
  const std::uint64_t now = platform::now_ns();
  // The turn is counted from when a waiter was first seen.
  if (worker.held_since_ns == 0) worker.held_since_ns = now;
  return scheduler_.should_yield(worker.engine_held, queue, now - worker.held_since_ns);
}

bool ThreadPool::mail_waits() noexcept {
  const MailboxRegisters& mailbox = client_.place().mailbox;
  // edge: emu-mailbox (acquire)
  return mailbox.state.load_acquire() == MailboxRegisters::posted &&
         mailbox.device.load_relaxed() == device_;  // published by the state
}

void ThreadPool::work(Worker& worker) {
  if (client_.run_options().deterministic()) {
    serve_between_submissions();
    return;
  }
  int spins = 0;
  std::uint64_t waiting_since = 0;
  while (true) {
    if (mail_waits()) client_.serve_mailbox(device_);
    bool engine_wanted = false;
    const bool had_engine = worker.engine_held != kEngineMax;
    Task task = scheduler_.take(worker.engine_held, engine_wanted, nullptr);
    if (!had_engine) worker.held_since_ns = 0;
    if (task.kind != TaskKind::none) {
      spins = 0;
      waiting_since = 0;
      run(worker, task);
      if (worker.engine_held != kEngineMax && turn_is_over(worker, task.queue)) {
        scheduler_.release_engine(worker.engine_held);
        await_engine(waiting_since);
      }
      continue;
    }
    const bool held = worker.engine_held != kEngineMax;
    scheduler_.release_engine(worker.engine_held);
    if (engine_wanted) {
      if (held) continue;  // An engine of another group may be free.
      await_engine(waiting_since);
      continue;
    }
    // Work that becomes ready without a push is taken by the worker that made it ready.
    while (++spins < kSpinMax && !scheduler_.has_queued() && !mail_waits()) platform::pause();
    if (spins < kSpinMax) continue;
    // Before sleeping: count it as asleep, then check once more.
    const std::uint32_t rung = bell().load_acquire();  // edge: emu-idlebell (acquire)
    idle_.fetch_add_acq_rel(idle::kToSleep);           // edge: emu-idle (acq_rel)
    task = scheduler_.take(worker.engine_held, engine_wanted, nullptr);
    const bool nothing = task.kind == TaskKind::none && !engine_wanted && !mail_waits();
    const bool leave = nothing && scheduler_.abandoned() && scheduler_.idle();
    if (nothing && !leave) {
      platform::sleep_on(bell(), rung, scheduler_.abandoned() ? 1ms : kIdleSleep);
    }
    idle_.fetch_sub_acq_rel(idle::kToSleep);  // edge: emu-idle (acq_rel)
    if (leave) return;
    spins = 0;
    if (task.kind != TaskKind::none) run(worker, task);
  }
}

void ThreadPool::serve_between_submissions() {
  while (!scheduler_.abandoned()) {
    const std::uint32_t rung = bell().load_acquire();  // edge: emu-idlebell (acquire)
    if (mail_waits()) client_.serve_mailbox(device_);
    client_.run_left();
    if (!mail_waits() && !scheduler_.abandoned()) platform::sleep_on(bell(), rung, kIdleSleep);
  }
}

bool ThreadPool::step(Random& chance, bool& engine_wanted) {
  // A busy engine continues or an idle one starts a task: all are tried, in random order.
  std::array<std::uint32_t, kEngineMax> order{0, 1, 2, 3};
  for (std::uint32_t i = kEngineMax; i > 1; --i) std::swap(order[i - 1], order[chance.below(i)]);
  for (const std::uint32_t index : order) {
    Worker& worker = workers_[index];
    if (!worker.runner->busy()) {
      const Task task = scheduler_.take(worker.engine_held, engine_wanted, &chance);
      if (task.kind == TaskKind::none) {
        scheduler_.release_engine(worker.engine_held);
        continue;
      }
      worker.runner->begin(task);
      return true;
    }
    if (scheduler_.halted()) continue;
    if (worker.runner->advance(&chance)) scheduler_.release_engine(worker.engine_held);
    return true;
  }
  return false;
}

}  // namespace headrace::emu
