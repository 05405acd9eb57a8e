// SPDX-License-Identifier: Apache-2.0
#include "emu/device/runner.hpp"

#include <algorithm>
#include <cstring>

#include "emu/operation/rules.hpp"
#include "emu/platform/process.hpp"
#include "emu/platform/wait.hpp"

namespace headrace::emu {
namespace {

constexpr std::size_t kSliceBytes = 256 << 10;
constexpr std::size_t kSmallSliceBytes = 4 << 10;
/// Delays sleep in pieces, so that a reset takes effect soon.
constexpr std::chrono::nanoseconds kPiece = std::chrono::milliseconds(1);
/// Typical wake-up latency of the system: the rest is spun.
constexpr std::uint64_t kLateNs = 60'000;
constexpr std::uint64_t kNsPerStep = 1'000;

bool is_success(const dsa::CompletionRecord& record) {
  return record.status == static_cast<std::uint8_t>(dsa::Status::success);
}

std::uint8_t raw(dsa::Status status) {
  return static_cast<std::uint8_t>(status);
}

/// Faults on operands, the list of a batch or the readback address; with the device's page request
/// refused, or without one.
bool is_page_fault(dsa::Status status) {
  return status == dsa::Status::page_fault || status == dsa::Status::page_fault_refused ||
         status == dsa::Status::batch_page_fault || status == dsa::Status::readback_page_fault;
}

}  // namespace

void Context::tell(TraceEvent event) {
  if (!trace) return;
  const Lock lock(trace_mutex);
  event.time = trace_time(registers, run_options);
  event.in_steps = run_options.deterministic();
  event.numa_node = registers.devices[event.device].numa_node.load_relaxed();
  if (!event.in_steps && event.kind != TraceKind::control) {
    event.process_id = platform::this_process_id();
  }
  trace(event);
}

void Runner::begin(const Task& task) {
  task_ = task;
  index_ = task.first;
  outcome_ = {};
  started_ = false;
  begun_ns_ = platform::now_ns();
  // Traced here, not with the first slice: a WQ is FIFO, and the trace shows that.
  if (task_.kind != TaskKind::members) trace(TraceKind::started, 0, descriptor().xfer_size);
}

const dsa::Descriptor& Runner::descriptor() const {
  return task_.kind == TaskKind::members ? task_.batch->descriptors[index_] : task_.slot.descriptor;
}

EngineRegisters* Runner::engine_registers() const {
  return task_.engine < kEngineMax ? &scheduler_->device().engines[task_.engine] : nullptr;
}

Limits Runner::load_limits() const {
  const QueueRegisters& queue = scheduler_->device().queues[task_.queue];
  // Relaxed: constant while the WQ is enabled; stale descriptors are aborted whatever the limits.
  Limits limits;
  limits.transfer_bytes_max = queue.transfer_bytes_max.load_relaxed();
  limits.batch_max = queue.batch_max.load_relaxed();
  limits.block_on_fault = queue.block_on_fault.load_relaxed() != 0;
  limits.fill_16 = false;  // DSA 1.0 has no such capability.
  limits.opcodes_low = queue.opcodes_low.load_relaxed();
  return limits;
}

bool Runner::must_abort() const {
  return scheduler_->stale(task_.queue, task_.slot.generation);
}

bool Runner::wait(std::uint64_t until, Random* chance) {
  if (chance != nullptr) {
    return context_->step_count >= until;
  }
  const std::uint64_t now = platform::now_ns();
  if (now >= until) return true;
  const std::uint64_t left = until - now;
  if (left <= kLateNs) {
    while (platform::now_ns() < until) platform::pause();
    return true;
  }
  const auto piece = std::min(std::chrono::nanoseconds(left - kLateNs), kPiece);
  const Atomic<std::uint32_t>& word = scheduler_->device().released;
  platform::sleep_on(word, word.load_relaxed(), piece);  // for the time, not for the word
  return false;
}

bool Runner::advance(Random* chance) {
  if (scheduler_->halted()) {
    // Nothing completes. The doorbell rings when that changes; until then poll rarely.
    if (chance == nullptr) {
      const Atomic<std::uint32_t>& word = scheduler_->device().released;
      platform::sleep_on(word, word.load_relaxed(), kPiece);  // for the time, not for the word
    }
    return false;
  }
  if (!advance_descriptor(chance)) return false;
  if (pending_) return true;
  if (task_.kind == TaskKind::members && index_ != task_.last) return false;
  end_task(outcome_);
  return true;
}

bool Runner::advance_descriptor(Random* chance) {
  if (!started_) {
    start_descriptor();
    if (injection_.halt) return false;  // Continues only after a reset.
  }
  if (injection_.delay_ns != 0 && !record_) {
    held_until_ = chance != nullptr ? context_->step_count + 1 +
                                          chance->below(1 + injection_.delay_ns / kNsPerStep)
                                    : platform::now_ns() + injection_.delay_ns;
    injection_.delay_ns = 0;
  }
  if (held_until_ != 0) {
    if (!must_abort() && !wait(held_until_, chance)) return false;
    held_until_ = 0;
  }
  if (!record_ && !run_slice(chance)) return false;
  if (task_.kind == TaskKind::list && record_->status == 0) return true;  // Continues as members.
  const Pace& pace = context_->run_options.pace;
  if (!paced_ && context_->run_options.paced() && chance == nullptr) {
    paced_ = true;
    const std::uint64_t now = platform::now_ns();
    std::uint64_t until = now;
    if (pace.bytes_per_second != 0 && operation_) {
      const auto carry_ns =
          static_cast<std::uint64_t>(static_cast<double>(operation_->bytes_total()) * 1e9 /
                                     static_cast<double>(pace.bytes_per_second));
      Atomic<std::uint64_t>& carried = scheduler_->device().carried_until_ns;
      std::uint64_t found = carried.load_relaxed();  // the exchange decides
      // The backlog of other engines is at most one descriptor each.
      const auto others_ns = static_cast<std::uint64_t>(kEngineMax * 0x1p32 * 1e9 /
                                                        static_cast<double>(pace.bytes_per_second));
      do {
        until = std::clamp(found, begun_ns_, now + others_ns) + carry_ns;
      } while (!carried.compare_exchange_relaxed(found, until));  // a measure
    }
    // The engine is busy while it moves the bytes, but not during the latency.
    held_until_ = until;
    if (!must_abort() && !wait(held_until_, chance)) return false;
    held_until_ = 0;
  }
  if (operation_) {
    bytes_read_ = operation_->bytes_read();
    bytes_written_ = operation_->bytes_written();
  }
  if (pace.latency_ns != 0 && chance == nullptr && !must_abort()) {
    postpone(pace.latency_ns);
    return true;
  }
  end_descriptor();
  return true;
}

void Runner::postpone(std::uint64_t latency_ns) {
  pending_ = Pending{.task = task_,
                     .record = *record_,
                     .bytes_read = bytes_read_,
                     .bytes_written = bytes_written_,
                     .lost = injection_.lost_completion,
                     .due_ns = platform::now_ns() + latency_ns};
  started_ = false;
  end_turn();
  task_.kind = TaskKind::none;
}

void Runner::complete(const Pending& pending) {
  task_ = pending.task;
  index_ = task_.first;
  outcome_ = {};
  record_ = pending.record;
  bytes_read_ = pending.bytes_read;
  bytes_written_ = pending.bytes_written;
  injection_ = {};
  injection_.lost_completion = pending.lost;
  if (must_abort()) record_->status = dsa::kStatusAborted;
  end_descriptor();
  // That turn of the engine ended long ago.
  begun_ns_ = 0;
  end_task(outcome_);
}

void Runner::end_turn() {
  EngineRegisters* engine = engine_registers();
  if (engine == nullptr || begun_ns_ == 0) return;
  engine->busy_ns.add(platform::now_ns() - begun_ns_);
  engine->turn.fetch_add_acq_rel(1);  // edge: emu-turn (acq_rel)
}

void Runner::start_descriptor() {
  started_ = true;
  paced_ = false;
  operation_.reset();
  record_.reset();
  bytes_read_ = bytes_written_ = 0;
  done_bytes_ = 0;
  held_until_ = 0;
  injection_ = {};
  limits_ = load_limits();
  if (task_.kind == TaskKind::members) trace(TraceKind::started, 0, descriptor().xfer_size);
  if (must_abort()) {
    if (task_.kind == TaskKind::list) {
      // Its members have records too, which a client may wait for.
      if (refuse(descriptor(), limits_, task_.slot.origin)) {
        end_with(dsa::kStatusAborted);
      } else {
        fetch_list();
      }
    } else {
      end_with(dsa::kStatusAborted);
    }
    return;
  }
  if (context_->run_options.faults.rule_count != 0) {
    const std::uint32_t device = scheduler_->device_index();
    injection_ = faults_for(context_->run_options, context_->registers, device, task_.queue,
                            static_cast<std::uint8_t>(descriptor().opcode), false);
    if (injection_.halt) {
      halt_device(context_->registers, device);
      context_->tell(
          {.kind = TraceKind::control, .device = device, .command = DeviceCommand::halt});
    }
    if (injection_.reset) {
      reset_device(context_->registers, device);
      context_->tell(
          {.kind = TraceKind::control, .device = device, .command = DeviceCommand::reset});
    }
  }
  const Origin origin = task_.kind == TaskKind::members ? Origin::batch : task_.slot.origin;
  if (auto refused = refuse(descriptor(), limits_, origin)) {
    record_ = *refused;
    return;
  }
  if (task_.kind == TaskKind::list) {
    if (injection_.status) {
      end_with(injection_.status->raw_status);
    } else {
      fetch_list();
    }
  } else if (descriptor().opcode != static_cast<std::uint8_t>(dsa::Opcode::drain)) {
    operation_.emplace(descriptor(), limits_);
  }
}

void Runner::end_with(std::uint8_t raw_status) {
  if (operation_) {
    operation_->end_with_status(raw_status);
    record_ = operation_->record();
  } else {
    record_.emplace();
    record_->status = raw_status;
  }
}

bool Runner::run_slice(Random* chance) {
  if (must_abort()) {
    end_with(dsa::kStatusAborted);
    return true;
  }
  if (!operation_) {  // A drain is chosen only once everything before it has ended.
    end_with(injection_.status ? injection_.status->raw_status : raw(dsa::Status::success));
    return true;
  }
  std::size_t slice = chance == nullptr ? kSliceBytes : kSmallSliceBytes * (1 + chance->below(4));
  const auto stop_at = [&](const std::optional<FaultRule>& rule) {
    if (rule) {
      slice = std::min<std::size_t>(
          slice, std::max<std::uint64_t>(1, rule->at_byte - std::min(rule->at_byte, done_bytes_)));
    }
  };
  if (injection_.status && done_bytes_ >= injection_.status->at_byte) {
    end_with(injection_.status->raw_status);
    return true;
  }
  if (injection_.page_fault && done_bytes_ >= injection_.page_fault->at_byte) {
    const FaultRule rule = *injection_.page_fault;
    injection_.page_fault.reset();
    trace(TraceKind::faulted, raw(dsa::Status::page_fault),
          static_cast<std::uint32_t>(done_bytes_));
    if ((descriptor().flags & dsa::flag::block_on_fault) != 0 && limits_.block_on_fault) {
      // The engine, and everything behind it, waits until the page is present.
      injection_.delay_ns = std::max<std::uint64_t>(rule.delay_ns, 1);
      return false;
    }
    const Address base = rule.write ? descriptor().dst_addr : descriptor().src_addr;
    operation_->end_with_fault({base + done_bytes_, rule.write});
    record_ = operation_->record();
    return true;
  }
  stop_at(injection_.status);
  stop_at(injection_.page_fault);
  if (!operation_->advance(context_->memory, slice)) {
    done_bytes_ += slice;
    return false;
  }
  record_ = operation_->record();
  return true;
}

void Runner::fetch_list() {
  Batch& batch = *task_.batch;
  const dsa::Descriptor& list = task_.slot.descriptor;
  std::size_t wanted = std::min<std::size_t>(list.desc_count, kBatchMax);
  std::optional<Fault> injected;
  if (const auto& rule = injection_.page_fault) {
    // A batch's bytes are those of its list. An offset beyond the list causes no fault.
    const std::uint64_t whole = rule->at_byte / sizeof(dsa::Descriptor);
    if (whole < wanted) {
      wanted = static_cast<std::size_t>(whole);
      injected = Fault{list.desc_list_addr + rule->at_byte, false};
      trace(TraceKind::faulted, raw(dsa::Status::page_fault),
            static_cast<std::uint32_t>(rule->at_byte));
    }
  }
  const auto into = std::as_writable_bytes(batch.descriptors.first(wanted));
  const Reach reach = context_->memory.read(into, list.desc_list_addr, PageFaults::resolve);
  batch.fetched_count = static_cast<std::uint32_t>(reach.byte_count / sizeof(dsa::Descriptor));
  batch.list_fault = reach.fault ? reach.fault : injected;
  record_.emplace();  // Status 0: nothing to report yet.
  trace(TraceKind::fetched, 0, batch.fetched_count);
}

void Runner::count(const dsa::CompletionRecord& record) {
  EngineRegisters* engine = engine_registers();
  const std::uint8_t status = record.status;
  const std::uint8_t opcode = static_cast<std::uint8_t>(descriptor().opcode);
  // Relaxed: statistics.
  if (status == dsa::kStatusAborted) {
    scheduler_->device().queues[task_.queue].aborted_count.add(1);
  }
  if (engine == nullptr) return;
  scheduler_->device().operations_by_opcode[opcode % kOpcodeMax].add(1);
  engine->descriptor_count.add(1);
  if ((descriptor().flags & dsa::flag::cache_control) != 0) {
    engine->cache_control_count.add(1);
  }
  if (bytes_read_ + bytes_written_ != 0) {
    engine->bytes_read.add(bytes_read_);
    engine->bytes_written.add(bytes_written_);
  }
  if (is_success(record) || status == raw(dsa::Status::success_unexpected)) return;
  // A failed batch only reports that one of its descriptors failed, which is counted, or had an
  // unexpected result.
  if (dsa::status_of(status) == dsa::Status::batch_failed) return;
  if (status != dsa::kStatusAborted && is_page_fault(dsa::status_of(status))) {
    engine->page_fault_count.add(1);
  } else {
    engine->error_count.add(1);
  }
}

void Runner::trace(TraceKind kind, std::uint8_t raw_status, std::uint32_t byte_count) {
  if (!context_->trace) return;
  const bool is_member = task_.kind == TaskKind::members;
  context_->tell({.kind = kind,
                  .device = scheduler_->device_index(),
                  .queue = task_.queue,
                  .engine = task_.engine,
                  .sequence = task_.slot.sequence,
                  .index = is_member ? index_ + 1 : 0,
                  .fenced = is_member && (descriptor().flags & dsa::flag::fence) != 0,
                  .opcode = static_cast<std::uint8_t>(descriptor().opcode),
                  .raw_status = raw_status,
                  .byte_count = byte_count});
}

void Runner::release_entry(std::uint32_t queue, std::uint32_t entry) noexcept {
  DeviceRegisters& device = scheduler_->device();
  device.queues[queue].entries.give_back(entry, context_->owner);
  if (device.waiter_count.load_relaxed() != 0) notify_release(device);  // a hint
}

void Runner::write_record(const dsa::Descriptor& descriptor, const dsa::CompletionRecord& record) {
  const bool wanted = (descriptor.flags & dsa::flag::record_address_valid) != 0 &&
                      ((descriptor.flags & dsa::flag::request_record) != 0 || !is_success(record));
  const bool bad = !is_success(record) && record.status != raw(dsa::Status::success_unexpected) &&
                   record.status != dsa::kStatusAborted;
  // A record must not cross a line: if misaligned it is not written. [I]
  const bool aligned = descriptor.completion_addr % rules::kRecordAlignment == 0;
  bool written = false;
  if (wanted && aligned) {
    std::array<std::byte, 32> bytes{};
    std::memcpy(bytes.data(), &record, sizeof bytes);
    written = !context_->memory.write_record(descriptor.completion_addr, bytes).fault;
  }
  if (!written && (wanted || bad)) {
    // Cannot be reported in a record: SWERROR reports it to the driver. [S]
    const std::uint8_t unwritten =
        raw(aligned ? dsa::Status::record_untranslatable : dsa::Status::record_misaligned);
    report_error(scheduler_->device(),
                 wanted ? unwritten : static_cast<std::uint8_t>(record.status), task_.queue,
                 static_cast<std::uint8_t>(descriptor.opcode), descriptor.completion_addr);
  }
  if ((descriptor.flags & dsa::flag::request_interrupt) != 0 && context_->interrupt) {
    context_->interrupt(descriptor.int_handle);
  }
}

void Runner::end_descriptor() {
  started_ = false;
  const dsa::CompletionRecord record = *record_;
  count(record);
  trace(record.status == dsa::kStatusAborted ? TraceKind::aborted : TraceKind::finished,
        record.status, record.bytes_completed);
  outcome_.failed = outcome_.failed || !is_success(record);
  outcome_.aborted = outcome_.aborted || record.status == dsa::kStatusAborted;
  // Release the entry first: a client that counts credits by its completions submits as soon as it
  // sees the record, and must not find the WQ full.
  if (task_.kind != TaskKind::members) release_entry(task_.queue, task_.entry);
  if (!injection_.lost_completion) write_record(descriptor(), record);
  if (task_.kind == TaskKind::members) ++index_;
}

void Runner::end_task(Outcome outcome) {
  Batch* ended = nullptr;
  if (task_.kind == TaskKind::list && record_->status != 0) {
    // Refused as a whole.
    scheduler_->finish_batch(*task_.batch);
  } else {
    started_ = false;
    ended = scheduler_->finish(task_, outcome);
  }
  if (ended != nullptr) end_batch(*ended);
  end_turn();
  task_.kind = TaskKind::none;
}

void Runner::end_batch(Batch& batch) {
  dsa::CompletionRecord record{};
  const bool aborted = batch.aborted || scheduler_->stale(batch.queue, batch.slot.generation);
  record.status = raw(dsa::Status::success);
  if (batch.failed) record.status = raw(dsa::Status::batch_failed);
  if (batch.list_fault) {
    record.status = raw(dsa::Status::batch_page_fault);
    record.fault_addr = batch.list_fault->address;
  }
  if (aborted) record.status = dsa::kStatusAborted;
  // Descriptors processed, not those that succeeded. [T]
  record.bytes_completed = batch.finished_count;
  task_.kind = TaskKind::list;
  task_.queue = batch.queue;
  task_.slot = batch.slot;
  operation_.reset();
  bytes_read_ = bytes_written_ = 0;
  count(record);
  if (EngineRegisters* engine = engine_registers()) {
    engine->batch_count.add(1);
  }
  trace(aborted ? TraceKind::aborted : TraceKind::finished, record.status, batch.finished_count);
  release_entry(batch.queue, batch.entry);
  write_record(batch.slot.descriptor, record);
  scheduler_->finish_batch(batch);
}

}  // namespace headrace::emu
