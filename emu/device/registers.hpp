// SPDX-License-Identifier: Apache-2.0
// Registers: the state that all clients of the devices share, in memory of this process or in a
// file that several map. Position-independent, no lock, nothing that a process killed at any
// instruction could leave half done. Not the descriptors themselves: they stay in the process that
// owns their addresses (emu/device/scheduler.hpp).
//
// Progress:   submitting is lock-free; an engine is claimed by one compare-and-exchange.
// Agents:     submitters (any thread, also in a signal handler), workers (the threads of a client
//             that run descriptors), the controller, reapers (which look after dead clients).
// Ownership:  one word says both that a WQ entry or an engine is taken and by whom, so that a
//             reaper gives back exactly what a dead client held. Words of an earlier holder of the
//             same client's place differ (incarnation).
// Trust:      any client may write anything anywhere. What is read here bounds or indexes nothing
//             before it was clamped; what must be true of a process's own descriptors, threads and
//             slots it keeps in memory of its own. So scribbling costs answers (errors, retries,
//             aborts, fairness), and never memory safety.
// Invariants: occupancy of a WQ = number of its entry words that are not 0 <= its size;
//             a descriptor runs only while the generation of its WQ is the one of its submission.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "emu/device/config.hpp"
#include "emu/device/device.hpp"
#include "emu/device/entries.hpp"
#include "emu/device/faults.hpp"
#include "emu/device/statistics.hpp"
#include "emu/platform/process.hpp"
#include "headrace/base/atomic.hpp"

namespace headrace::emu {

inline constexpr std::uint64_t kRegistersMagic = 0x3153'4745'5252'4448ULL;
inline constexpr std::uint32_t kRegistersVersion = 4;
inline constexpr std::uint32_t kClientMax = 256;

/// Text of fixed room in words, so that readers of a name that is being changed get some mixture
/// and never a torn access.
template <std::size_t kWords>
class SharedText {
 public:
  void store(std::string_view text) noexcept {
    for (std::size_t word = 0; word < kWords; ++word) {
      std::uint64_t bits = 0;
      for (std::size_t i = 0; i < 8; ++i) {
        const std::size_t at = word * 8 + i;
        // The last byte stays 0.
        if (at < text.size() && at + 1 < kWords * 8) {
          bits |= std::uint64_t{static_cast<unsigned char>(text[at])} << (8 * i);
        }
      }
      words_[word].store_relaxed(bits);  // published by the WQ's phase
    }
  }
  [[nodiscard]] std::string load() const {
    std::string text;
    for (const Atomic<std::uint64_t>& word : words_) {
      const std::uint64_t bits = word.load_relaxed();  // published by the WQ's phase
      for (std::size_t i = 0; i < 8; ++i) {
        const char letter = static_cast<char>((bits >> (8 * i)) & 0xffU);
        if (letter == '\0') return text;
        text += letter;
      }
    }
    return text;
  }

 private:
  std::array<Atomic<std::uint64_t>, kWords> words_;
};

using Counter = Atomic<std::uint64_t>;

struct QueueRegisters {
  // Configuration: written by the controller while the WQ is disabled, read by everybody.
  Atomic<std::uint32_t> group{kNoGroup};
  Atomic<std::uint32_t> mode;
  Atomic<std::uint32_t> entry_count;
  Atomic<std::uint32_t> threshold;
  Atomic<std::uint32_t> priority;
  Atomic<std::uint32_t> batch_max;
  Atomic<std::uint64_t> transfer_bytes_max;
  Atomic<std::uint32_t> block_on_fault;
  std::array<Atomic<std::uint64_t>, 4> op_config;
  SharedText<2> type;
  SharedText<10> name;
  SharedText<4> driver_name;
  /// The controller writes it at any time.
  Atomic<std::uint32_t> write_retries{kWriteRetries};
  // State.
  alignas(64) Atomic<std::uint64_t> phase;  ///< PhaseWord of a QueuePhase.
  /// Work done for this WQ, divided by its priority; the arbiter takes the WQ that is behind.
  alignas(64) Atomic<std::uint64_t> virtual_time;
  Atomic<std::uint32_t> open_count;
  Counter accepted_count;
  Counter retried_count;
  Counter dropped_count;
  Counter written_count;
  Counter aborted_count;
  Atomic<std::uint32_t> occupancy_max;
  Atomic<std::uint32_t> entry_top;  ///< One more than the highest entry that was ever in use.
  alignas(64) Entries<kEntryMax> entries;
};

struct EngineRegisters {
  Atomic<std::uint32_t> group{kNoGroup};
  /// Limits concurrency; no memory safety rests on it, so a waiter may take it from a client that
  /// is dead or stopped.
  alignas(64) Atomic<Owner> holder;
  /// Grows with every descriptor that the engine has finished.
  Counter turn;
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
  Atomic<std::uint32_t> read_buffer_limit;
  Atomic<std::int32_t> numa_node;
  std::array<Atomic<std::uint64_t>, 4> error_registers;
  Atomic<std::uint32_t> has_error;  ///< Futex: 1 from the first error on.
  /// Pace: when the device has carried what it was given so far.
  alignas(64) Atomic<std::uint64_t> carried_until_ns;
  /// Workers that wait for an engine which another client holds; a dead one is counted for ever,
  /// which costs needless calls and nothing else.
  Atomic<std::uint32_t> waiter_count;
  Atomic<std::uint32_t> released;             ///< Futex: an engine or an entry was given back.
  std::array<Counter, kGroupMax> group_time;  ///< Virtual time of the WQ served last.
  std::array<Counter, kOpcodeMax> operations_by_opcode;
  Counter injected_fault_count;
  std::array<EngineRegisters, kEngineMax> engines;
  std::array<QueueRegisters, kQueueMax> queues;
};

/// A submission by write(), handed over by the controller.
struct MailboxRegisters {
  /// left: it runs, and the one who posted it has gone. full: it does not, for the WQ stayed full.
  enum State : std::uint32_t { free, filling, posted, running, finished, refused, left, full };
  Atomic<std::uint32_t> state;
  Atomic<Owner> owner;  ///< The client it is for.
  Atomic<std::uint32_t> device;
  Atomic<std::uint32_t> queue;
  std::array<Atomic<std::uint64_t>, 8> descriptor;
};

/// Who has a client's place: process number, when it began (tells it from a later process of the
/// same number), and which incarnation of the place this is. One word: a client that is killed
/// right after taking a place can be told to be dead.
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
  /// The holder of this place that was counted as lost last.
  Atomic<Owner> lost;
  /// The holder for whom all below is set up: no controller posts before.
  Atomic<Owner> ready;
  /// Of the program that took the place: after exec the process is the same, its memory is not.
  Atomic<std::uint64_t> image;
  /// One per device, a futex: counts rings.
  std::array<Atomic<std::uint32_t>, kDeviceMax> doorbells;
  /// Completions that are being given without an engine (Pace).
  Atomic<std::uint32_t> completing;
  alignas(64) MailboxRegisters mailbox;
};

/// What is settled at creation. A process that opens the registers works with its own copy, so that
/// no later write of a client can change it.
struct RunOptions {
  Schedule schedule = Schedule::free_running;
  bool run_in_submission = false;
  std::uint64_t seed = 0;
  Pace pace;
  FaultScript faults;

  [[nodiscard]] bool deterministic() const { return schedule == Schedule::deterministic; }
  [[nodiscard]] bool paced() const { return pace.latency_ns != 0 || pace.bytes_per_second != 0; }
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
  std::array<Counter, kFaultRuleMax> fault_match_count;
  Counter client_count;
  Counter lost_client_count;
  Counter step_count;  ///< Time of the deterministic schedule.
  std::array<DeviceRegisters, kDeviceMax> devices;
  std::array<ClientRegisters, kClientMax> clients;
};

// Error codes of SWERROR for submissions that a WQ could not take. The completion codes hold for
// descriptors; these two are out of their range. [I]
inline constexpr std::uint8_t kErrorQueueFull = 0x60;
inline constexpr std::uint8_t kErrorQueueNotEnabled = 0x61;

// What clients and the controller both do with the registers.

/// The time of an event: steps where time is steps, so that a trace of the same seed has the same
/// bytes.
[[nodiscard]] std::uint64_t trace_time(const Registers& registers,
                                       const RunOptions& run_options) noexcept;
struct OpenRegisters {
  Registers* registers = nullptr;
  RunOptions run_options;
};
/// Checks magic, version and length, and that the run_options are those of the creation.
[[nodiscard]] Result<OpenRegisters> open_registers(std::span<std::byte> memory);
/// Of the bytes that lie there, gaps included.
[[nodiscard]] std::uint64_t hash_of(const RunOptions& run_options) noexcept;
/// Never more than there is room for, whatever a client wrote there.
[[nodiscard]] std::uint32_t count_devices(const Registers& registers) noexcept;
/// Rings one client, or all of them, for `device`.
void ring(ClientRegisters& client, std::uint32_t device) noexcept;
void ring_all(Registers& registers, std::uint32_t device) noexcept;
/// Ends everything outstanding; what was enabled is enabled again. Does not wait.
void reset_device(Registers& registers, std::uint32_t device) noexcept;
void halt_device(Registers& registers, std::uint32_t device) noexcept;
/// Writes SWERROR unless it holds an error already (then the overflow bit).
void report_error(DeviceRegisters& device, std::uint8_t error_code, std::uint32_t queue,
                  std::uint8_t opcode, std::uint64_t address) noexcept;
/// Tells those who wait for entries or engines.
void announce_release(DeviceRegisters& device) noexcept;
/// Gives back what `owner` holds, and the client's place with it; exact, so any number of reapers
/// may do it at once. False if another thread had freed it already. `died`: a client that had
/// entries in use counts as lost.
bool free_place(Registers& registers, Owner owner, bool died) noexcept;
/// Frees the places of clients whose process is gone, and what is held without a place.
/// Returns how many places.
std::size_t reap_clients(Registers& registers) noexcept;
/// Of the process of `owner`.
[[nodiscard]] platform::Life life_of(const Registers& registers, Owner owner) noexcept;
void count_max(Atomic<std::uint32_t>& place, std::uint32_t value) noexcept;
/// "dsa0", "wq0.0".
[[nodiscard]] std::string device_name(DeviceId device);
[[nodiscard]] std::string queue_name(DeviceId device, QueueId queue);

}  // namespace headrace::emu
