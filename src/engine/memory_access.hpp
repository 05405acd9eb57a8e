// SPDX-License-Identifier: Apache-2.0
// The memory of an operation's operands: checks that it is mapped, faults it in, and writes it back
// from the caches. Decision 9 says which operations are checked before a processor accesses their
// memory, and why not all.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "headrace/engine/operation.hpp"

namespace headrace::engine::detail {

struct Operand {
  std::span<const std::byte> bytes;
  bool write = false;
};
/// The operands of `operation`; unused ones are empty.
[[nodiscard]] std::array<Operand, 3> operands(const Operation& operation) noexcept;

enum class Touched : std::uint8_t {
  present,
  absent,   ///< Not mapped, or not accessible in this way.
  foreign,  ///< Not within an operand: the device reported a wrong address.
};

/// Faults in the page of `fault`, which a device could not access, and following pages of the
/// operand.
[[nodiscard]] Touched touch(const Operation& operation, std::uintptr_t fault, bool write) noexcept;

/// Faults in all pages of the operands. Returns the address of one that a processor cannot access,
/// or nothing.
[[nodiscard]] std::optional<std::uintptr_t> untouchable(const Operation& operation) noexcept;

/// Writes the targets back to memory; on persistent memory they are durable when this returns. The
/// caller must have seen the completion.
void make_durable(const Operation& operation) noexcept;

/// From this size on the check costs less than 2 % of the copy (docs/decisions/0009).
inline constexpr std::size_t kAskedBytesMin = std::size_t{2} << 20U;

/// Returns the first operand address that a processor cannot access, as far as it is checked.
/// `all`: faults in and checks every page. Otherwise checks operations of at least kAskedBytesMin:
/// that all pages are mapped, and that the first and last page of a target are writable.
[[nodiscard]] std::optional<std::uintptr_t> inaccessible(const Operation& operation,
                                                         bool all) noexcept;

}  // namespace headrace::engine::detail
