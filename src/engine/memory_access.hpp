// SPDX-License-Identifier: Apache-2.0
// The memory that an operation names: whether it is there, bringing it in, and bringing what was
// written to it out of the caches. Decision 9 says for which operations the system is asked before
// a processor accesses it, and why not for all.
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

/// Writes the target of `operation` back to memory, whatever wrote it: on persistent memory it is
/// durable when this returns. The caller has seen that it ended.
void make_durable(const Operation& operation) noexcept;

/// From here on the question costs less than a fiftieth of the copy (docs/decisions/0009).
inline constexpr std::size_t kAskedBytesMin = std::size_t{2} << 20U;

/// The first address of an operand of `operation` that a processor may not access, as far as it is
/// asked. `all`: of every page; each is brought in. Else of what has kAskedBytesMin or more:
/// whether all is mapped, and whether the first and the last page of a target may be written to.
[[nodiscard]] std::optional<std::uintptr_t> inaccessible(const Operation& operation,
                                                         bool all) noexcept;

}  // namespace headrace::engine::detail
