// SPDX-License-Identifier: Apache-2.0
#include "emu/device/scheduler.hpp"

#include <algorithm>

#include "emu/platform/wait.hpp"

namespace headrace::emu {
namespace {

/// Cost of a descriptor for its WQ: its bytes, or this constant for one without.
constexpr std::uint64_t kCostOfOne = 1024;
/// Members of a batch are taken together up to this many bytes: large ones spread over the engines,
/// small ones do not cost a lock each.
constexpr std::uint64_t kBytesAtOnce = 64 << 10;
/// How far a WQ may run ahead of a waiting one before the engine changes hands.
constexpr std::uint64_t kAheadMax = 4 << 20;
/// A larger lead over the WQ served last is impossible: a stray write.
constexpr std::uint64_t kLeadMax = 1ULL << 40U;
constexpr std::uint32_t kPriorityMax = 15;
/// How long a client may keep an engine that another one wants.
constexpr std::uint64_t kTurnNs = 1'000'000;

std::uint64_t bytes_of(const dsa::Descriptor& descriptor) {
  switch (static_cast<dsa::Opcode>(descriptor.opcode)) {
    case dsa::Opcode::noop:
    case dsa::Opcode::batch:
    case dsa::Opcode::drain:
      return 0;
    default:
      return descriptor.xfer_size;
  }
}

bool is(const dsa::Descriptor& descriptor, dsa::Opcode opcode) {
  return descriptor.opcode == static_cast<std::uint8_t>(opcode);
}

}  // namespace

Scheduler::Scheduler(Registers& registers, const RunOptions& run_options, std::uint32_t device,
                     Owner owner)
    : registers_(registers),
      device_(registers.devices[device]),
      device_index_(device),
      owner_(owner),
      one_at_a_time_(run_options.pace.latency_ns != 0),
      slots_(std::make_unique_for_overwrite<Slots>()),
      lists_(std::make_unique_for_overwrite<Lists>()) {
  batches_.reserve(kBatchActiveMax);
  for (auto& list : *lists_) batches_.emplace_back(list);
}

bool Scheduler::reserve(std::uint32_t queue, std::uint32_t entry) noexcept {
  std::uint32_t expected = 0;
  return reserved_[queue][entry].compare_exchange_acq_rel(expected, 1);  // edge: emu-slot (acq_rel)
}

void Scheduler::cancel(std::uint32_t queue, std::uint32_t entry) noexcept {
  reserved_[queue][entry].store_release(0);  // edge: emu-slot (release)
}

void Scheduler::push(std::uint32_t queue, std::uint32_t entry, const Slot& slot) noexcept {
  (*slots_)[queue][entry] = slot;
  rings_[queue].push(entry);
}

bool Scheduler::has_queued() const noexcept {
  return std::ranges::any_of(rings_, &EntryRing<kEntryMax>::has_queued);
}

std::uint32_t Scheduler::takeable(const Batch& batch) const {
  if (!batch.active || !batch.listed) return 0;
  std::uint32_t count = 0;
  std::uint64_t byte_count = 0;
  const std::uint32_t left = batch.run_count - batch.taken_count;
  // Half of the rest, to leave some for other engines.
  const std::uint32_t count_max = one_at_a_time_ ? 1U : std::clamp(left / 2, 1U, kMembersAtOnceMax);
  while (count < std::min(left, count_max)) {
    const dsa::Descriptor& next = batch.descriptors[batch.taken_count + count];
    // A fence waits until all earlier descriptors have ended. [S]
    if ((next.flags & dsa::flag::fence) != 0 &&
        (count != 0 || batch.finished_count != batch.taken_count)) {
      break;
    }
    byte_count += bytes_of(next);
    if (count != 0 && byte_count > kBytesAtOnce) break;
    ++count;
  }
  return count;
}

std::optional<Scheduler::Candidate> Scheduler::candidate(std::uint32_t queue) {
  // Members of active batches first: they are older than entries in the ring.
  Batch* oldest = nullptr;
  if (active_counts_[queue] != 0) {
    for (Batch& batch : batches_) {
      if (!batch.active || batch.queue != queue || takeable(batch) == 0) continue;
      if (oldest == nullptr || batch.slot.sequence < oldest->slot.sequence) oldest = &batch;
    }
  }
  if (oldest != nullptr) {
    return Candidate{queue, oldest, 0, stale(queue, oldest->slot.generation)};
  }
  const std::optional<std::uint32_t> entry = rings_[queue].front();
  if (!entry) return std::nullopt;
  const Slot& slot = (*slots_)[queue][*entry];
  // A drain stays at the head until all earlier descriptors of this client in this WQ have ended;
  // later ones wait too, which the rules allow. [S]
  if (is(slot.descriptor, dsa::Opcode::drain) && unfinished_[queue] != 0) return std::nullopt;
  if (is(slot.descriptor, dsa::Opcode::batch) && active_count_ == kBatchActiveMax)
    return std::nullopt;
  return Candidate{queue, nullptr, *entry, stale(queue, slot.generation)};
}

bool Scheduler::claim_engine(std::uint32_t group, std::uint32_t& engine_held) noexcept {
  // Relaxed: constant while the device is enabled.
  if (engine_held != kEngineMax) {
    return device_.engines[engine_held].group.load_relaxed() == group;
  }
  for (std::uint32_t index = 0; index < kEngineMax; ++index) {
    EngineRegisters& engine = device_.engines[index];
    if (engine.group.load_relaxed() != group) continue;
    Owner expected = engine.holder.load_relaxed();  // the exchange decides
    if (expected != kNobody) continue;
    // edge: emu-engine (acq_rel)
    if (engine.holder.compare_exchange_acq_rel(expected, owner_)) {
      engine_held = index;
      return true;
    }
  }
  return false;
}

void Scheduler::release_engine(std::uint32_t& engine_held) noexcept {
  if (engine_held == kEngineMax) return;
  Owner expected = owner_;
  // Another client may have taken the engine while this process was stopped.
  // edge: emu-engine (acq_rel)
  device_.engines[engine_held].holder.compare_exchange_acq_rel(expected, kNobody);
  engine_held = kEngineMax;
  notify_release(device_);
}

void Scheduler::recover_engines() noexcept {
  reap_clients(registers_);
  for (EngineRegisters& engine : device_.engines) {
    Owner holder = engine.holder.load_relaxed();  // the exchange decides
    if (holder == kNobody || holder == owner_) continue;
    if (life_of(registers_, holder) != platform::Life::stopped) continue;
    // When the holder resumes, it finishes its descriptor concurrently: briefly more concurrency
    // than engines, nothing worse.
    // edge: emu-engine (acq_rel)
    if (engine.holder.compare_exchange_acq_rel(holder, kNobody)) notify_release(device_);
  }
}

bool Scheduler::should_yield(std::uint32_t engine, std::uint32_t queue,
                             std::uint64_t held_ns) const noexcept {
  if (device_.waiter_count.load_relaxed() == 0) return false;                // a hint
  const std::uint32_t group = device_.engines[engine].group.load_relaxed();  // fixed while enabled
  const std::uint64_t own = device_.queues[queue].virtual_time.load_relaxed();  // a measure
  for (const QueueRegisters& other : device_.queues) {
    if (other.group.load_relaxed() != group) continue;  // fixed while enabled
    // Relaxed: a measure.
    if (held_ns < kTurnNs && other.virtual_time.load_relaxed() + kAheadMax > own) continue;
    if (other.entries.any_but(owner_)) return true;
  }
  return false;
}

void Scheduler::charge(std::uint32_t queue, std::uint64_t cost) noexcept {
  QueueRegisters& registers = device_.queues[queue];
  // Relaxed throughout: fairness over many descriptors needs no order between two.
  const std::uint64_t priority = priority_of(queue);
  const std::uint32_t group = registers.group.load_relaxed();
  const std::uint64_t now = time_of(queue);
  std::uint64_t base = now;
  if (group < kGroupMax) {
    // An idle WQ does not accumulate credit.
    const std::uint64_t clock = device_.group_time[group].load_relaxed();
    base = std::max(now, clock - std::min(clock, kAheadMax));
    if (now > clock) device_.group_time[group].store_relaxed(now);
  }
  const std::uint64_t cost_now = base - now + cost / priority;
  std::uint64_t found = registers.virtual_time.load_relaxed();
  if (found - now > kLeadMax) {
    registers.virtual_time.compare_exchange_relaxed(found, now + cost_now);
  } else {
    registers.virtual_time.fetch_add_relaxed(cost_now);
  }
}

std::uint32_t Scheduler::priority_of(std::uint32_t queue) const noexcept {
  // Relaxed: fixed while the WQ is enabled.
  return std::clamp(device_.queues[queue].priority.load_relaxed(), 1U, kPriorityMax);
}

std::uint64_t Scheduler::time_of(std::uint32_t queue) const noexcept {
  // Relaxed: a measure.
  const std::uint64_t time = device_.queues[queue].virtual_time.load_relaxed();
  const std::uint32_t group = device_.queues[queue].group.load_relaxed();
  if (group >= kGroupMax) return time;
  // No descriptor costs this much: a stray write, which would starve the WQ.
  const std::uint64_t clock = device_.group_time[group].load_relaxed();
  return time > clock && time - clock > kLeadMax ? clock : time;
}

Task Scheduler::take_members(Batch& batch, std::uint32_t engine) {
  Task task;
  task.kind = TaskKind::members;
  task.queue = batch.queue;
  task.entry = batch.entry;
  task.engine = engine;
  task.batch = &batch;
  task.first = batch.taken_count;
  task.last = task.first + takeable(batch);
  task.slot.sequence = batch.slot.sequence;
  task.slot.generation = batch.slot.generation;
  batch.taken_count = task.last;
  for (std::uint32_t i = task.first; i < task.last; ++i) {
    task.byte_count += bytes_of(batch.descriptors[i]);
  }
  charge(task.queue, kCostOfOne * (task.last - task.first) + task.byte_count);
  return task;
}

Task Scheduler::start(const Candidate& chosen, std::uint32_t engine) {
  if (chosen.batch != nullptr) return take_members(*chosen.batch, engine);
  rings_[chosen.queue].pop();
  ++unfinished_[chosen.queue];
  Task task;
  task.queue = chosen.queue;
  task.entry = chosen.head_entry;
  task.engine = engine;
  task.slot = (*slots_)[chosen.queue][chosen.head_entry];
  reserved_[chosen.queue][chosen.head_entry].store_release(0);  // edge: emu-slot (release)
  task.kind = TaskKind::single;
  if (is(task.slot.descriptor, dsa::Opcode::batch)) {
    task.kind = TaskKind::list;
    ++active_counts_[task.queue];
    ++active_count_;
    task.batch = &*std::ranges::find(batches_, false, &Batch::active);
    Batch& batch = *task.batch;
    batch = Batch(batch.descriptors);
    batch.active = true;
    batch.queue = task.queue;
    batch.entry = task.entry;
    batch.slot = task.slot;
  }
  task.byte_count = bytes_of(task.slot.descriptor);
  charge(task.queue, kCostOfOne + task.byte_count);
  return task;
}

Task Scheduler::take(std::uint32_t& engine_held, bool& engine_wanted, Random* choice) {
  engine_wanted = false;
  if (halted()) return {};
  const Lock lock(mutex_);
  std::array<Candidate, kQueueMax> found;
  std::uint32_t count = 0;
  for (std::uint32_t queue = 0; queue < kQueueMax; ++queue) {
    if (auto one = candidate(queue)) found[count++] = *one;
  }
  while (count != 0) {
    const std::uint32_t next = choose(std::span(found).first(count), choice);
    const Candidate chosen = found[next];
    // Relaxed: constant while the WQ is enabled, and irrelevant if stale.
    const std::uint32_t group = device_.queues[chosen.queue].group.load_relaxed();
    const bool engine = claim_engine(group, engine_held);
    if (engine || chosen.stale) {
      Task task = start(chosen, engine ? engine_held : kEngineMax);
      task.more = count > 1 || candidate(chosen.queue).has_value();
      return task;
    }
    engine_wanted = true;
    found[next] = found[--count];
  }
  return {};
}

std::uint32_t Scheduler::choose(std::span<const Candidate> from, Random* choice) const {
  std::uint32_t best = 0;
  if (choice != nullptr) {
    // Each is read once: they may change concurrently.
    std::array<std::uint64_t, kQueueMax> weights{};
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < from.size(); ++i) sum += weights[i] = priority_of(from[i].queue);
    std::uint64_t at = choice->below(sum);
    while (at >= weights[best]) at -= weights[best++];
    return best;
  }
  for (std::uint32_t i = 1; i < from.size(); ++i) {
    if (time_of(from[i].queue) < time_of(from[best].queue)) best = i;
  }
  return best;
}

bool Scheduler::abandoned() const noexcept {
  return abandoned_.load_acquire() != 0;  // edge: emu-abandon (acquire)
}

bool Scheduler::stale(std::uint32_t queue, std::uint64_t generation) const noexcept {
  return load_phase(device_.queues[queue].phase).generation() != generation || abandoned();
}

bool Scheduler::halted() const noexcept {
  return load_phase(device_.phase).phase() == static_cast<std::uint32_t>(DevicePhase::halted) &&
         !abandoned();
}

Batch* Scheduler::finish(const Task& task, Outcome outcome) {
  const Lock lock(mutex_);
  if (task.kind == TaskKind::single) {
    --unfinished_[task.queue];
    return nullptr;
  }
  Batch& batch = *task.batch;
  if (task.kind == TaskKind::list) {
    batch.listed = true;
    batch.run_count = batch.fetched_count;
  } else {
    batch.finished_count += task.last - task.first;
  }
  batch.failed = batch.failed || outcome.failed;
  batch.aborted = batch.aborted || outcome.aborted;
  if (batch.failed && batch.finished_count == batch.taken_count &&
      batch.taken_count < batch.run_count &&
      (batch.descriptors[batch.taken_count].flags & dsa::flag::fence) != 0 && !batch.aborted) {
    // A fence after a failure: the rest of the batch does not run. [S]
    batch.run_count = batch.taken_count;
  }
  return batch.finished_count == batch.run_count ? &batch : nullptr;
}

void Scheduler::finish_batch(Batch& batch) {
  const Lock lock(mutex_);
  --unfinished_[batch.queue];
  --active_counts_[batch.queue];
  --active_count_;
  batch.active = false;
}

bool Scheduler::idle() {
  const Lock lock(mutex_);
  for (std::uint32_t queue = 0; queue < kQueueMax; ++queue) {
    if (unfinished_[queue] != 0) return false;
  }
  return !has_queued();
}

}  // namespace headrace::emu
