// SPDX-License-Identifier: Apache-2.0
// A process's connection to the devices: attach, submit, detach.
#include <algorithm>

#include "emu/device/client.hpp"
#include "emu/device/thread_pool.hpp"
#include "emu/platform/process.hpp"
#include "emu/platform/wait.hpp"

namespace headrace::emu {
namespace {

/// Serialises attach within a process. Not a mutex: a child forked meanwhile would find it locked
/// by a thread that does not exist there. The word holds the process number, so that such a child
/// can take it over.
///
/// Threading: owned.
class AttachLock {
 public:
  AttachLock() : own_(platform::this_process_id()) {
    std::int32_t found = 0;
    // edge: emu-attach (acq_rel)
    while (!holder_.compare_exchange_acq_rel(found, own_)) {
      if (found != own_) continue;  // Free, or left by the parent: the exchange takes it.
      platform::yield();
      found = 0;
    }
  }
  AttachLock& operator=(AttachLock&&) = delete;
  ~AttachLock() { holder_.store_release(0); }  // edge: emu-attach (release)

 private:
  inline static constinit Atomic<std::int32_t> holder_;
  const std::int32_t own_;
};

/// Identifies this run of this program; changes with exec.
std::uint64_t this_image() {
  static const std::uint64_t kImage = platform::now_ns();
  return kImage;
}

/// Frees what this process held before exec: no engine will finish it.
void forget_former_images(Registers& registers, std::int32_t process_id) {
  std::uint64_t started = 0;
  for (std::uint32_t index = 0; index < kClientMax; ++index) {
    ClientRegisters& client = registers.clients[index];
    // edge: emu-client (acquire)
    const PlaceWord place{client.place.load_acquire()};
    if (place.process_id() != process_id) continue;
    if (started == 0) started = platform::start_time(process_id);
    if (place.bits != PlaceWord::make(process_id, started, place.incarnation()).bits) continue;
    if (client.image.load_relaxed() == this_image()) continue;  // written by this process only
    free_place(registers, owner_of(index, place.incarnation()), true);
  }
}

/// Counts a submission to a WQ that was full or not enabled.
void count_refused(Registers& registers, std::uint32_t device_index, std::uint32_t queue,
                   const dsa::Descriptor& descriptor, dsa::QueueMode mode, bool full) noexcept {
  DeviceRegisters& device = registers.devices[device_index];
  if (mode == dsa::QueueMode::shared) {
    device.queues[queue].retried_count.add(1);
    return;
  }
  device.queues[queue].dropped_count.add(1);
  report_error(device, full ? kErrorQueueFull : kErrorQueueNotEnabled, queue,
               static_cast<std::uint8_t>(descriptor.opcode), 0);
}

}  // namespace

Client::Client(const OpenRegisters& opened, Owner owner, Memory& memory, ClientOptions options)
    : registers_(*opened.registers),
      owner_(owner),
      context_{registers_, opened.run_options,       owner,
               memory,     std::move(options.trace), std::move(options.interrupt),
               {}},
      chance_(opened.run_options.seed) {
  const std::uint32_t device_count = count_devices(registers_);
  for (std::uint32_t d = 0; d < device_count; ++d) {
    thread_pools_.push_back(std::make_unique<ThreadPool>(*this, d));
  }
}

Client::~Client() {
  for (auto& thread_pool : thread_pools_) thread_pool->stop();
  for (auto& thread_pool : thread_pools_) thread_pool->abort_all();
  free_place(registers_, owner_, false);
}

Result<void> Client::start() {
  // Deterministic: only for programs that do not call step(), and then only for their write()s.
  if (run_options().deterministic() && !run_options().run_in_submission) return {};
  for (auto& thread_pool : thread_pools_) {
    if (auto started = thread_pool->start(); !started) return started;
  }
  return {};
}

Client::Taken Client::take(std::uint32_t d, std::uint32_t q, const dsa::Descriptor& descriptor,
                           dsa::QueueMode mode, Origin origin) noexcept {
  if (d >= thread_pools_.size() || q >= kQueueMax) return Taken::refused;
  DeviceRegisters& device = registers_.devices[d];
  QueueRegisters& queue = device.queues[q];
  const PhaseWord phase = load_phase(queue.phase);
  if (phase.phase() != bits_of(QueuePhase::enabled) || phase_of(device) != DevicePhase::enabled) {
    return Taken::refused;
  }
  // Relaxed: published by the phase.
  if (queue.mode.load_relaxed() != static_cast<std::uint32_t>(mode)) return Taken::refused;
  if (run_options().faults.rule_count != 0 &&
      faults_for(run_options(), registers_, d, q, static_cast<std::uint8_t>(descriptor.opcode),
                 true)
          .queue_full) {
    return Taken::full;
  }
  const std::uint32_t limit =
      std::min(mode == dsa::QueueMode::shared ? queue.threshold.load_relaxed()
                                              : queue.entry_count.load_relaxed(),
               kEntryMax);
  Scheduler& scheduler = thread_pools_[d]->scheduler();
  std::uint32_t entry = 0;
  using Claim = decltype(queue.entries)::Claim;
  const Claim claim = queue.entries.claim(
      queue.phase, phase, limit, owner_, entry,
      [&](std::uint32_t e) { return scheduler.reserve(q, e); },
      [&](std::uint32_t e) { scheduler.cancel(q, e); });
  if (claim != Claim::taken) return claim == Claim::full ? Taken::full : Taken::refused;
  std::uint32_t uncounted = 0;
  if (counted_.load_relaxed() == 0 && counted_.compare_exchange_relaxed(uncounted, 1)) {
    registers_.client_count.add(1);
  }
  count_max(queue.entry_top, entry + 1);
  // Counted only if it could be a new maximum: occupancy never exceeds the highest entry.
  if (queue.entry_top.load_relaxed() > queue.occupancy_max.load_relaxed()) {  // statistics
    count_max(queue.occupancy_max, queue.entries.occupancy());
  }
  Slot slot;
  slot.descriptor = descriptor;
  slot.sequence = queue.accepted_count.fetch_add_relaxed(1);  // a number, no order
  slot.generation = phase.generation();
  slot.origin = origin;
  trace(TraceKind::submitted, d, q, slot.sequence, descriptor);
  scheduler.push(q, entry, slot);
  // Deterministic: runs in submit(), or in the caller's steps.
  if (!run_options().deterministic()) thread_pools_[d]->notify();
  return Taken::accepted;
}

void Client::trace(TraceKind kind, std::uint32_t device, std::uint32_t queue,
                   std::uint64_t sequence, const dsa::Descriptor& descriptor) noexcept {
  if (!context_.trace) return;
  context_.tell({.kind = kind,
                 .device = device,
                 .queue = queue,
                 .sequence = sequence,
                 .opcode = static_cast<std::uint8_t>(descriptor.opcode),
                 .byte_count = descriptor.xfer_size});
}

void Client::refuse(std::uint32_t device, std::uint32_t queue, const dsa::Descriptor& descriptor,
                    dsa::QueueMode mode, bool full) noexcept {
  count_refused(registers_, device, queue, descriptor, mode, full);
  const bool shared = mode == dsa::QueueMode::shared;
  trace(shared ? TraceKind::retried : TraceKind::dropped, device, queue, 0, descriptor);
}

bool Client::submit(DeviceId device, QueueId queue, const dsa::Descriptor& descriptor,
                    dsa::QueueMode mode) noexcept {
  const Taken taken = take(device.value(), queue.value(), descriptor, mode, Origin::portal);
  if (taken != Taken::accepted) {
    refuse(device.value(), queue.value(), descriptor, mode, taken == Taken::full);
    return false;
  }
  if (run_options().run_in_submission && run_options().deterministic()) run_until_idle();
  return true;
}

Client::Taken Client::write(std::uint32_t device, std::uint32_t queue,
                            const dsa::Descriptor& descriptor) noexcept {
  QueueRegisters& registers = registers_.devices[device].queues[queue];
  // Relaxed: take() checks the phase and then the mode again; write_retries is independent.
  const auto mode = static_cast<dsa::QueueMode>(registers.mode.load_relaxed());
  // Another client may have overwritten the register.
  std::uint32_t retries = mode == dsa::QueueMode::shared
                              ? std::min(registers.write_retries.load_relaxed(), kWriteRetriesMax)
                              : 0;
  while (true) {
    const Taken taken = take(device, queue, descriptor, mode, Origin::kernel_write);
    if (taken == Taken::accepted) registers.written_count.add(1);
    if (taken != Taken::full) return taken;
    refuse(device, queue, descriptor, mode, true);
    if (retries-- == 0) return Taken::full;
    platform::pause();
  }
}

bool Client::step(ThreadPool*& blocked) {
  registers_.step_count.fetch_add_relaxed(1);  // one thread runs
  ++context_.step_count;
  std::size_t first = static_cast<std::size_t>(chance_.below(thread_pools_.size()));
  for (std::size_t i = 0; i < thread_pools_.size(); ++i) {
    ThreadPool& thread_pool = *thread_pools_[(first + i) % thread_pools_.size()];
    bool engine_wanted = false;
    if (thread_pool.step(chance_, engine_wanted)) return true;
    if (engine_wanted) blocked = &thread_pool;
  }
  return false;
}

bool Client::step() {
  const Lock lock(step_mutex_);
  ThreadPool* blocked = nullptr;
  return step(blocked);
}

void Client::run_steps(bool only_if_ready) {
  std::uint64_t waiting_since = 0;
  while (true) {
    ThreadPool* blocked = nullptr;
    {
      const Lock lock(step_mutex_);
      if (only_if_ready && std::ranges::none_of(thread_pools_, &ThreadPool::is_ready)) return;
      if (step(blocked)) {
        waiting_since = 0;
        continue;
      }
    }
    // Only a submitter takes steps, and this one may be the last of its process: what another
    // process has kept from an engine is not left behind.
    if (blocked == nullptr || !run_options().run_in_submission) return;
    blocked->await_engine(waiting_since);
  }
}

Result<std::unique_ptr<Client>> Client::attach(std::span<std::byte> memory, Memory& client_memory,
                                               ClientOptions options) {
  HEADRACE_TAKE(opened, open_registers(memory));
  Registers& registers = *opened->registers;
  const std::int32_t process_id = platform::this_process_id();
  const std::uint64_t started = platform::start_time(process_id);
  const AttachLock lock;
  forget_former_images(registers, process_id);
  reap_clients(registers);
  for (std::uint32_t index = 0; index < kClientMax; ++index) {
    ClientRegisters& client = registers.clients[index];
    std::uint64_t found = client.place.load_relaxed();  // the exchange decides
    const PlaceWord former{found};
    if (former.taken()) continue;
    const PlaceWord own = PlaceWord::make(process_id, started, former.incarnation() + 1);
    // edge: emu-client (acq_rel)
    if (!client.place.compare_exchange_acq_rel(found, own.bits)) continue;
    // Relaxed: published by `ready`.
    for (Atomic<std::uint32_t>& bell : client.doorbells) bell.store_relaxed(0);
    client.mailbox.state.store_relaxed(MailboxRegisters::free);
    client.completing.store_relaxed(0);
    client.image.store_relaxed(this_image());  // read by this process only
    // edge: emu-ready (release)
    client.ready.store_release(owner_of(index, own.incarnation()));
    return std::unique_ptr<Client>(
        new Client(*opened, owner_of(index, own.incarnation()), client_memory, std::move(options)));
  }
  return fail(Code::capacity_exceeded, "attach to the emulated devices",
              "all " + std::to_string(kClientMax) + " places for processes are taken",
              "end some of the processes");
}

void Client::begin_program(std::span<std::byte> memory) noexcept {
  forget_former_images(*reinterpret_cast<Registers*>(memory.data()), platform::this_process_id());
}

void Client::refuse(std::span<std::byte> memory, DeviceId device, QueueId queue,
                    const dsa::Descriptor& descriptor, dsa::QueueMode mode) noexcept {
  count_refused(*reinterpret_cast<Registers*>(memory.data()), device.value(), queue.value(),
                descriptor, mode, false);
}

}  // namespace headrace::emu
