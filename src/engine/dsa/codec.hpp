// SPDX-License-Identifier: Apache-2.0
// Encodes operations as descriptors and decodes completion records. Pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "headrace/dsa/descriptor.hpp"
#include "headrace/dsa/portal.hpp"
#include "headrace/engine/engine.hpp"

namespace headrace::engine::detail {

/// Writes a descriptor except for its operands; unused fields must be 0.
inline void begin_descriptor(dsa::Opcode opcode, std::uint32_t flags,
                             const dsa::CompletionRecord& record,
                             dsa::Descriptor& descriptor) noexcept {
  constexpr std::uint32_t kWidth = 0xff'ffff;
  descriptor = {};
  descriptor.opcode = static_cast<std::uint8_t>(opcode);
  descriptor.flags = flags & kWidth;
  descriptor.completion_addr = reinterpret_cast<std::uintptr_t>(&record);
}

/// Writes the descriptor of a valid `operation` of at most 2^32 - 1 bytes. `flags`: in addition to
/// those that the operation implies.
void to_descriptor(const Operation& operation, std::uint32_t flags,
                   const dsa::CompletionRecord& record, dsa::Descriptor& descriptor) noexcept;

/// Writes the operands of a copy (source, target, bytes) or of a batch (list, null, number).
inline void write_operands(const void* first, const void* second, std::size_t count,
                           dsa::Descriptor& descriptor) noexcept {
  descriptor.src_addr = reinterpret_cast<std::uintptr_t>(first);
  descriptor.dst_addr = reinterpret_cast<std::uintptr_t>(second);
  descriptor.xfer_size = static_cast<std::uint32_t>(count);
}

/// Decodes `record`, whose status is not zero, for a part of `operation` of `byte_count` bytes.
/// After a page fault: the bytes completed, rounded down to where the operation can be cut, and the
/// running values to continue with. A status about the descriptor instead of the data, or
/// impossible values, become Cause::device_error.
[[nodiscard]] Completion to_completion(const Operation& operation, std::size_t byte_count,
                                       const dsa::CompletionRecord& record) noexcept;

/// The kinds whose opcodes are set in the bit mask `opcodes`; those of DSA version 1 if unknown.
[[nodiscard]] OperationSet dsa_operations(std::optional<std::uint64_t> opcodes) noexcept;
/// True unless `opcode` is known to be unsupported.
[[nodiscard]] bool takes(std::optional<std::uint64_t> opcodes, dsa::Opcode opcode) noexcept;
/// Parses the attribute op_config of a queue, without line end: 256 bits in words of 32, the
/// highest first. Nothing if malformed.
[[nodiscard]] std::optional<std::uint64_t> opcodes_from(std::string_view text) noexcept;
/// Parses the attribute gen_cap of a device: a number with 0x. Nothing if malformed.
[[nodiscard]] std::optional<std::uint64_t> capabilities_from(std::string_view text) noexcept;

/// The flags for block-on-fault and cache control.
[[nodiscard]] std::uint32_t hints(const Operation& operation, const dsa::QueueInfo& queue,
                                  FaultPolicy page_faults) noexcept;

/// Whether the queue supports block-on-fault.
[[nodiscard]] bool can_block(const dsa::QueueInfo& queue) noexcept;
/// The cache-control flag for writes, or for a flush; 0 if the device does not support it.
[[nodiscard]] std::uint32_t cache_flag(const dsa::QueueInfo& queue, bool flush) noexcept;

/// True if `kind` writes to its target.
[[nodiscard]] bool writes(OperationKind kind) noexcept;

}  // namespace headrace::engine::detail
