// SPDX-License-Identifier: Apache-2.0
// From an operation to the descriptor that has a device do it, and from the completion record to
// how it ended. Pure functions. Not for: submitting it, and what is done about a page fault.
#pragma once

#include <cstddef>
#include <cstring>
#include <optional>
#include <string_view>

#include "headrace/dsa/descriptor.hpp"
#include "headrace/dsa/portal.hpp"
#include "headrace/engine/engine.hpp"

namespace headrace::engine::detail {

/// The descriptor of a valid `operation` of at most 2^32 - 1 bytes, all but the completion record's
/// address and the flags that go with it.
void to_descriptor(const Operation& operation, dsa::Descriptor& descriptor) noexcept;

/// The first word of a descriptor.
constexpr std::uint64_t head_word(dsa::Opcode opcode, std::uint32_t flags) noexcept {
  return std::uint64_t{static_cast<unsigned>(opcode)} << 56U | std::uint64_t{flags} << 32U;
}

/// Word by word: an array of them would be made elsewhere first.
inline void put_word(dsa::Descriptor& descriptor, std::size_t index, std::uint64_t word) noexcept {
  std::memcpy(reinterpret_cast<std::byte*>(&descriptor) + index * sizeof word, &word, sizeof word);
}

/// What differs from copy to copy, and from batch to batch.
inline void write_operands(const void* first, const void* second, std::size_t count,
                           dsa::Descriptor& descriptor) noexcept {
  put_word(descriptor, 2, reinterpret_cast<std::uintptr_t>(first));
  put_word(descriptor, 3, reinterpret_cast<std::uintptr_t>(second));
  const auto narrow = static_cast<std::uint32_t>(count);
  std::memcpy(reinterpret_cast<std::byte*>(&descriptor) + 4 * sizeof(std::uint64_t), &narrow,
              sizeof narrow);
}

/// All of a descriptor that has no operands of its own: what it does not use has to be 0.
inline void write_descriptor(std::uint64_t head, const dsa::CompletionRecord& record,
                             const void* first, const void* second, std::size_t count,
                             dsa::Descriptor& descriptor) noexcept {
  put_word(descriptor, 0, head);
  put_word(descriptor, 1, reinterpret_cast<std::uintptr_t>(&record));
  for (std::size_t i = 4; i < 8; ++i) put_word(descriptor, i, 0);
  write_operands(first, second, count, descriptor);
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
/// True unless it is known that batches are not carried out.
[[nodiscard]] bool takes_batches(std::optional<std::uint64_t> opcodes) noexcept;
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
