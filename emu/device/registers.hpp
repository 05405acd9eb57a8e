// SPDX-License-Identifier: Apache-2.0
// Registers: the state that all clients of the devices share, in this process's memory or in a
// mapped file. Position-independent and lock-free; a process killed at any instruction leaves
// nothing inconsistent. Descriptors are not here: they stay in the process that owns their
// addresses (emu/device/scheduler.hpp).
//
// Progress:   submitting is lock-free; one compare-and-exchange claims an engine.
// Agents:     submitters (any thread, also in a signal handler), workers (a client's threads that
//             run descriptors), the controller, reapers (which clean up after dead clients).
// Ownership:  one word says both that a WQ entry or an engine is taken and by whom, so that a
//             reaper releases exactly what a dead client held. The incarnation distinguishes the
//             holders of one client place.
// Trust:      any client may write anything anywhere. Values read here are clamped before they
//             bound or index anything; what a process relies on for its own descriptors, threads
//             and slots is in private memory. So stray writes can cost answers (errors, retries,
//             aborts, fairness), but never memory safety.
// Invariants: occupancy of a WQ = number of its non-zero entry words <= its size; a descriptor runs
//             only while the generation of its WQ is that of its submission.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "emu/device/config.hpp"
#include "emu/device/device.hpp"
#include "emu/device/entries.hpp"
#include "emu/device/faults.hpp"
#include "emu/device/statistics.hpp"
#include "emu/platform/process.hpp"
#include "headrace/base/atomic.hpp"
#include "headrace/base/counter.hpp"

namespace headrace::emu {

inline constexpr std::uint64_t kRegistersMagic = 0x3153'4745'5252'4448ULL;
inline constexpr std::uint32_t kRegistersVersion = 6;
inline constexpr std::uint32_t kClientMax = 256;

struct QueueRegisters {
  // Configuration: written by the controller while the WQ is disabled, read by all.
  Atomic<std::uint32_t> group{kNoGroup};
  Atomic<std::uint32_t> mode;
  Atomic<std::uint32_t> entry_count;
  Atomic<std::uint32_t> threshold;
  Atomic<std::uint32_t> priority;
  Atomic<std::uint32_t> batch_max;
  Atomic<std::uint64_t> transfer_bytes_max;
  Atomic<std::uint32_t> block_on_fault;
  Atomic<std::uint64_t> opcodes_low;  ///< The first word of op_config.
  /// Written by the controller at any time.
  Atomic<std::uint32_t> write_retries{kWriteRetries};
  // State.
  alignas(64) Atomic<std::uint64_t> phase;  ///< PhaseWord of a QueuePhase.
  /// Work done for this WQ, divided by its priority; the arbiter picks the WQ that is behind.
  alignas(64) Atomic<std::uint64_t> virtual_time;
  Atomic<std::uint32_t> open_count;
  Atomic<std::uint64_t> accepted_count;
  Counter retried_count;
  Counter dropped_count;
  Counter written_count;
  Counter aborted_count;
  Counter unfinished_count;  ///< Of clients that have died.
  Atomic<std::uint32_t> occupancy_max;
  Atomic<std::uint32_t> entry_top;  ///< One more than the highest entry ever in use.
  alignas(64) Entries<kEntryMax> entries;
};

struct EngineRegisters {
  Atomic<std::uint32_t> group{kNoGroup};
  /// Limits concurrency only; memory safety does not depend on it, so a waiter may take the engine
  /// from a dead or stopped client.
  alignas(64) Atomic<Owner> holder;
  /// Incremented with every finished descriptor.
  Atomic<std::uint64_t> turn;
  Counter descriptor_count;
  Counter batch_count;
  Counter bytes_read;
  Counter bytes_written;
  Counter page_fault_count;
  Counter cache_control_count;
  Counter error_count;
  Counter busy_ns;
};

struct DeviceRegisters {
  Atomic<std::uint64_t> phase;  ///< PhaseWord of a DevicePhase.
  Atomic<std::uint32_t> command_status;
  Atomic<std::int32_t> numa_node;
  std::array<Atomic<std::uint64_t>, 4> error_registers;
  Atomic<std::uint32_t> has_error;  ///< Futex: 1 from the first error on.
  /// Pace: when the device will have moved all bytes submitted so far.
  alignas(64) Atomic<std::uint64_t> carried_until_ns;
  /// Workers that wait for an engine of another client. A dead worker stays counted, which costs
  /// only needless wake calls.
  Atomic<std::uint32_t> waiter_count;
  Atomic<std::uint32_t> released;  ///< Futex: an engine or an entry was released.
  std::array<Atomic<std::uint64_t>, kGroupMax> group_time;  ///< Virtual time of the WQ served last.
  std::array<Counter, kOpcodeMax> operations_by_opcode;
  Counter injected_fault_count;
  std::array<EngineRegisters, kEngineMax> engines;
  std::array<QueueRegisters, kQueueMax> queues;
};

/// A submission by write(), passed on by the controller.
struct MailboxRegisters {
  /// taken: by the WQ. left: running, but its poster has gone. full: not taken, because the WQ
  /// stayed full.
  enum State : std::uint32_t { free, filling, posted, running, taken, refused, left, full };
  Atomic<std::uint32_t> state;
  Atomic<Owner> owner;  ///< The client it is for.
  Atomic<std::uint32_t> device;
  Atomic<std::uint32_t> queue;
  std::array<Atomic<std::uint64_t>, 8> descriptor;
};

/// Holder of a client place: process number, its start time (distinguishes it from a later process
/// with the same number), and the incarnation of the place. In one word, so that a client killed
/// right after taking a place can be recognised as dead.
struct PlaceWord {
  std::uint64_t bits = 0;
  static constexpr std::uint32_t kProcessBits = 22;  // The kernel's PID_MAX_LIMIT.
  static constexpr std::uint32_t kStartedBits = 30;
  static constexpr std::uint32_t kIncarnationBits = 12;
  [[nodiscard]] static constexpr PlaceWord make(std::int32_t process_id, std::uint64_t started,
                                                std::uint32_t incarnation) {
    return {static_cast<std::uint64_t>(process_id) |
            (started & ((1ULL << kStartedBits) - 1)) << kProcessBits |
            std::uint64_t{incarnation & ((1U << kIncarnationBits) - 1)}
                << (kProcessBits + kStartedBits)};
  }
  [[nodiscard]] constexpr std::int32_t process_id() const {
    return static_cast<std::int32_t>(bits & ((1ULL << kProcessBits) - 1));
  }
  [[nodiscard]] constexpr std::uint64_t started() const {
    return bits >> kProcessBits & ((1ULL << kStartedBits) - 1);
  }
  [[nodiscard]] constexpr std::uint32_t incarnation() const {
    return static_cast<std::uint32_t>(bits >> (kProcessBits + kStartedBits));
  }
  [[nodiscard]] constexpr bool taken() const { return process_id() != 0; }
};

struct ClientRegisters {
  Atomic<std::uint64_t> place;  ///< PlaceWord.
  /// The last holder of this place that was counted as lost.
  Atomic<Owner> lost;
  /// The holder for whom everything below is set up; controllers do not post before.
  Atomic<Owner> ready;
  /// Program image that took the place: exec keeps the process but not its memory.
  Atomic<std::uint64_t> image;
  /// One futex per device; counts rings.
  std::array<Atomic<std::uint32_t>, kDeviceMax> doorbells;
  /// Completions in progress that need no engine (Pace).
  Atomic<std::uint32_t> completing;
  alignas(64) MailboxRegisters mailbox;
};

struct Registers {
  Atomic<std::uint64_t> magic;  ///< Written last.
  Atomic<std::uint32_t> version;
  Atomic<std::uint32_t> device_count;
  // Written at creation, published by `magic`.
  std::uint64_t byte_count = 0;
  std::uint64_t options_hash = 0;
  RunOptions run_options;
  // Shared from then on.
  std::array<Atomic<std::uint64_t>, kFaultRuleMax> fault_match_count;
  Counter client_count;
  Counter lost_client_count;
  Atomic<std::uint64_t> step_count;  ///< Time of the deterministic schedule.
  std::array<DeviceRegisters, kDeviceMax> devices;
  std::array<ClientRegisters, kClientMax> clients;
};

// SWERROR codes for submissions that a WQ did not accept, outside the range of completion codes.
// [I]
inline constexpr std::uint8_t kErrorQueueFull = 0x60;
inline constexpr std::uint8_t kErrorQueueNotEnabled = 0x61;

// Used by clients and the controller.

template <typename Phase>
[[nodiscard]] constexpr std::uint32_t bits_of(Phase phase) {
  return static_cast<std::uint32_t>(phase);
}
[[nodiscard]] inline DevicePhase phase_of(const DeviceRegisters& device) noexcept {
  return static_cast<DevicePhase>(load_phase(device.phase).phase());
}
[[nodiscard]] inline QueuePhase phase_of(const QueueRegisters& queue) noexcept {
  return static_cast<QueuePhase>(load_phase(queue.phase).phase());
}
/// The time of an event: the step count if deterministic, so that traces of one seed are identical.
[[nodiscard]] std::uint64_t trace_time(const Registers& registers,
                                       const RunOptions& run_options) noexcept;
struct OpenRegisters {
  Registers* registers = nullptr;
  RunOptions run_options;
};
/// Checks magic, version, length and the hash of the run_options.
[[nodiscard]] Result<OpenRegisters> open_registers(std::span<std::byte> memory);
/// Hashes the raw bytes, padding included.
[[nodiscard]] std::uint64_t hash_of(const RunOptions& run_options) noexcept;
/// Clamped to kDeviceMax, whatever a client wrote there.
[[nodiscard]] std::uint32_t count_devices(const Registers& registers) noexcept;
/// Rings one client, or all, for `device`.
void ring(ClientRegisters& client, std::uint32_t device) noexcept;
void ring_all(Registers& registers, std::uint32_t device) noexcept;
/// Aborts everything outstanding; what was enabled stays enabled. Does not wait.
void reset_device(Registers& registers, std::uint32_t device) noexcept;
void halt_device(Registers& registers, std::uint32_t device) noexcept;
/// Writes SWERROR; if it already holds an error, sets the overflow bit instead.
void report_error(DeviceRegisters& device, std::uint8_t error_code, std::uint32_t queue,
                  std::uint8_t opcode, std::uint64_t address) noexcept;
/// Wakes waiters for entries or engines.
void notify_release(DeviceRegisters& device) noexcept;
/// Releases what `owner` holds, then its place. Threads may call it concurrently. Returns false if
/// another thread has already freed the place. `died`: count the client as lost if it had entries
/// in use.
bool free_place(Registers& registers, Owner owner, bool died) noexcept;
/// Frees the places of clients whose process is gone, and whatever is held without a place. Returns
/// the number of places.
std::size_t reap_clients(Registers& registers) noexcept;
/// State of the owner's process.
[[nodiscard]] platform::Life life_of(const Registers& registers, Owner owner) noexcept;
void count_max(Atomic<std::uint32_t>& place, std::uint32_t value) noexcept;
/// "dsa0", "wq0.0".
[[nodiscard]] std::string device_name(DeviceId device);
[[nodiscard]] std::string queue_name(DeviceId device, QueueId queue);

}  // namespace headrace::emu
