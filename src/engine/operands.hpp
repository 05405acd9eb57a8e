// SPDX-License-Identifier: Apache-2.0
// The memory that an operation names: whether it is there, and making it so.
#pragma once

#include <cstdint>
#include <optional>

#include "headrace/dsa/portal.hpp"
#include "headrace/engine/engine.hpp"

namespace headrace::engine::detail {

struct Operand {
  std::span<const std::byte> bytes;
  bool write = false;
};
/// All that `operation` reads and writes; those that it has not are empty.
[[nodiscard]] std::array<Operand, 3> operands(const Operation& operation) noexcept;

enum class Touched : std::uint8_t {
  present,
  absent,   ///< Not mapped, or may not be accessed so.
  foreign,  ///< Not an address of the operation: the device is mistaken.
};

/// Brings in the page of `fault`, which a device could not reach, and what `operation` needs behind
/// it.
[[nodiscard]] Touched touch(const Operation& operation, std::uintptr_t fault, bool write) noexcept;

/// Address of an operand of `operation` with a page that is not mapped or may not be accessed as it
/// has to be; nothing if a processor can carry it out. Brings all pages in.
[[nodiscard]] std::optional<std::uintptr_t> untouchable(const Operation& operation) noexcept;

/// Brings what `operation` has written to memory, whoever wrote it: on persistent memory it is
/// durable when this returns. The caller has seen that it ended.
void make_durable(const Operation& operation) noexcept;

/// The flags of a descriptor for `operation` that are neither its operands nor its record: block on
/// fault and cache control.
[[nodiscard]] std::uint32_t hints(const Operation& operation, const dsa::QueueInfo& queue,
                                  FaultPolicy page_faults) noexcept;

/// Whether the device may be told to wait for the system at a page that is not there.
[[nodiscard]] bool can_block(const dsa::QueueInfo& queue) noexcept;
/// What tells the device that the target, or for a flush what is flushed, is wanted in the cache; 0
/// if it would refuse that.
[[nodiscard]] std::uint32_t cache_flag(const dsa::QueueInfo& queue, bool flush) noexcept;

}  // namespace headrace::engine::detail
