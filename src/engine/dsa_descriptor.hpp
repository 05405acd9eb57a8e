// SPDX-License-Identifier: Apache-2.0
// From an operation to the descriptor that has a device do it, and from the completion record to
// how it ended. Pure functions. Not for: who submits it, and what is done about a page fault.
#pragma once

#include <array>
#include <cstring>

#include "headrace/dsa/descriptor.hpp"
#include "headrace/engine/job.hpp"

namespace headrace::engine::detail {

/// The descriptor of a valid `operation` of at most 2^32 - 1 bytes, all but the completion record's
/// address and the flags that go with it.
void to_descriptor(const Operation& operation, dsa::Descriptor& descriptor) noexcept;

/// All of the descriptor of a copy, in few instructions.
inline void to_copy_descriptor(const Operation& copy, std::uint32_t flags,
                               const dsa::CompletionRecord& record,
                               dsa::Descriptor& descriptor) noexcept {
  constexpr std::uint64_t kOpcode = std::uint64_t{static_cast<unsigned>(dsa::Opcode::move)} << 56U;
  const std::array<std::uint64_t, 8> words{kOpcode | std::uint64_t{flags} << 32U,
                                           reinterpret_cast<std::uintptr_t>(&record),
                                           reinterpret_cast<std::uintptr_t>(copy.source().data()),
                                           reinterpret_cast<std::uintptr_t>(copy.target().data()),
                                           static_cast<std::uint32_t>(copy.source().size())};
  std::memcpy(static_cast<void*>(&descriptor), words.data(), sizeof words);
}

/// How a part of `operation` of `byte_count` bytes ended, as `record` says, whose status is not
/// zero. Of a page fault: what was done before it, in whole units that the operation can be cut at,
/// with the values that the rest goes on from. A status that speaks of the descriptor and not of
/// the data, or numbers that cannot be, are Cause::device_error: nothing of the record is taken.
[[nodiscard]] ShareOutcome to_outcome(const Operation& operation, std::size_t byte_count,
                                      const dsa::CompletionRecord& record) noexcept;

/// Kinds that a DSA of version 1 does.
[[nodiscard]] OperationSet dsa_operations() noexcept;

/// True if `kind` writes to its target.
[[nodiscard]] bool writes(OperationKind kind) noexcept;

}  // namespace headrace::engine::detail
