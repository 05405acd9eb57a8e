// SPDX-License-Identifier: Apache-2.0
// Portal: the interface by which a client submits to one work queue (WQ): of hardware, a page
// mapped from /dev/dsa/wqD.Q; of an emulated device, an object in this process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "headrace/base/export.hpp"
#include "headrace/dsa/descriptor.hpp"

namespace headrace::dsa {

enum class QueueMode : std::uint8_t {
  shared,    ///< ENQCMD: any number of clients; the queue answers accepted or retry.
  dedicated  ///< MOVDIR64B: one client, no answer; the client counts credits.
};

/// Bits of GENCAP that matter to a client: the device refuses a flag that it does not support
/// (0x11). [S] drivers/dma/idxd/registers.h
namespace capability {
inline constexpr std::uint64_t block_on_fault = 1U << 0U;
inline constexpr std::uint64_t cache_control_of_writes = 1U << 2U;
inline constexpr std::uint64_t cache_control_of_flushes = 1U << 3U;
}  // namespace capability

/// Configuration of a WQ; constant while the WQ is enabled.
struct QueueInfo {
  std::string name;  ///< "dsa0/wq0.0".
  QueueMode mode = QueueMode::shared;
  std::uint32_t entry_count = 0;         ///< Descriptors that the WQ holds.
  std::uint32_t batch_max = 0;           ///< Maximum descriptors in a batch.
  std::uint64_t transfer_bytes_max = 0;  ///< Maximum bytes of a descriptor.
  bool block_on_fault = false;           ///< The flag is allowed.
  /// Bit i: opcode i (0 to 63) is allowed. Empty: not known.
  std::optional<std::uint64_t> opcodes = std::nullopt;
  /// Register GENCAP of its device (`gen_cap` in sysfs). Empty: not known.
  std::optional<std::uint64_t> capabilities = std::nullopt;
};

/// Threading: shared, but one thread at a time may submit to a dedicated WQ.
class HEADRACE_API Portal {
 public:
  Portal() = default;
  Portal& operator=(Portal&&) = delete;
  virtual ~Portal() = default;

  [[nodiscard]] virtual const QueueInfo& info() const = 0;
  /// Submits a copy of `descriptor`. Never blocks. Returns false if a shared WQ is full or
  /// disabled, or the kernel did not take a write(): nothing was submitted, try again later. A
  /// dedicated WQ drops descriptors beyond its size, and the device reports an error: count
  /// credits.
  [[nodiscard]] virtual bool submit(const Descriptor& descriptor) noexcept = 0;
};

}  // namespace headrace::dsa
