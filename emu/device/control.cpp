// SPDX-License-Identifier: Apache-2.0
// The driver's commands. The rules are idxd's (drivers/dma/idxd/{device,sysfs}.c) as far as clients
// can see them.
#include <linux/idxd.h>

#include <new>

#include "emu/device/registers.hpp"
#include "emu/platform/wait.hpp"

namespace headrace::emu {
namespace {

using std::chrono::nanoseconds;
constexpr nanoseconds kAbortMax = std::chrono::seconds(2);

/// The driver refuses: stores its cmd_status code for sysfs and returns it in os_errno.
Failure refuse(DeviceRegisters& device, idxd_scmd_stat status, Code code, std::string tried,
               std::string cause, std::string remedy) {
  device.command_status.store_relaxed(static_cast<std::uint32_t>(status));  // for a reader only
  return fail(code, std::move(tried), std::move(cause), std::move(remedy),
              static_cast<int>(static_cast<std::uint32_t>(status)));
}

void store_config(QueueRegisters& queue, const QueueConfig& config) {
  // Relaxed: published by the phase that enables the WQ.
  queue.group.store_relaxed(config.group);
  queue.mode.store_relaxed(static_cast<std::uint32_t>(config.mode));
  queue.entry_count.store_relaxed(config.size);
  queue.threshold.store_relaxed(config.threshold);
  queue.priority.store_relaxed(config.priority);
  queue.batch_max.store_relaxed(config.batch_max);
  queue.transfer_bytes_max.store_relaxed(config.transfer_bytes_max);
  queue.block_on_fault.store_relaxed(config.block_on_fault ? 1 : 0);
  queue.opcodes_low.store_relaxed(config.op_config[0]);
}

}  // namespace

Control::Control(Registers& registers, const RunOptions& run_options)
    : registers_(&registers),
      device_count_(count_devices(registers)),
      deterministic_(run_options.deterministic()) {}

Result<Control> Control::create(std::span<std::byte> memory, const EmulatorConfig& config) {
  const std::string tried = "lay out the registers of the emulated devices";
  if (memory.size() < sizeof(Registers) ||
      reinterpret_cast<std::uintptr_t>(memory.data()) % alignof(Registers) != 0) {
    return fail(Code::invalid_argument, tried, "the memory is too short or not aligned",
                "give registers_bytes() bytes at a multiple of 64");
  }
  if (config.devices.empty() || config.devices.size() > kDeviceMax) {
    return fail(Code::invalid_argument, tried,
                std::to_string(config.devices.size()) + " devices were asked for",
                "ask for 1 to " + std::to_string(kDeviceMax));
  }
  auto* registers = new (memory.data()) Registers;
  // Relaxed: `magic` publishes everything.
  registers->version.store_relaxed(kRegistersVersion);
  registers->device_count.store_relaxed(static_cast<std::uint32_t>(config.devices.size()));
  registers->byte_count = sizeof(Registers);
  registers->run_options = static_cast<const RunOptions&>(config);
  registers->options_hash = hash_of(registers->run_options);
  Control control(*registers, registers->run_options);
  for (std::uint32_t d = 0; d < config.devices.size(); ++d) {
    HEADRACE_TRY_WITHIN(tried, control.configure(DeviceId(d), config.devices[d]));
  }
  registers->magic.store_release(kRegistersMagic);  // edge: emu-registers (release)
  return control;
}

Result<Control> Control::open(std::span<std::byte> memory) {
  HEADRACE_TAKE(opened, open_registers(memory));
  return Control(*opened->registers, opened->run_options);
}

std::uint32_t Control::device_count() const {
  return device_count_;
}

DeviceConfig Control::config(DeviceId device) const {
  const Lock lock(configs_->mutex);
  DeviceConfig config = configs_->devices[device.value()];
  for (std::size_t q = 0; q < kQueueMax; ++q) {
    // Relaxed: independent of the other fields.
    config.queues[q].write_retries =
        registers_->devices[device.value()].queues[q].write_retries.load_relaxed();
  }
  return config;
}

Result<void> Control::configure(DeviceId device, const DeviceConfig& config) {
  const std::string tried = "configure " + device_name(device);
  HEADRACE_TRY_WITHIN(tried, check(config));
  DeviceRegisters& into = registers_->devices[device.value()];
  const DeviceConfig former = this->config(device);
  const bool enabled = phase_of(into) != DevicePhase::disabled;
  if (enabled && former.engine_groups != config.engine_groups) {
    return refuse(into, IDXD_SCMD_DEV_ENABLED, Code::permission_denied, tried,
                  "engines cannot change their group while the device is enabled",
                  "disable the device first");
  }
  for (std::uint32_t q = 0; q < kQueueMax; ++q) {
    const QueuePhase phase = phase_of(into.queues[q]);
    if (phase != QueuePhase::disabled && former.queues[q] != config.queues[q]) {
      return refuse(into, IDXD_SCMD_WQ_ENABLED, Code::permission_denied, tried,
                    queue_name(device, QueueId(q)) + " is enabled", "disable it first");
    }
    if (enabled && (former.queues[q].size != config.queues[q].size ||
                    former.queues[q].group != config.queues[q].group)) {
      return refuse(into, IDXD_SCMD_DEV_ENABLED, Code::permission_denied, tried,
                    queue_name(device, QueueId(q)) +
                        " cannot change its size or group while the device is enabled",
                    "disable the device first");
    }
  }
  for (std::size_t q = 0; q < kQueueMax; ++q) {
    if (former.queues[q] != config.queues[q]) store_config(into.queues[q], config.queues[q]);
  }
  // Relaxed: published by the phase of the device.
  for (std::size_t e = 0; e < kEngineMax; ++e) {
    into.engines[e].group.store_relaxed(config.engine_groups[e]);
  }
  into.numa_node.store_relaxed(config.numa_node);
  const Lock lock(configs_->mutex);
  configs_->devices[device.value()] = config;
  return {};
}

void Control::set_write_retries(DeviceId device, QueueId queue, std::uint32_t count) {
  // Relaxed: independent; a concurrent write() uses the old or the new count.
  registers_->devices[device.value()].queues[queue.value()].write_retries.store_relaxed(count);
}

Result<void> Control::enable_device(DeviceId device) {
  const std::string tried = "enable " + device_name(device);
  DeviceRegisters& registers = registers_->devices[device.value()];
  clear_command_status(device);
  if (phase_of(registers) != DevicePhase::disabled) {
    return refuse(registers, IDXD_SCMD_DEV_ENABLED, Code::invalid_argument, tried,
                  "it is enabled already", "disable it first");
  }
  bool any = false;
  for (const QueueConfig& queue : config(device).queues) {
    if (queue.size == 0) continue;
    any = true;
    if (queue.group == kNoGroup) {
      return refuse(registers, IDXD_SCMD_WQ_NO_GRP, Code::invalid_argument, tried,
                    "a WQ with entries has no group", "give its group_id");
    }
  }
  if (!any) {
    return refuse(registers, IDXD_SCMD_WQ_NONE_CONFIGURED, Code::invalid_argument, tried,
                  "no WQ has entries", "give at least one WQ a size");
  }
  change_phase(registers.phase, bits_of(DevicePhase::enabled), true);
  tell(DeviceCommand::enable_device, device);
  return {};
}

Result<void> Control::disable_device(DeviceId device) {
  DeviceRegisters& registers = registers_->devices[device.value()];
  clear_command_status(device);
  if (phase_of(registers) == DevicePhase::disabled) {
    return refuse(registers, IDXD_SCMD_DEV_NOT_ENABLED, Code::invalid_argument,
                  "disable " + device_name(device), "it is not enabled", "enable it first");
  }
  for (QueueRegisters& queue : registers.queues) {
    change_phase(queue.phase, bits_of(QueuePhase::disabled), true);
  }
  change_phase(registers.phase, bits_of(DevicePhase::disabled), true);
  tell(DeviceCommand::disable_device, device);
  ring_all(*registers_, device.value());
  static_cast<void>(await_queues(registers, kAbortMax, ~0U));
  for (QueueRegisters& queue : registers.queues)
    queue.virtual_time.store_relaxed(0);  // none queued
  DeviceConfig cleared = config(device);
  cleared.queues = {};
  cleared.engine_groups = DeviceConfig{}.engine_groups;
  return configure(device, cleared);
}

Result<void> Control::enable_queue(DeviceId device, QueueId queue) {
  const std::string tried = "enable " + queue_name(device, queue);
  DeviceRegisters& registers = registers_->devices[device.value()];
  QueueRegisters& into = registers.queues[queue.value()];
  clear_command_status(device);
  const auto refused = [&](std::uint32_t status, const char* cause, const std::string& remedy) {
    return refuse(registers, static_cast<idxd_scmd_stat>(status), Code::invalid_argument, tried,
                  cause, remedy);
  };
  if (phase_of(registers) != DevicePhase::enabled) {
    return refused(IDXD_SCMD_DEV_NOT_ENABLED, "its device is not enabled",
                   "enable the device first");
  }
  if (phase_of(into) != QueuePhase::disabled) {
    return refused(IDXD_SCMD_WQ_ENABLED, "it is enabled already", "disable it first");
  }
  if (const auto lack = lack_of(config(device).queues[queue.value()])) {
    return refused(lack->status, lack->cause, lack->remedy);
  }
  // Clients that left entries while the WQ was disabled must not hold entries of the new
  // generation.
  reap_clients(*registers_);
  change_phase(into.phase, bits_of(QueuePhase::enabled), true);
  tell(DeviceCommand::enable_queue, device, queue);
  return {};
}

Result<void> Control::disable_queue(DeviceId device, QueueId queue, nanoseconds wait_max) {
  DeviceRegisters& registers = registers_->devices[device.value()];
  QueueRegisters& into = registers.queues[queue.value()];
  clear_command_status(device);
  if (phase_of(into) != QueuePhase::enabled) {
    return refuse(registers, IDXD_SCMD_DEV_NOT_ENABLED, Code::invalid_argument,
                  "disable " + queue_name(device, queue), "it is not enabled", "enable it first");
  }
  change_phase(into.phase, bits_of(QueuePhase::draining), false);
  const std::uint32_t mask = 1U << queue.value();
  const bool drained = await_queues(registers, wait_max, mask);
  change_phase(into.phase, bits_of(QueuePhase::disabled), true);
  tell(DeviceCommand::disable_queue, device, queue);
  ring_all(*registers_, device.value());
  if (!drained) static_cast<void>(await_queues(registers, kAbortMax, mask));
  return {};
}

void Control::reset(DeviceId device) {
  reset_device(*registers_, device.value());
  tell(DeviceCommand::reset, device);
  static_cast<void>(await_queues(registers_->devices[device.value()], kAbortMax, ~0U));
}

void Control::halt(DeviceId device) {
  halt_device(*registers_, device.value());
  tell(DeviceCommand::halt, device);
}

void Control::tell(DeviceCommand command, DeviceId device, QueueId queue) const {
  if (!options_.trace) return;
  options_.trace({.kind = TraceKind::control,
                  .device = device.value(),
                  .numa_node = registers_->devices[device.value()].numa_node.load_relaxed(),
                  .queue = queue.value(),
                  .time = deterministic_ ? registers_->step_count.load_relaxed()  // one thread runs
                                         : platform::now_ns(),
                  .in_steps = deterministic_,
                  .command = command});
}

DevicePhase Control::phase(DeviceId device) const {
  return phase_of(registers_->devices[device.value()]);
}

QueuePhase Control::phase(DeviceId device, QueueId queue) const {
  return phase_of(registers_->devices[device.value()].queues[queue.value()]);
}

std::uint32_t Control::occupancy(DeviceId device, QueueId queue) const {
  return registers_->devices[device.value()].queues[queue.value()].entries.occupancy();
}

std::uint32_t Control::client_count(DeviceId device, QueueId queue) const {
  // Relaxed: informational.
  return registers_->devices[device.value()].queues[queue.value()].open_count.load_relaxed();
}

std::uint32_t Control::command_status(DeviceId device) const {
  return registers_->devices[device.value()].command_status.load_relaxed();  // as above
}

std::array<std::uint64_t, 4> Control::error_registers(DeviceId device) const {
  std::array<std::uint64_t, 4> words{};
  for (std::size_t i = 0; i < words.size(); ++i) {
    // Relaxed: informational.
    words[i] = registers_->devices[device.value()].error_registers[i].load_relaxed();
  }
  return words;
}

bool Control::wait_for_error(DeviceId device, nanoseconds wait_max) const {
  const auto& has_error = registers_->devices[device.value()].has_error;
  // Relaxed: nothing else is read through it.
  if (has_error.load_relaxed() == 0) platform::sleep_on(has_error, 0, wait_max);
  return has_error.load_relaxed() != 0;
}

void Control::clear_command_status(DeviceId device) {
  registers_->devices[device.value()].command_status.store_relaxed(0);  // for a reader only
}

Statistics Control::statistics() const {
  Statistics statistics;
  // Relaxed: each figure is independent.
  statistics.client_count = registers_->client_count.value();
  statistics.lost_client_count = registers_->lost_client_count.value();
  for (std::uint32_t d = 0; d < device_count(); ++d) {
    const DeviceRegisters& device = registers_->devices[d];
    DeviceStatistics& into = statistics.devices.emplace_back();
    into.name = device_name(DeviceId(d));
    into.numa_node = device.numa_node.load_relaxed();
    for (std::uint32_t q = 0; q < kQueueMax; ++q) {
      const QueueRegisters& queue = device.queues[q];
      if (queue.entry_count.load_relaxed() == 0 && queue.accepted_count.load_relaxed() == 0) {
        continue;
      }
      into.queues.push_back(
          {.name = queue_name(DeviceId(d), QueueId(q)),
           .accepted_count = queue.accepted_count.load_relaxed(),
           .retried_count = queue.retried_count.value(),
           .dropped_count = queue.dropped_count.value(),
           .written_count = queue.written_count.value(),
           .occupancy_max = queue.occupancy_max.load_relaxed(),
           .aborted_count = queue.aborted_count.value(),
           .unfinished_count = queue.unfinished_count.value() + queue.entries.occupancy()});
    }
    for (std::uint32_t e = 0; e < kEngineMax; ++e) {
      const EngineRegisters& engine = device.engines[e];
      if (engine.group.load_relaxed() == kNoGroup && engine.descriptor_count.value() == 0) {
        continue;
      }
      into.engines.push_back({.name = "engine" + std::to_string(d) + "." + std::to_string(e),
                              .descriptor_count = engine.descriptor_count.value(),
                              .batch_count = engine.batch_count.value(),
                              .bytes_read = engine.bytes_read.value(),
                              .bytes_written = engine.bytes_written.value(),
                              .cache_control_count = engine.cache_control_count.value(),
                              .page_fault_count = engine.page_fault_count.value(),
                              .error_count = engine.error_count.value(),
                              .busy_ns = engine.busy_ns.value()});
    }
    for (std::size_t i = 0; i < kOpcodeMax; ++i) {
      into.operations_by_opcode[i] = device.operations_by_opcode[i].value();
    }
    into.injected_fault_count = device.injected_fault_count.value();
  }
  return statistics;
}

bool Control::open_queue(DeviceId device, QueueId queue) {
  QueueRegisters& registers = registers_->devices[device.value()].queues[queue.value()];
  std::uint32_t found = registers.open_count.load_relaxed();  // the exchange decides
  while (true) {
    const bool dedicated = registers.mode.load_relaxed() ==  // fixed while the WQ is enabled
                           static_cast<std::uint32_t>(dsa::QueueMode::dedicated);
    if (dedicated && found != 0) return false;
    if (registers.open_count.compare_exchange_relaxed(found, found + 1)) return true;  // a count
  }
}

void Control::release_queue(DeviceId device, QueueId queue) {
  // Relaxed: a count.
  registers_->devices[device.value()].queues[queue.value()].open_count.fetch_sub_relaxed(1);
}

std::size_t Control::reap() {
  return reap_clients(*registers_);
}

std::vector<std::int32_t> Control::client_processes() const {
  std::vector<std::int32_t> processes;
  for (const ClientRegisters& client : registers_->clients) {
    const PlaceWord place{client.place.load_relaxed()};  // a number; nothing else is read
    if (place.taken()) processes.push_back(place.process_id());
  }
  return processes;
}

bool Control::portal_is_open() const {
  for (std::uint32_t d = 0; d < device_count(); ++d) {
    for (std::uint32_t q = 0; q < kQueueMax; ++q) {
      if (client_count(DeviceId(d), QueueId(q)) != 0) return true;
    }
  }
  return false;
}

}  // namespace headrace::emu
