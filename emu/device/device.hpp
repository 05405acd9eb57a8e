// SPDX-License-Identifier: Apache-2.0
// The device model. Three views of the same registers (emu/device/registers.hpp), which may lie in
// memory that several processes share:
//   Control  what the driver does: configure, enable, disable, reset, read state and statistics;
//   Client   one process that submits; descriptors run here, in the process that owns the
//   addresses, while
//            credits (WQ entries), engines, priorities and statistics are shared through the
//            registers;
//   Device   both in one object, in this process only: for the engine's tests and for benchmarks.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "emu/device/config.hpp"
#include "emu/device/faults.hpp"
#include "emu/device/statistics.hpp"
#include "emu/device/trace.hpp"
#include "emu/operation/memory.hpp"
#include "headrace/base/result.hpp"
#include "headrace/base/units.hpp"
#include "headrace/dsa/portal.hpp"

namespace headrace::emu {

struct Registers;  // Position-independent, lock-free atomics only; valid in shared memory.
struct DeviceRegisters;
struct RunOptions;

[[nodiscard]] std::size_t registers_bytes();

enum class QueuePhase : std::uint8_t { disabled, enabled, draining };
enum class DevicePhase : std::uint8_t { disabled, enabled, halted };

/// Optional parts of a controller, which the registers do not have.
struct ControlOptions {
  /// Told of each command, of several threads at once if several control. Empty: no trace.
  TraceSink trace{};
  /// Deterministic, in the clients' own process: Client::step. A command that waits for what is
  /// outstanding takes steps; without it, it does not wait.
  std::function<bool()> step{};
};

/// Commands wait for the engines: not for a trace sink or an interrupt handler.
///
/// Threading: shared between threads; one process at a time controls.
class Control {
 public:
  /// Lays out fresh registers in `memory` (zeroed, registers_bytes() long, 64-byte aligned).
  static Result<Control> create(std::span<std::byte> memory, const EmulatorConfig& config);
  /// Fails: version_mismatch or corrupt_data if these are not registers of this version.
  static Result<Control> open(std::span<std::byte> memory);
  /// To be called before commands are given. Commands before that are not traced.
  void set_options(ControlOptions options) { options_ = std::move(options); }

  [[nodiscard]] std::uint32_t device_count() const;
  [[nodiscard]] DeviceConfig config(DeviceId device) const;
  /// Replaces the configuration of a disabled device or the fields of a disabled WQ.
  Result<void> configure(DeviceId device, const DeviceConfig& config);

  // The driver's commands. Errors carry the driver's cmd_status code (idxd_scmd_stat) in os_errno's
  // stead: see CommandStatus; the last one is what sysfs shows as cmd_status.
  Result<void> enable_device(DeviceId device);
  /// Ends what is outstanding with kStatusAborted and forgets the WQs' configuration as idxd does.
  Result<void> disable_device(DeviceId device);
  Result<void> enable_queue(DeviceId device, QueueId queue);
  /// Takes nothing new, waits for what was accepted (at most `wait_max`, then aborts it), disables.
  Result<void> disable_queue(DeviceId device, QueueId queue, std::chrono::nanoseconds wait_max);
  /// Aborts everything outstanding: each record says kStatusAborted, none vanishes.
  void reset(DeviceId device);
  /// As a device that died: nothing runs, nothing completes until reset.
  void halt(DeviceId device);

  [[nodiscard]] DevicePhase phase(DeviceId device) const;
  [[nodiscard]] QueuePhase phase(DeviceId device, QueueId queue) const;
  [[nodiscard]] std::uint32_t occupancy(DeviceId device, QueueId queue) const;
  [[nodiscard]] std::uint32_t client_count(DeviceId device, QueueId queue) const;
  [[nodiscard]] std::uint32_t command_status(DeviceId device) const;
  [[nodiscard]] std::array<std::uint64_t, 4> error_registers(
      DeviceId device) const;  ///< SWERROR, as sysfs `errors`.
  /// Waits until the device has recorded an error, at most `wait_max`. Whether it has.
  [[nodiscard]] bool wait_for_error(DeviceId device, std::chrono::nanoseconds wait_max) const;
  void clear_command_status(DeviceId device);
  /// How often the driver tries again; also of a WQ that is enabled.
  void set_write_retries(DeviceId device, QueueId queue, std::uint32_t count);
  [[nodiscard]] Statistics statistics() const;

  /// A process opened or released the WQ's file; a dedicated WQ takes one: false.
  [[nodiscard]] bool open_queue(DeviceId device, QueueId queue);
  void release_queue(DeviceId device, QueueId queue);
  /// Hands a descriptor to the client of `process_id`, for a submission by write(); returns when it
  /// is finished. `is_over` is asked every few milliseconds, with no lock held: true says that
  /// no thread waits for the answer any more.
  ///
  /// Fails: closed if that process has no Client or dies, after `wait_max`, or when it is over;
  ///        invalid_argument for a batch, and capacity_exceeded if a shared WQ is full and stays so
  ///        for as many tries as it has retries (as idxd). What a dedicated WQ has no room for is
  ///        dropped without a word.
  Result<void> submit_for(std::int32_t process_id, DeviceId device, QueueId queue,
                          const dsa::Descriptor& descriptor, std::chrono::nanoseconds wait_max,
                          const std::function<bool()>& is_over = {});
  /// Frees the entries and engines of clients whose process is gone. Returns how many clients.
  std::size_t reap();
  /// The processes that have a Client, in no order.
  [[nodiscard]] std::vector<std::int32_t> client_processes() const;
  /// Whether any process has the file of any WQ open.
  [[nodiscard]] bool portal_is_open() const;

 private:
  Control(Registers& registers, const RunOptions& run_options);
  void tell(DeviceCommand command, DeviceId device, QueueId queue = QueueId(0)) const;
  /// Waits until `idle` says so; reaps meanwhile, for a dead client gives nothing back by itself.
  /// Where time is steps, it takes them. False if `wait_max` did not do.
  template <typename Idle>
  [[nodiscard]] bool await(DeviceRegisters& device, std::chrono::nanoseconds wait_max,
                           Idle idle) const;
  /// The same until the WQs of `queue_mask` hold nothing and every record is written.
  [[nodiscard]] bool await_queues(DeviceRegisters& device, std::chrono::nanoseconds wait_max,
                                  std::uint32_t queue_mask) const;

  Registers* registers_;
  // Ours: clients can write to those in the registers.
  std::uint32_t device_count_;
  bool deterministic_;
  ControlOptions options_;
};

/// A completion that asked for an interrupt (request_interrupt), by its handle.
using InterruptHandler = std::function<void(std::uint32_t handle)>;

struct ClientOptions {
  /// Called by submitters, possibly in a signal handler, and by engine threads, one at a time.
  TraceSink trace;
  InterruptHandler interrupt;  ///< Called on an engine thread.
};

/// One process's connection to the devices. Async-signal-safe where it says so, because submissions
/// come out of a signal handler. A trace takes a lock: with ClientOptions::trace set, enqueue() and
/// store() are safe in a signal handler only if that handler cannot interrupt another submission of
/// its own thread. The trap's handlers block all signals that could.
///
/// Threading: shared.
class Client {
 public:
  /// Takes a client's place in the registers for this process; threads start with start().
  ///
  /// Fails: capacity_exceeded if all places are taken.
  static Result<std::unique_ptr<Client>> attach(std::span<std::byte> memory, Memory& client_memory,
                                                ClientOptions options = {});
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  virtual ~Client() =
      default;  ///< Ends what is outstanding as aborted, joins, gives the place back.

  /// Starts the engine threads (when deterministic: none, or one that looks for what was submitted
  /// by write()). Idempotent, and may be tried again after a failure. They block every signal but
  /// SIGSEGV and SIGBUS, whose handler must know guarded accesses (emu/platform/guarded.hpp). Not
  /// for a signal handler. What was submitted before runs from now on, and submit_for finds no
  /// client before.
  ///
  /// Fails: capacity_exceeded if the system has no thread left: nothing runs then.
  virtual Result<void> start() = 0;
  /// ENQCMD: false means retry. Async-signal-safe without a trace.
  virtual bool enqueue(DeviceId device, QueueId queue,
                       const dsa::Descriptor& descriptor) noexcept = 0;
  /// MOVDIR64B. What the WQ cannot hold is dropped and counted, and SWERROR says so.
  /// Async-signal-safe without a trace.
  virtual void store(DeviceId device, QueueId queue,
                     const dsa::Descriptor& descriptor) noexcept = 0;
  /// Deterministic only: runs until nothing is outstanding. (enqueue and store call it in
  /// `emulate`.)
  virtual void run_until_idle() = 0;
  /// Deterministic only: one step; false if there was nothing to do.
  virtual bool step() = 0;
  /// Gives an event of the controller's to the trace, in order with the client's own.
  virtual void tell(const TraceEvent& event) = 0;
  /// To be called where a program begins: gives back what this process held when it was another
  /// program (exec), of which no Client may ever be made. Precondition: `memory` was opened before.
  static void begin_program(std::span<std::byte> memory) noexcept;
  /// What a device does with a submission of a process that has no Client because none could be
  /// made or started: as a WQ that is not enabled. ENQCMD (shared): retry, counted. MOVDIR64B
  /// (dedicated): dropped and counted, and SWERROR says so. Precondition: `memory` was opened
  /// before. Async-signal-safe.
  static void turn_away(std::span<std::byte> memory, DeviceId device, QueueId queue,
                        const dsa::Descriptor& descriptor, dsa::QueueMode mode) noexcept;

 protected:
  Client() = default;
};

struct DeviceOptions {
  Schedule schedule = Schedule::free_running;
  std::uint64_t seed = 0;
  Pace pace;
  FaultScript faults;
  InterruptHandler interrupt;  ///< Called on an engine thread; handles are 1..1024.
  TraceSink trace;             ///< Empty: no trace.
};

/// Emulated devices inside this process.
///
/// Threading: shared.
class Device {
 public:
  static Result<std::unique_ptr<Device>> create(std::span<const DeviceConfig> devices,
                                                DeviceOptions options);
  /// Every WQ and device of the configuration is enabled at creation.
  [[nodiscard]] dsa::Portal& portal(DeviceId device, QueueId queue) {
    return *portals_[device.value()][queue.value()];
  }
  [[nodiscard]] Control& control() { return control_; }
  [[nodiscard]] Client& client() { return *client_; }

 private:
  struct FreeAligned {
    void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t(64)); }
  };
  using RegisterMemory = std::unique_ptr<std::byte[], FreeAligned>;
  Device(RegisterMemory memory, Control control, std::unique_ptr<Client> client);

  RegisterMemory memory_;
  Control control_;
  std::unique_ptr<Client> client_;
  std::array<std::array<std::unique_ptr<dsa::Portal>, kQueueMax>, kDeviceMax> portals_;
};

}  // namespace headrace::emu
