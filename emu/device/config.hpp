// SPDX-License-Identifier: Apache-2.0
// Configuration of the emulated devices, as plain values. launch/emulator converts to JSON and
// sysfs.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "emu/device/faults.hpp"
#include "headrace/base/result.hpp"
#include "headrace/dsa/portal.hpp"

namespace headrace::emu {

// Limits of DSA 1.0 (facts: Intel DSA architecture; seen on 4th generation Xeon).
inline constexpr std::uint32_t kDeviceMax = 16;
inline constexpr std::uint32_t kQueueMax = 8;
inline constexpr std::uint32_t kEngineMax = 4;
inline constexpr std::uint32_t kGroupMax = 4;
inline constexpr std::uint32_t kEntryMax =
    128;  ///< WQ entries of a device, shared out among its WQs.
inline constexpr std::uint32_t kBatchMax = 1024;
inline constexpr std::uint64_t kTransferBytesMax = 1ULL << 31;
inline constexpr std::uint32_t kReadBufferMax = 96;
inline constexpr int kNodeMax = 1023;  ///< The kernel's MAX_NUMNODES - 1 on x86-64.
inline constexpr std::uint32_t kNoGroup = ~0U;
/// Retries of a write() to a full shared WQ: idxd's default and maximum. [S]
/// drivers/dma/idxd/idxd.h
inline constexpr std::uint32_t kWriteRetries = 32;
inline constexpr std::uint32_t kWriteRetriesMax = 64;

/// Capability registers, as sysfs shows them.
struct Capabilities {
  std::uint64_t gen_cap = 0;
  std::array<std::uint64_t, 4> op_cap{};
  std::uint32_t version = 0x100;
};
[[nodiscard]] Capabilities capabilities();

struct QueueConfig {
  std::uint32_t group = kNoGroup;
  dsa::QueueMode mode = dsa::QueueMode::shared;
  std::uint32_t size = 0;
  std::uint32_t threshold = 0;  ///< Shared WQ: entries that ENQCMD may fill.
  std::uint32_t priority = 0;   ///< 1..15.
  std::uint32_t batch_max = 32;
  std::uint64_t transfer_bytes_max = 2ULL << 20;
  std::uint32_t write_retries = kWriteRetries;
  bool block_on_fault = false;
  std::array<std::uint64_t, 4> op_config{~0ULL, ~0ULL, ~0ULL, ~0ULL};
  std::string type = "none";  ///< "none", "kernel", "user".
  std::string name;
  std::string driver_name;

  bool operator==(const QueueConfig&) const = default;
};

struct DeviceConfig {
  std::array<QueueConfig, kQueueMax> queues{};
  std::array<std::uint32_t, kEngineMax> engine_groups{kNoGroup, kNoGroup, kNoGroup, kNoGroup};
  std::uint32_t read_buffer_limit = 0;
  int numa_node = 0;  ///< -1: none.
};

/// How work is scheduled.
enum class Schedule : std::uint8_t {
  free_running,   ///< One thread per engine; the order is not controlled.
  deterministic,  ///< Single-threaded, scheduled by the seed; see docs/concepts/emulator.md.
};

/// Simulated speed: a device moves `bytes_per_second` in total and completes `latency_ns` after the
/// last byte. Zero: no limit.
struct Pace {
  std::uint64_t latency_ns = 0;
  std::uint64_t bytes_per_second = 0;
};

/// Fixed at creation. A process that opens the registers uses a private copy, so that no later
/// write of a client can change it.
struct RunOptions {
  Schedule schedule = Schedule::free_running;
  /// Deterministic only: a submission returns once everything has run, for programs that do not
  /// call step().
  bool run_in_submission = false;
  std::uint64_t seed = 0;
  Pace pace;
  FaultScript faults;

  [[nodiscard]] bool deterministic() const { return schedule == Schedule::deterministic; }
  [[nodiscard]] bool paced() const { return pace.latency_ns != 0 || pace.bytes_per_second != 0; }
};

struct EmulatorConfig : RunOptions {
  std::vector<DeviceConfig> devices;
};

/// Fails: invalid_argument naming the field that the driver would reject.
[[nodiscard]] Result<void> check(const DeviceConfig& config);

/// What a WQ lacks to be enabled: the driver's cmd_status, and a sentence about the field.
struct Lack {
  std::uint32_t status;
  const char* field;
  const char* cause;
  std::string remedy;
};
[[nodiscard]] std::optional<Lack> lack_of(const QueueConfig& queue);

/// `queue_count` WQs of type user in one group with `engine_count` engines; the 128 entries are
/// divided evenly. The default of `headrace emulate` without --config.
[[nodiscard]] DeviceConfig default_device(std::uint32_t shared_count, std::uint32_t dedicated_count,
                                          std::uint32_t engine_count,
                                          const std::string& queue_name);

/// A portal appears as a character device with this major; minors are counted over all devices and
/// their WQs. The trap recognises it by its inode.
inline constexpr std::uint32_t kPortalMajor = 238;  // In the dynamic range; no such node exists.
inline constexpr std::uint64_t kPortalInode = 0x6865'6164'7261'0000;

/// One sentence for each fault rule that can never match because its device or queue is not
/// configured.
[[nodiscard]] std::vector<std::string> faults_never_met(const EmulatorConfig& config);

}  // namespace headrace::emu
