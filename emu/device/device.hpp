// SPDX-License-Identifier: Apache-2.0
// The device model: three views of the same registers (emu/device/registers.hpp), which may be in
// shared memory.
//   Control  the driver's part: configure, enable, disable, reset, read state and statistics;
//   Client   one submitting process (emu/device/client.hpp). Its descriptors run in that process,
//   which owns the addresses;
//            credits (WQ entries), engines, priorities and statistics are shared through the
//            registers;
//   Device   both in one object, in this process only: for tests of the engine and benchmarks.
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
#include "headrace/base/mutex.hpp"
#include "headrace/base/result.hpp"
#include "headrace/base/units.hpp"
#include "headrace/dsa/portal.hpp"

namespace headrace::emu {

struct Registers;  // Position-independent, lock-free atomics only; valid in shared memory.
struct DeviceRegisters;

[[nodiscard]] std::size_t registers_bytes();

enum class QueuePhase : std::uint8_t { disabled, enabled, draining };
enum class DevicePhase : std::uint8_t { disabled, enabled, halted };

/// Optional settings of a controller that are not in the registers.
struct ControlOptions {
  /// Receives each command, concurrently if several threads control. Empty: no trace.
  TraceSink trace{};
  /// Deterministic, in the clients' process: Client::step. A command that waits for outstanding
  /// work takes steps; without it the command does not wait.
  std::function<bool()> step{};
};

/// Commands wait for the engines, but not for a trace sink or an interrupt handler.
///
/// Threading: shared between threads of the one controlling process.
class Control {
 public:
  /// Initialises registers in `memory` (zeroed, registers_bytes() long, 64-byte aligned).
  static Result<Control> create(std::span<std::byte> memory, const EmulatorConfig& config);
  /// Its config() is empty: for statistics.
  ///
  /// Fails: version_mismatch or corrupt_data if these are not registers of this version.
  static Result<Control> open(std::span<std::byte> memory);
  /// Call before the first command: earlier commands are not traced.
  void set_options(ControlOptions options) { options_ = std::move(options); }

  [[nodiscard]] std::uint32_t device_count() const;
  [[nodiscard]] DeviceConfig config(DeviceId device) const;
  /// Replaces the configuration of a disabled device or the fields of a disabled WQ.
  Result<void> configure(DeviceId device, const DeviceConfig& config);

  // The driver's commands. Errors carry the driver's cmd_status code (idxd_scmd_stat) in os_errno:
  // see CommandStatus. sysfs shows the last one as cmd_status.
  Result<void> enable_device(DeviceId device);
  /// Completes outstanding descriptors with kStatusAborted and clears the WQs' configuration, as
  /// idxd does.
  Result<void> disable_device(DeviceId device);
  Result<void> enable_queue(DeviceId device, QueueId queue);
  /// Refuses new descriptors, waits up to `wait_max` for accepted ones, aborts the rest, disables.
  Result<void> disable_queue(DeviceId device, QueueId queue, std::chrono::nanoseconds wait_max);
  /// Aborts everything outstanding; every record is written with kStatusAborted.
  void reset(DeviceId device);
  /// Simulates device death: nothing runs or completes until reset.
  void halt(DeviceId device);

  [[nodiscard]] DevicePhase phase(DeviceId device) const;
  [[nodiscard]] QueuePhase phase(DeviceId device, QueueId queue) const;
  [[nodiscard]] std::uint32_t occupancy(DeviceId device, QueueId queue) const;
  [[nodiscard]] std::uint32_t client_count(DeviceId device, QueueId queue) const;
  [[nodiscard]] std::uint32_t command_status(DeviceId device) const;
  [[nodiscard]] std::array<std::uint64_t, 4> error_registers(
      DeviceId device) const;  ///< SWERROR, as sysfs `errors`.
  /// Waits up to `wait_max` for a recorded error. Returns whether there is one.
  [[nodiscard]] bool wait_for_error(DeviceId device, std::chrono::nanoseconds wait_max) const;
  void clear_command_status(DeviceId device);
  /// Sets the driver's retries for write(); also allowed on an enabled WQ.
  void set_write_retries(DeviceId device, QueueId queue, std::uint32_t count);
  [[nodiscard]] Statistics statistics() const;

  /// Counts an open of the WQ's file. False: a dedicated WQ is already open.
  [[nodiscard]] bool open_queue(DeviceId device, QueueId queue);
  void release_queue(DeviceId device, QueueId queue);
  /// Passes a descriptor to the client of `process_id`, for a submission by write(), and waits
  /// until the WQ has taken it; with a seed, until it has run. `is_over` is polled every few
  /// milliseconds without a lock; true cancels the wait.
  ///
  /// Fails: closed if that process has no Client or dies, or when `is_over` says so;
  /// invalid_argument for a batch; capacity_exceeded, and nothing is submitted, if a shared WQ
  /// stays full for all of its retries (as idxd) or no thread of the process takes it within
  /// `wait_max`. A full dedicated WQ drops the descriptor silently.
  Result<void> submit_for(std::int32_t process_id, DeviceId device, QueueId queue,
                          const dsa::Descriptor& descriptor, std::chrono::nanoseconds wait_max,
                          const std::function<bool()>& is_over = {});
  /// Frees the entries and engines of clients whose process is gone. Returns the number of clients.
  std::size_t reap();
  /// The processes that have a Client, unordered.
  [[nodiscard]] std::vector<std::int32_t> client_processes() const;
  /// Whether any process has the file of any WQ open.
  [[nodiscard]] bool portal_is_open() const;

 private:
  Control(Registers& registers, const RunOptions& run_options);
  void tell(DeviceCommand command, DeviceId device, QueueId queue = QueueId(0)) const;
  /// Waits until `idle` returns true, and reaps meanwhile, because dead clients release nothing.
  /// Takes steps in deterministic mode. Returns false on timeout.
  template <typename Idle>
  [[nodiscard]] bool await(DeviceRegisters& device, std::chrono::nanoseconds wait_max,
                           Idle idle) const;
  /// As await(), until the WQs of `queue_mask` are empty and every record is written.
  [[nodiscard]] bool await_queues(DeviceRegisters& device, std::chrono::nanoseconds wait_max,
                                  std::uint32_t queue_mask) const;

  Registers* registers_;
  /// What was configured; the registers have only what clients need.
  struct Configs {
    Mutex mutex;
    std::array<DeviceConfig, kDeviceMax> devices HEADRACE_GUARDED_BY(mutex);
  };
  std::shared_ptr<Configs> configs_ = std::make_shared<Configs>();  ///< Of all copies of this.
  // Private copies: clients can overwrite those in the registers.
  std::uint32_t device_count_;
  bool deterministic_;
  ControlOptions options_;
};

/// Called for a completion with request_interrupt; receives its interrupt handle.
using InterruptHandler = std::function<void(std::uint32_t handle)>;

class Client;

struct DeviceOptions : RunOptions {
  InterruptHandler interrupt;  ///< Called on an engine thread; handles are 1..1024.
  TraceSink trace;             ///< Empty: no trace.
};

/// Emulated devices inside this process.
///
/// Threading: shared.
class Device {
 public:
  /// Enables every configured device and WQ.
  static Result<std::unique_ptr<Device>> create(std::span<const DeviceConfig> devices,
                                                DeviceOptions options);
  Device& operator=(Device&&) = delete;
  ~Device();
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
