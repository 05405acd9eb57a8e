// SPDX-License-Identifier: Apache-2.0
// A process's connection: submitting, and the threads that run what was submitted. One scheduler
// and up to kEngineMax workers per device; a worker is no engine, it claims one for each task.
#include <algorithm>
#include <cstring>

#include "emu/device/runner.hpp"
#include "emu/platform/process.hpp"
#include "emu/platform/wait.hpp"

namespace headrace::emu {
namespace {

using namespace std::chrono_literals;

/// A worker looks this often for something new before it sleeps, with the processor told that it
/// spins: short enough to cost nothing that one could measure.
constexpr int kSpinMax = 1000;
/// Sleep of a worker that has nothing to do. It is woken for work; this is for the case that the
/// one who should have done so was killed in between.
constexpr auto kIdleSleep = 10s;
constexpr auto kEngineWait = 2ms;
/// A holder that is dead or stopped loses its engine after this long.
constexpr std::uint64_t kHolderPatienceNs = 100'000'000;
/// A completion that is due this soon is waited for with the processor.
constexpr std::uint64_t kSoonNs = 60'000;
/// Tasks of more bytes than this take their worker away from the door.
constexpr std::uint64_t kBriefBytes = 64 << 10;

class Workshop;

/// Threading: shared.
class LocalClient final : public Client {
 public:
  LocalClient(Registers& registers, Owner owner, Memory& memory, ClientOptions options);
  ~LocalClient() override;

  void start() override;
  bool enqueue(DeviceId device, QueueId queue, const dsa::Descriptor& descriptor) noexcept override;
  void store(DeviceId device, QueueId queue, const dsa::Descriptor& descriptor) noexcept override;
  void run_until_idle() override;
  bool step() override;
  void tell(const TraceEvent& event) override { surroundings_.tell(event); }

  void forget() noexcept { forgotten_ = true; }

 private:
  friend class Workshop;
  enum class Taken : std::uint8_t { accepted, full, refused };
  Taken submit(std::uint32_t device, std::uint32_t queue, const dsa::Descriptor& descriptor,
               dsa::QueueMode mode, Origin origin, MailboxRegisters* mailbox) noexcept;
  void trace(TraceKind kind, std::uint32_t device, std::uint32_t queue, std::uint64_t sequence,
             const dsa::Descriptor& descriptor) noexcept;
  void serve_mailbox(std::uint32_t device) noexcept;
  [[nodiscard]] bool deterministic() const {
    return registers_.schedule == Schedule::deterministic;
  }
  [[nodiscard]] ClientRegisters& place() { return registers_.clients[client_index_of(owner_)]; }

  Registers& registers_;
  const Owner owner_;
  Surroundings surroundings_;
  std::vector<std::unique_ptr<Workshop>> workshops_;  // One per device.
  Mutex step_mutex_;
  Random chance_ HEADRACE_GUARDED_BY(step_mutex_);
  bool forgotten_ = false;
};

/// What a client has for one device.
///
/// Threading: shared.
class Workshop {
 public:
  Workshop(LocalClient& client, std::uint32_t device)
      : client_(client), device_(device), scheduler_(client.registers_, device, client.owner_) {
    for (Worker& worker : workers_) {
      worker.workshop = this;
      worker.runner.emplace(client.surroundings_, scheduler_);
    }
    completer_.emplace(client.surroundings_, scheduler_);
  }

  [[nodiscard]] Scheduler& scheduler() { return scheduler_; }

  /// Starts one more worker if there may be one.
  void grow() noexcept {
    std::uint32_t count = started_.load_relaxed();  // the exchange decides
    while (count < workers_.size()) {
      // edge: emu-workers (acq_rel)
      if (!started_.compare_exchange_acq_rel(count, count + 1)) continue;
      Worker& worker = workers_[count];
      // edge: emu-doorbell (acq_rel)
      bell().fetch_add_acq_rel(doorbell::kAttentive);
      if (!worker.thread.start("dsa-engine", &Workshop::enter, &worker)) {
        bell().fetch_sub_acq_rel(doorbell::kAttentive);
      }
      return;
    }
  }

  /// Something was pushed.
  void announce() noexcept {
    // edge: emu-doorbell (acq_rel)
    const std::uint32_t word = bell().fetch_add_acq_rel(doorbell::kRing);
    if (doorbell::attentive(word) == 0 && doorbell::sleepers(word) != 0) platform::wake(bell(), 1);
  }

  void stop() noexcept {
    scheduler_.abandon();
    ring(client_.place(), device_);
    announce_release(scheduler_.device());
    ring_completer();
    for (Worker& worker : workers_) worker.thread.join();
    completer_thread_.join();
  }
  void forget() noexcept {
    for (Worker& worker : workers_) worker.thread.forget();
    completer_thread_.forget();
  }
  /// Free-running with a latency: a thread gives the completions.
  [[nodiscard]] bool start_completer() {
    // Room for all that can be on its way: engines do not allocate.
    {
      const Lock lock(pending_mutex_);
      pending_.reserve(kEntryMax + std::size_t{kBatchActiveMax} * kBatchMax);
    }
    return completer_thread_.start("dsa-completer", &Workshop::enter_completer, this);
  }

  /// One step of the deterministic schedule, chosen among everything that could go on. False if
  /// there was nothing.
  bool step(Random& chance);
  /// Runs all that is left as aborted, on this thread.
  void abort_all() {
    scheduler_.abandon();
    Random chance(0);
    while (step(chance)) {
    }
  }
  [[nodiscard]] bool has_workers() const {
    return started_.load_relaxed() != 0;  // start() is not called twice at once to any effect
  }

 private:
  struct Worker {
    Workshop* workshop = nullptr;
    std::optional<Runner> runner;
    std::uint32_t engine_held = kEngineMax;
    std::uint64_t held_since_ns = 0;
    platform::QuietThread thread;
  };

  [[nodiscard]] Atomic<std::uint32_t>& bell() { return client_.place().doorbells[device_]; }
  static void enter(void* worker) {
    auto* self = static_cast<Worker*>(worker);
    self->workshop->work(*self);
  }
  static void enter_completer(void* workshop) { static_cast<Workshop*>(workshop)->complete_all(); }
  void complete_all();
  /// What is due soon or stale; else how long to `wait` for it.
  [[nodiscard]] std::optional<Pending> take_due(std::chrono::nanoseconds& wait);
  void complete(const Pending& pending) noexcept;
  void postpone(const Pending& pending);
  void ring_completer() noexcept {
    completer_bell_.fetch_add_acq_rel(1);  // edge: emu-completer (acq_rel)
    platform::wake(completer_bell_, 1);
  }
  void work(Worker& worker);
  void run(Worker& worker, const Task& task);
  void await_engine();
  [[nodiscard]] bool turn_is_over(Worker& worker, std::uint32_t queue);
  void serve_mail_only();
  void help() noexcept;
  [[nodiscard]] bool mail_waits() noexcept;

  LocalClient& client_;
  const std::uint32_t device_;
  Scheduler scheduler_;
  Atomic<std::uint32_t> started_;
  std::array<Worker, kEngineMax> workers_;
  Mutex pending_mutex_;
  /// Completions on their way: a heap, the first one due on top.
  std::vector<Pending> pending_ HEADRACE_GUARDED_BY(pending_mutex_);
  Atomic<std::uint32_t> completer_bell_;
  std::optional<Runner> completer_;
  platform::QuietThread completer_thread_;
};

bool is_later(const Pending& one, const Pending& other) {
  return one.due_ns > other.due_ns;
}

std::uint64_t bytes_of(const Task& task) {
  std::uint64_t count = 0;
  if (task.kind == TaskKind::members) {
    for (std::uint32_t i = task.first; i < task.last; ++i) {
      const dsa::Descriptor& one = task.batch->descriptors[i];
      count += one.opcode == 0 ? 0 : one.xfer_size;
    }
  } else if (task.kind == TaskKind::single && task.slot.descriptor.opcode != 0) {
    count = task.slot.descriptor.xfer_size;
  }
  return count;
}

void Workshop::help() noexcept {
  // edge: emu-doorbell (acq_rel)
  const std::uint32_t word = bell().fetch_add_acq_rel(doorbell::kRing);
  if (doorbell::sleepers(word) != 0) {
    platform::wake(bell(), 1);
  } else {
    grow();
  }
}

void Workshop::run(Worker& worker, const Task& task) {
  // A worker that will be away for long leaves another one at the door.
  const bool away = bytes_of(task) > kBriefBytes || client_.registers_.faults.rule_count != 0 ||
                    client_.registers_.pace.latency_ns != 0 ||
                    client_.registers_.pace.bytes_per_second != 0;
  if (away) {
    // edge: emu-doorbell (acq_rel)
    const std::uint32_t word = bell().fetch_sub_acq_rel(doorbell::kAttentive);
    if (doorbell::attentive(word) == 1) {
      if (task.more || scheduler_.has_queued()) {
        help();
      } else if (doorbell::sleepers(word) == 0) {
        grow();
      }
    }
  }
  worker.runner->begin(task);
  while (!worker.runner->advance(nullptr)) {
  }
  if (const auto pending = worker.runner->take_pending()) postpone(*pending);
  if (away) bell().fetch_add_acq_rel(doorbell::kAttentive);  // edge: emu-doorbell (acq_rel)
}

void Workshop::postpone(const Pending& pending) {
  {
    const Lock lock(pending_mutex_);
    pending_.push_back(pending);
    std::push_heap(pending_.begin(), pending_.end(), is_later);
  }
  ring_completer();
}

void Workshop::complete(const Pending& pending) noexcept {
  Atomic<std::uint32_t>& completing = client_.place().completing;
  completing.fetch_add_acq_rel(1);  // edge: emu-completing (acq_rel)
  completer_->complete(pending);
  completing.fetch_sub_acq_rel(1);  // edge: emu-completing (acq_rel)
  // What waited for it is ready now: a drain, a fence, the rest of a batch.
  announce();
}

std::optional<Pending> Workshop::take_due(std::chrono::nanoseconds& wait) {
  const Lock lock(pending_mutex_);
  wait = kIdleSleep;
  if (pending_.empty()) return std::nullopt;
  const std::uint64_t now = platform::now_ns();
  const std::uint64_t due_ns = pending_.front().due_ns;
  if (now + kSoonNs >= due_ns && !scheduler_.halted()) {
    std::pop_heap(pending_.begin(), pending_.end(), is_later);
  } else {
    // Slept in pieces, so that a reset is not kept waiting: what is stale is due at once.
    wait = 1ms;
    if (now + kSoonNs < due_ns)
      wait = std::min(wait, std::chrono::nanoseconds(due_ns - now - kSoonNs));
    const auto stale = std::find_if(pending_.begin(), pending_.end(), [this](const Pending& one) {
      return scheduler_.stale(one.task.queue, one.task.slot.generation);
    });
    if (stale == pending_.end()) return std::nullopt;
    stale->due_ns = now;
    std::swap(*stale, pending_.back());
    std::make_heap(pending_.begin(), pending_.end() - 1, is_later);
  }
  const Pending taken = pending_.back();
  pending_.pop_back();
  return taken;
}

void Workshop::complete_all() {
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

void Workshop::await_engine() {
  DeviceRegisters& device = scheduler_.device();
  // edge: emu-released (acquire)
  const std::uint32_t released = device.released.load_acquire();
  device.waiter_count.fetch_add_relaxed(1);  // the wait is bounded: a lost wake costs 2 ms
  platform::sleep_on(device.released, released, kEngineWait);
  device.waiter_count.fetch_sub_relaxed(1);  // as above
}

bool Workshop::turn_is_over(Worker& worker, std::uint32_t queue) {
  if (scheduler_.device().waiter_count.load_relaxed() == 0) return false;  // a hint
  const std::uint64_t now = platform::now_ns();
  // Its turn counts from when somebody was first seen to wait.
  if (worker.held_since_ns == 0) worker.held_since_ns = now;
  return scheduler_.should_yield(worker.engine_held, queue, now - worker.held_since_ns);
}

bool Workshop::mail_waits() noexcept {
  const MailboxRegisters& mailbox = client_.place().mailbox;
  // edge: emu-mailbox (acquire)
  return mailbox.state.load_acquire() == MailboxRegisters::posted &&
         mailbox.device.load_relaxed() == device_;  // published by the state
}

void Workshop::work(Worker& worker) {
  if (client_.deterministic()) {
    serve_mail_only();
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
        await_engine();
      }
      continue;
    }
    const bool held = worker.engine_held != kEngineMax;
    scheduler_.release_engine(worker.engine_held);
    if (engine_wanted) {
      if (held) continue;  // One of another group may be free.
      const std::uint64_t now = platform::now_ns();
      if (waiting_since == 0) waiting_since = now;
      if (now - waiting_since > kHolderPatienceNs) {
        scheduler_.recover_engines();
        waiting_since = now;
      }
      await_engine();
      continue;
    }
    // What becomes ready without a push is taken by the worker that made it so.
    while (++spins < kSpinMax && !scheduler_.has_queued() && !mail_waits()) platform::pause();
    if (spins < kSpinMax) continue;
    // To sleep: say so, then look once more.
    // edge: emu-doorbell (acq_rel)
    const std::uint32_t change = doorbell::kSleeper - doorbell::kAttentive;
    const std::uint32_t word = bell().fetch_add_acq_rel(change) + change;
    task = scheduler_.take(worker.engine_held, engine_wanted, nullptr);
    const bool nothing = task.kind == TaskKind::none && !engine_wanted && !mail_waits();
    const bool leave = nothing && scheduler_.abandoned() && scheduler_.idle();
    if (nothing && !leave) {
      platform::sleep_on(bell(), word, scheduler_.abandoned() ? 1ms : kIdleSleep);
    }
    bell().fetch_sub_acq_rel(change);  // edge: emu-doorbell (acq_rel)
    if (leave) return;
    spins = 0;
    if (task.kind != TaskKind::none) run(worker, task);
  }
}

void Workshop::serve_mail_only() {
  while (!scheduler_.abandoned()) {
    // edge: emu-doorbell (acq_rel)
    const std::uint32_t change = doorbell::kSleeper - doorbell::kAttentive;
    const std::uint32_t word = bell().fetch_add_acq_rel(change) + change;
    if (!mail_waits() && !scheduler_.abandoned()) platform::sleep_on(bell(), word, kIdleSleep);
    bell().fetch_sub_acq_rel(change);  // edge: emu-doorbell (acq_rel)
    if (!mail_waits()) continue;
    client_.serve_mailbox(device_);
    client_.run_until_idle();
  }
}

bool Workshop::step(Random& chance) {
  // Either an engine that is busy goes on, or one that is not begins something: both are tried in
  // an order that chance gives.
  std::array<std::uint32_t, kEngineMax> order{0, 1, 2, 3};
  for (std::uint32_t i = kEngineMax; i > 1; --i) std::swap(order[i - 1], order[chance.below(i)]);
  for (const std::uint32_t index : order) {
    Worker& worker = workers_[index];
    if (!worker.runner->busy()) {
      bool engine_wanted = false;
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

LocalClient::LocalClient(Registers& registers, Owner owner, Memory& memory, ClientOptions options)
    : registers_(registers),
      owner_(owner),
      surroundings_{
          registers, owner, memory, std::move(options.trace), std::move(options.interrupt), {}},
      chance_(registers.seed) {
  const std::uint32_t device_count = count_devices(registers);
  for (std::uint32_t d = 0; d < device_count; ++d) {
    workshops_.push_back(std::make_unique<Workshop>(*this, d));
  }
}

LocalClient::~LocalClient() {
  if (forgotten_) {
    for (auto& workshop : workshops_) workshop->forget();
    return;
  }
  for (auto& workshop : workshops_) workshop->stop();
  for (auto& workshop : workshops_) workshop->abort_all();
  free_place(registers_, owner_, false);
}

void LocalClient::start() {
  // Deterministic: only for programs that know nothing of steps, and then for what they write().
  if (deterministic() && !registers_.run_in_submission) return;
  for (auto& workshop : workshops_) {
    if (workshop->has_workers()) continue;
    // Without it nothing would complete: then nothing runs, as without workers.
    const bool paced = registers_.pace.latency_ns != 0 && !deterministic();
    if (!paced || workshop->start_completer()) workshop->grow();
  }
}

LocalClient::Taken LocalClient::submit(std::uint32_t d, std::uint32_t q,
                                       const dsa::Descriptor& descriptor, dsa::QueueMode mode,
                                       Origin origin, MailboxRegisters* mailbox) noexcept {
  DeviceRegisters& device = registers_.devices[d];
  QueueRegisters& queue = device.queues[q];
  const PhaseWord phase = load_phase(queue.phase);
  if (phase.phase() != static_cast<std::uint32_t>(QueuePhase::enabled) ||
      load_phase(device.phase).phase() != static_cast<std::uint32_t>(DevicePhase::enabled)) {
    return Taken::refused;
  }
  // Relaxed: published by the phase.
  if (queue.mode.load_relaxed() != static_cast<std::uint32_t>(mode)) return Taken::refused;
  if (registers_.faults.rule_count != 0 &&
      injects_queue_full(registers_, d, q, static_cast<std::uint8_t>(descriptor.opcode))) {
    return Taken::full;
  }
  const std::uint32_t limit = mode == dsa::QueueMode::shared ? queue.threshold.load_relaxed()
                                                             : queue.entry_count.load_relaxed();
  std::uint32_t entry = 0;
  for (;; ++entry) {
    if (entry >= limit) return Taken::full;
    Owner expected = queue.entries[entry].load_relaxed();  // the exchange decides
    if (expected != kNobody) continue;
    // edge: emu-entry (acq_rel)
    if (queue.entries[entry].compare_exchange_acq_rel(expected, owner_)) break;
  }
  // A read-modify-write, not a load: either it comes before the change of phase, then whoever
  // changed it sees our entry, or it sees the change.
  // edge: emu-phase (acq_rel)
  if (queue.phase.fetch_add_acq_rel(0) != phase.bits) {
    Owner expected = owner_;
    // edge: emu-entry (acq_rel)
    queue.entries[entry].compare_exchange_acq_rel(expected, kNobody);
    return Taken::refused;
  }
  count_max(queue.occupancy_max, entry + 1);
  Slot slot;
  slot.descriptor = descriptor;
  slot.sequence = queue.accepted_count.fetch_add_relaxed(1);  // a number, no order
  slot.generation = phase.generation();
  slot.origin = origin;
  slot.mailbox = mailbox;
  trace(TraceKind::submitted, d, q, slot.sequence, descriptor);
  workshops_[d]->scheduler().push(q, entry, slot);
  workshops_[d]->announce();
  return Taken::accepted;
}

void LocalClient::trace(TraceKind kind, std::uint32_t device, std::uint32_t queue,
                        std::uint64_t sequence, const dsa::Descriptor& descriptor) noexcept {
  if (!surroundings_.trace) return;
  surroundings_.tell({.kind = kind,
                      .device = device,
                      .queue = queue,
                      .engine = 0,
                      .sequence = sequence,
                      .index = 0,
                      .opcode = static_cast<std::uint8_t>(descriptor.opcode),
                      .raw_status = 0,
                      .byte_count = descriptor.xfer_size});
}

bool LocalClient::enqueue(DeviceId device, QueueId queue,
                          const dsa::Descriptor& descriptor) noexcept {
  const Taken taken = submit(device.value(), queue.value(), descriptor, dsa::QueueMode::shared,
                             Origin::portal, nullptr);
  if (taken != Taken::accepted) {
    QueueRegisters& registers = registers_.devices[device.value()].queues[queue.value()];
    registers.retried_count.fetch_add_relaxed(1);  // a statistic
    trace(TraceKind::retried, device.value(), queue.value(), 0, descriptor);
    return false;
  }
  if (registers_.run_in_submission && deterministic()) run_until_idle();
  return true;
}

void LocalClient::store(DeviceId device, QueueId queue,
                        const dsa::Descriptor& descriptor) noexcept {
  const Taken taken = submit(device.value(), queue.value(), descriptor, dsa::QueueMode::dedicated,
                             Origin::portal, nullptr);
  if (taken == Taken::accepted) {
    if (registers_.run_in_submission && deterministic()) run_until_idle();
    return;
  }
  DeviceRegisters& registers = registers_.devices[device.value()];
  registers.queues[queue.value()].dropped_count.fetch_add_relaxed(1);  // a statistic
  trace(TraceKind::dropped, device.value(), queue.value(), 0, descriptor);
  report_error(registers, taken == Taken::full ? kErrorQueueFull : kErrorQueueNotEnabled,
               queue.value(), static_cast<std::uint8_t>(descriptor.opcode), 0);
}

void LocalClient::serve_mailbox(std::uint32_t device) noexcept {
  MailboxRegisters& mailbox = place().mailbox;
  std::uint32_t state = MailboxRegisters::posted;
  // edge: emu-mailbox (acq_rel)
  if (!mailbox.state.compare_exchange_acq_rel(state, MailboxRegisters::running)) return;
  // Relaxed: published by the state.
  const std::uint32_t queue = mailbox.queue.load_relaxed();
  std::array<std::uint64_t, 8> words{};
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = mailbox.descriptor[i].load_relaxed();
  dsa::Descriptor descriptor;
  std::memcpy(&descriptor, words.data(), sizeof words);
  QueueRegisters& registers = registers_.devices[device].queues[queue];
  const auto mode = static_cast<dsa::QueueMode>(registers.mode.load_relaxed());  // as above
  // It may have been for the former holder of this place, whose addresses are none of ours.
  const bool for_us = mailbox.owner.load_relaxed() == owner_;
  const Taken taken = for_us
                          ? submit(device, queue, descriptor, mode, Origin::kernel_write, &mailbox)
                          : Taken::refused;
  if (taken == Taken::accepted) {
    registers.written_count.fetch_add_relaxed(1);  // a statistic
    return;
  }
  state = MailboxRegisters::running;
  const std::uint32_t then =
      taken == Taken::full ? MailboxRegisters::posted : MailboxRegisters::refused;
  // edge: emu-mailbox (acq_rel)
  if (!mailbox.state.compare_exchange_acq_rel(state, then)) {
    state = MailboxRegisters::left;
    mailbox.state.compare_exchange_acq_rel(state, MailboxRegisters::free);
  }
  platform::wake(mailbox.state, kClientMax);
}

bool LocalClient::step() {
  const Lock lock(step_mutex_);
  registers_.step_count.fetch_add_relaxed(1);  // one thread runs
  std::size_t first = static_cast<std::size_t>(chance_.below(workshops_.size()));
  for (std::size_t i = 0; i < workshops_.size(); ++i) {
    if (workshops_[(first + i) % workshops_.size()]->step(chance_)) return true;
  }
  return false;
}

void LocalClient::run_until_idle() {
  while (step()) {
  }
}

/// One attaches at a time in a process. No mutex: a child forked meanwhile would find it held by a
/// thread that it does not have. The word names the process, so that such a child takes it over.
///
/// Threading: owned.
class AttachLock {
 public:
  AttachLock() : own_(platform::this_process_id()) {
    std::int32_t found = 0;
    // edge: emu-attach (acq_rel)
    while (!holder_.compare_exchange_acq_rel(found, own_)) {
      if (found != own_) continue;  // Nobody's, or the parent's: the exchange takes it.
      platform::yield();
      found = 0;
    }
  }
  AttachLock(const AttachLock&) = delete;
  AttachLock& operator=(const AttachLock&) = delete;
  ~AttachLock() { holder_.store_release(0); }  // edge: emu-attach (release)

 private:
  inline static constinit Atomic<std::int32_t> holder_;
  const std::int32_t own_;
};

/// A number of this run of this program; another one after exec.
std::uint64_t this_image() {
  static const std::uint64_t kImage = platform::now_ns();
  return kImage;
}

/// What this process held before it executed another program: nobody will finish it.
void forget_former_images(Registers& registers, std::int32_t process_id, std::uint64_t started) {
  for (std::uint32_t index = 0; index < kClientMax; ++index) {
    ClientRegisters& client = registers.clients[index];
    // edge: emu-client (acquire)
    const PlaceWord place{client.place.load_acquire()};
    if (place.bits != PlaceWord::make(process_id, started, place.incarnation()).bits) continue;
    if (client.image.load_relaxed() == this_image()) continue;  // written by this process only
    free_place(registers, owner_of(index, place.incarnation()), true);
  }
}

}  // namespace

Result<std::unique_ptr<Client>> Client::attach(std::span<std::byte> memory, Memory& client_memory,
                                               ClientOptions options) {
  auto opened = open_registers(memory);
  if (!opened) return fail(opened.error());
  Registers& registers = **opened;
  const std::int32_t process_id = platform::this_process_id();
  const std::uint64_t started = platform::start_time(process_id);
  const AttachLock lock;
  forget_former_images(registers, process_id, started);
  reap_clients(registers);
  for (std::uint32_t index = 0; index < kClientMax; ++index) {
    ClientRegisters& client = registers.clients[index];
    std::uint64_t found = client.place.load_relaxed();  // the exchange decides
    const PlaceWord former{found};
    if (former.taken()) continue;
    const PlaceWord own = PlaceWord::make(process_id, started, former.incarnation() + 1);
    // edge: emu-client (acq_rel)
    if (!client.place.compare_exchange_acq_rel(found, own.bits)) continue;
    // Relaxed: nobody rings or posts before it is known that somebody is here.
    for (Atomic<std::uint32_t>& bell : client.doorbells) bell.store_relaxed(0);
    client.mailbox.state.store_relaxed(MailboxRegisters::free);
    client.completing.store_relaxed(0);
    client.image.store_relaxed(this_image());     // read by this process only
    registers.client_count.fetch_add_relaxed(1);  // a statistic
    return std::make_unique<LocalClient>(registers, owner_of(index, own.incarnation()),
                                         client_memory, std::move(options));
  }
  return fail(Code::capacity_exceeded, "attach to the emulated devices",
              "all " + std::to_string(kClientMax) + " places for processes are taken",
              "end some of the processes");
}

void Client::forget_after_fork(std::unique_ptr<Client>&& client) noexcept {
  const std::unique_ptr<Client> own = std::move(client);
  if (own) static_cast<LocalClient&>(*own).forget();
}

}  // namespace headrace::emu
