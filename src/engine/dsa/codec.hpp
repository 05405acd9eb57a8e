// SPDX-License-Identifier: Apache-2.0
// From an operation to the descriptor that has a device do it, and from the completion record to
// how it ended. Pure functions. Not for: submitting it, and what is done about a page fault.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "headrace/dsa/descriptor.hpp"
#include "headrace/dsa/portal.hpp"
#include "headrace/engine/engine.hpp"

namespace headrace::engine::detail {

/// All of a descriptor but its operands: what it does not use has to be 0.
inline void begin_descriptor(dsa::Opcode opcode, std::uint32_t flags,
                             const dsa::CompletionRecord& record,
                             dsa::Descriptor& descriptor) noexcept {
  constexpr std::uint32_t kWidth = 0xff'ffff;
  descriptor = {};
  descriptor.opcode = static_cast<std::uint8_t>(opcode);
  descriptor.flags = flags & kWidth;
  descriptor.completion_addr = reinterpret_cast<std::uintptr_t>(&record);
}

/// The descriptor of a valid `operation` of at most 2^32 - 1 bytes. `flags`: those that are not its
/// operands.
void to_descriptor(const Operation& operation, std::uint32_t flags,
                   const dsa::CompletionRecord& record, dsa::Descriptor& descriptor) noexcept;

/// The operands of a copy: source, target, bytes. A batch has its list and their number there.
inline void write_operands(const void* first, const void* second, std::size_t count,
                           dsa::Descriptor& descriptor) noexcept {
  descriptor.src_addr = reinterpret_cast<std::uintptr_t>(first);
  descriptor.dst_addr = reinterpret_cast<std::uintptr_t>(second);
  descriptor.xfer_size = static_cast<std::uint32_t>(count);
}

/// How a part of `operation` of `byte_count` bytes ended, as `record` says, whose status is not
/// zero. Of a page fault: what was done before it, in whole units that the operation can be cut at,
/// with the values that the rest goes on from. A status that speaks of the descriptor and not of
/// the data, or numbers that cannot be, are Cause::device_error: nothing of the record is taken.
[[nodiscard]] Completion to_completion(const Operation& operation, std::size_t byte_count,
                                       const dsa::CompletionRecord& record) noexcept;

/// Kinds whose opcodes are among `opcodes`, a bit of each; all of a DSA of version 1 if that is not
/// known.
[[nodiscard]] OperationSet dsa_operations(std::optional<std::uint64_t> opcodes) noexcept;
/// True unless it is known that `opcode` is not carried out.
[[nodiscard]] bool takes(std::optional<std::uint64_t> opcodes, dsa::Opcode opcode) noexcept;
/// What the attribute op_config of a queue says: 256 bits in words of 32, the highest first.
/// Nothing if it is none.
[[nodiscard]] std::optional<std::uint64_t> opcodes_from(std::string_view text) noexcept;
/// What the attribute gen_cap of a device says: a number with 0x. Nothing if it is none.
[[nodiscard]] std::optional<std::uint64_t> capabilities_from(std::string_view text) noexcept;

/// The flags of a descriptor for `operation` that are neither its operands nor its record: block on
/// fault and cache control.
[[nodiscard]] std::uint32_t hints(const Operation& operation, const dsa::QueueInfo& queue,
                                  FaultPolicy page_faults) noexcept;

/// Whether the device may be told to wait for the system at a page that is not there.
[[nodiscard]] bool can_block(const dsa::QueueInfo& queue) noexcept;
/// What tells the device that the target, or for a flush what is flushed, is wanted in the cache; 0
/// if it would refuse that.
[[nodiscard]] std::uint32_t cache_flag(const dsa::QueueInfo& queue, bool flush) noexcept;

/// True if `kind` writes to its target.
[[nodiscard]] bool writes(OperationKind kind) noexcept;

}  // namespace headrace::engine::detail
