// SPDX-License-Identifier: Apache-2.0
// Lines: stores to a portal that are not one instruction of 64 bytes. A descriptor counts as
// submitted when all 64 bytes of an aligned line were stored by one thread, one after the other,
// as a write-combining buffer would put them together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace headrace::emu {

/// A thread's line that is not full yet.
///
/// Threading: owned.
class Line {
 public:
  constexpr Line() = default;
  /// Adds bytes, which must not reach beyond the line of `address`. True if the line is now full:
  /// bytes() holds it until the next call. Another line's remains are dropped.
  bool store(std::uint64_t address, std::span<const std::byte> from) noexcept;
  [[nodiscard]] std::span<const std::byte, 64> bytes() const noexcept { return bytes_; }

 private:
  std::uint64_t address_ = 0;
  std::uint64_t filled_ = 0;  // Bit n: byte n.
  std::byte bytes_[64] = {};
};

}  // namespace headrace::emu
