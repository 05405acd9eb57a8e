// SPDX-License-Identifier: Apache-2.0
// Portal: how a client reaches one work queue (WQ). The real one is a page mapped from
// /dev/dsa/wqD.Q; the emulated device has one in this process. What is behind it is not known
// here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "headrace/base/export.hpp"
#include "headrace/dsa/descriptor.hpp"

namespace headrace::dsa {

enum class QueueMode : std::uint8_t {
  shared,    ///< ENQCMD: anyone submits, the queue answers accepted or retry.
  dedicated  ///< MOVDIR64B: one client, no answer; the client counts its own credits.
};

/// Bits of GENCAP that a client has to know: a flag that the device does not have is refused
/// (0x11). [S] drivers/dma/idxd/registers.h
namespace capability {
inline constexpr std::uint64_t block_on_fault = 1U << 0U;
inline constexpr std::uint64_t cache_control_of_writes = 1U << 2U;
inline constexpr std::uint64_t cache_control_of_flushes = 1U << 3U;
}  // namespace capability

/// What a client may ask of a WQ; fixed while the WQ is enabled.
struct QueueInfo {
  std::string name;  ///< "dsa0/wq0.0".
  QueueMode mode = QueueMode::shared;
  std::uint32_t entry_count = 0;         ///< Descriptors that the WQ holds (its size).
  std::uint32_t batch_max = 0;           ///< Descriptors in one batch.
  std::uint64_t transfer_bytes_max = 0;  ///< Bytes of one descriptor.
  bool block_on_fault = false;           ///< The flag is allowed.
  /// Bit i: descriptors with opcode i are carried out (0 to 63). Nothing: it is not known.
  std::optional<std::uint64_t> opcodes = std::nullopt;
  /// Register GENCAP of its device (`gen_cap` in sysfs). Nothing: it is not known.
  std::optional<std::uint64_t> capabilities = std::nullopt;
};

/// Threading: shared - any thread may submit to a shared WQ; a dedicated WQ takes one at a time.
class HEADRACE_API Portal {
 public:
  Portal() = default;
  Portal(const Portal&) = delete;
  Portal& operator=(const Portal&) = delete;
  virtual ~Portal() = default;

  [[nodiscard]] virtual const QueueInfo& info() const = 0;
  /// Gives the device a copy of `descriptor`. False, from a shared WQ only: it is full or not
  /// enabled, nothing was taken, try again later. A dedicated WQ drops what it cannot hold, as
  /// hardware does, and the device reports an error of its own: count credits. Never blocks.
  [[nodiscard]] virtual bool submit(const Descriptor& descriptor) noexcept = 0;
};

}  // namespace headrace::dsa
