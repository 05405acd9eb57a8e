// SPDX-License-Identifier: Apache-2.0
#include "emu/device/registers.hpp"

#include <linux/idxd.h>

#include <algorithm>
#include <cstring>

#include "emu/platform/wait.hpp"

namespace headrace::emu {

std::size_t registers_bytes() {
  return sizeof(Registers);
}

std::uint64_t hash_of(const RunOptions& run_options) noexcept {
  // FNV-1a.
  const auto* bytes = reinterpret_cast<const unsigned char*>(&run_options);
  std::uint64_t hash = 0xcbf2'9ce4'8422'2325ULL;
  for (std::size_t i = 0; i < sizeof run_options; ++i)
    hash = (hash ^ bytes[i]) * 0x100'0000'01b3ULL;
  return hash;
}

namespace {

/// Whether what bounds or indexes anything is in range. The hash proves nothing: any client could
/// compute it.
bool in_range(const RunOptions& options) {
  const auto is_bool = [](const bool& value) {
    return *reinterpret_cast<const unsigned char*>(&value) <= 1;
  };
  return options.faults.rule_count <= kFaultRuleMax && is_bool(options.run_in_submission) &&
         std::ranges::all_of(options.faults.rules,
                             [&](const FaultRule& rule) { return is_bool(rule.write); });
}

}  // namespace

Result<OpenRegisters> open_registers(std::span<std::byte> memory) {
  const std::string tried = "open the registers of the emulated devices";
  if (memory.size() < sizeof(Registers)) {
    return fail(Code::corrupt_data, tried,
                "the memory has " + std::to_string(memory.size()) + " bytes, not " +
                    std::to_string(sizeof(Registers)),
                "start the program with 'headrace emulate' of the same version");
  }
  auto* registers = reinterpret_cast<Registers*>(memory.data());
  // edge: emu-registers (acquire)
  if (registers->magic.load_acquire() != kRegistersMagic) {
    return fail(Code::corrupt_data, tried, "they do not begin with the magic number",
                "start the program with 'headrace emulate'");
  }
  if (registers->version.load_relaxed() != kRegistersVersion ||  // published by `magic`
      registers->byte_count != sizeof(Registers)) {
    return fail(Code::version_mismatch, tried, "they were laid out by another version",
                "use the emulator and its preload of one installation");
  }
  OpenRegisters opened{.registers = registers, .run_options = {}};
  // Copy first, then verify, both as raw bytes: they may hold anything.
  std::memcpy(static_cast<void*>(&opened.run_options), &registers->run_options, sizeof(RunOptions));
  if (hash_of(opened.run_options) != registers->options_hash || !in_range(opened.run_options)) {
    return fail(Code::corrupt_data, tried, "a program has written over them",
                "restart all of them, and find the one with a stray write");
  }
  return opened;
}

std::uint64_t trace_time(const Registers& registers, const RunOptions& run_options) noexcept {
  return run_options.deterministic() ? registers.step_count.load_relaxed()  // one thread runs
                                     : platform::now_ns();
}

std::uint32_t count_devices(const Registers& registers) noexcept {
  return std::min(registers.device_count.load_relaxed(), kDeviceMax);  // fixed at creation
}

void ring(ClientRegisters& client, std::uint32_t device) noexcept {
  // edge: emu-idlebell (acq_rel)
  client.doorbells[device].fetch_add_acq_rel(1);
  platform::wake(client.doorbells[device], kEngineMax);
}

void ring_all(Registers& registers, std::uint32_t device) noexcept {
  for (ClientRegisters& client : registers.clients) {
    // Relaxed: a client that attaches later checks for work itself.
    if (PlaceWord{client.place.load_relaxed()}.taken()) ring(client, device);
  }
}

void reset_device(Registers& registers, std::uint32_t index) noexcept {
  DeviceRegisters& device = registers.devices[index];
  for (QueueRegisters& queue : device.queues) {
    renew(queue.phase);
  }
  const DevicePhase phase = phase_of(device);
  change_phase(device.phase, bits_of(phase == DevicePhase::halted ? DevicePhase::enabled : phase),
               true);
  ring_all(registers, index);
}

void halt_device(Registers& registers, std::uint32_t index) noexcept {
  change_phase(registers.devices[index].phase, bits_of(DevicePhase::halted), false);
  ring_all(registers, index);
}

void report_error(DeviceRegisters& device, std::uint8_t error_code, std::uint32_t queue,
                  std::uint8_t opcode, std::uint64_t address) noexcept {
  // SWERROR: bit 0 valid, bit 1 overflow, bit 3 WQ index valid, 15:8 error, 23:16 WQ, 39:32 opcode;
  // the third word is the address. [S] drivers/dma/idxd/registers.h, union sw_err_reg
  constexpr std::uint64_t kValid = 1;
  constexpr std::uint64_t kOverflow = 2;
  constexpr std::uint64_t kQueueValid = 8;
  std::uint64_t found = 0;
  const std::uint64_t word = kValid | kQueueValid | std::uint64_t{error_code} << 8U |
                             std::uint64_t{queue} << 16U | std::uint64_t{opcode} << 32U;
  if (device.error_registers[0].compare_exchange_relaxed(found, word)) {  // figures for a reader
    device.error_registers[2].store_relaxed(address);                     // as above
    device.has_error.store_relaxed(1);                                    // as above
    platform::wake(device.has_error, kClientMax);
  } else {
    device.error_registers[0].compare_exchange_relaxed(found, found | kOverflow);  // as above
  }
}

void notify_release(DeviceRegisters& device) noexcept {
  // edge: emu-released (acq_rel)
  device.released.fetch_add_acq_rel(1);
  // A waiter that is not counted yet checks again after counting itself, and its wait is bounded
  // anyway.
  if (device.waiter_count.load_relaxed() != 0) platform::wake(device.released, kClientMax);
}

platform::Life life_of(const Registers& registers, Owner owner) noexcept {
  const std::uint32_t index = client_index_of(owner);
  if (index >= kClientMax) return platform::Life::dead;
  // edge: emu-client (acquire)
  const PlaceWord place{registers.clients[index].place.load_acquire()};
  // Free, or held by another client: the owner was reaped.
  if (!place.taken() || owner_of(index, place.incarnation()) != owner) return platform::Life::dead;
  return platform::life_of(place.process_id(), place.started(), PlaceWord::kStartedBits);
}

bool free_place(Registers& registers, Owner owner, bool died) noexcept {
  ClientRegisters& client = registers.clients[client_index_of(owner)];
  std::uint64_t found = client.place.load_relaxed();  // the exchange decides
  const PlaceWord place{found};
  if (!place.taken() || owner_of(client_index_of(owner), place.incarnation()) != owner)
    return false;
  std::uint32_t entry_count = 0;
  const std::uint32_t device_count = count_devices(registers);
  for (std::uint32_t d = 0; d < device_count; ++d) {
    DeviceRegisters& device = registers.devices[d];
    for (QueueRegisters& queue : device.queues) {
      const std::uint32_t count = queue.entries.give_back_all(owner);
      queue.unfinished_count.add(count);
      entry_count += count;
    }
    for (EngineRegisters& engine : device.engines) {
      Owner expected = owner;
      // edge: emu-engine (acq_rel)
      engine.holder.compare_exchange_acq_rel(expected, kNobody);
    }
    notify_release(device);
  }
  // Several reapers may each find some of its entries: only the first counts it.
  Owner lost = client.lost.load_relaxed();  // the exchange decides
  if (died && entry_count != 0 && lost != owner &&
      client.lost.compare_exchange_relaxed(lost, owner)) {  // a statistic
    registers.lost_client_count.add(1);
  }
  // The place is freed only after every word of its owner.
  // edge: emu-client (acq_rel)
  return client.place.compare_exchange_acq_rel(found,
                                               PlaceWord::make(0, 0, place.incarnation()).bits);
}

namespace {

/// Frees words that name no client. Only stray writes make such words, and no other reaper finds
/// them.
void free_orphans(Registers& registers) noexcept {
  const auto is_orphan = [&registers](Owner owner) {
    if (owner == kNobody) return false;
    const std::uint32_t index = client_index_of(owner);
    if (index >= kClientMax) return true;
    // edge: emu-client (acquire)
    const PlaceWord place{registers.clients[index].place.load_acquire()};
    return !place.taken() || owner_of(index, place.incarnation()) != owner;
  };
  const auto free = [&is_orphan](Atomic<Owner>& word) {
    // edge: emu-entry (acquire)
    Owner owner = word.load_acquire();
    // edge: emu-entry (acq_rel)
    return is_orphan(owner) && word.compare_exchange_acq_rel(owner, kNobody);
  };
  const std::uint32_t device_count = count_devices(registers);
  for (std::uint32_t d = 0; d < device_count; ++d) {
    DeviceRegisters& device = registers.devices[d];
    bool any = false;
    for (QueueRegisters& queue : device.queues) {
      any = queue.entries.give_back_orphans(is_orphan) != 0 || any;
    }
    for (EngineRegisters& engine : device.engines) any = free(engine.holder) || any;
    if (any) notify_release(device);
  }
}

}  // namespace

std::size_t reap_clients(Registers& registers) noexcept {
  free_orphans(registers);
  std::size_t reaped = 0;
  for (std::uint32_t index = 0; index < kClientMax; ++index) {
    ClientRegisters& client = registers.clients[index];
    // edge: emu-client (acquire)
    const PlaceWord place{client.place.load_acquire()};
    if (!place.taken()) continue;
    const Owner owner = owner_of(index, place.incarnation());
    if (life_of(registers, owner) != platform::Life::dead) continue;
    if (free_place(registers, owner, true)) ++reaped;
  }
  return reaped;
}

void count_max(Atomic<std::uint32_t>& place, std::uint32_t value) noexcept {
  std::uint32_t found = place.load_relaxed();                               // a statistic
  while (found < value && !place.compare_exchange_relaxed(found, value)) {  // as above
  }
}

std::string device_name(DeviceId device) {
  return "dsa" + std::to_string(device.value());
}

std::string queue_name(DeviceId device, QueueId queue) {
  return "wq" + std::to_string(device.value()) + "." + std::to_string(queue.value());
}

}  // namespace headrace::emu
