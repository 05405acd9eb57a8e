// SPDX-License-Identifier: Apache-2.0
// Snapshot of what the devices did, per WQ and per engine, as plain values. Control::statistics
// takes it; launch/emulator converts it to JSON.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace headrace::emu {

inline constexpr std::size_t kOpcodeMax = 64;

struct QueueStatistics {
  std::string name;                  ///< "wq0.0".
  std::uint64_t accepted_count = 0;  ///< Accepted descriptors; a batch counts once.
  std::uint64_t retried_count = 0;   ///< ENQCMD answered with retry.
  std::uint64_t dropped_count = 0;   ///< MOVDIR64B to a WQ that was full or not enabled.
  std::uint64_t written_count = 0;   ///< Accepted by write().
  std::uint64_t occupancy_max = 0;   ///< Highest number of entries in use at once.
  std::uint64_t aborted_count = 0;
  /// Accepted, but neither finished nor aborted: outstanding, or left by a client that has died.
  std::uint64_t unfinished_count = 0;
};

struct EngineStatistics {
  std::string name;                    ///< "engine0.0".
  std::uint64_t descriptor_count = 0;  ///< Finished, those of batches included.
  std::uint64_t batch_count = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
  /// Descriptors whose target was to go into the cache (the flag cache control).
  std::uint64_t cache_control_count = 0;
  std::uint64_t page_fault_count = 0;  ///< Reported to the client.
  std::uint64_t error_count = 0;       ///< Ended with a status above success, page faults excluded.
  std::uint64_t busy_ns = 0;
};

struct DeviceStatistics {
  std::string name;  ///< "dsa0".
  int numa_node = 0;
  std::vector<QueueStatistics> queues;
  std::vector<EngineStatistics> engines;
  std::array<std::uint64_t, kOpcodeMax> operations_by_opcode{};
  std::uint64_t injected_fault_count = 0;
};

struct Statistics {
  std::vector<DeviceStatistics> devices;
  std::uint64_t client_count = 0;       ///< Processes with an accepted submission.
  std::uint64_t lost_client_count = 0;  ///< Of these: died with entries in use.
};

}  // namespace headrace::emu
