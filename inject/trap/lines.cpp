// SPDX-License-Identifier: Apache-2.0
#include "inject/trap/lines.hpp"

namespace headrace::emu {

bool Line::store(std::uint64_t address, std::span<const std::byte> from) noexcept {
  const std::uint64_t line = address & ~std::uint64_t{63};
  if (line != address_ || filled_ == ~std::uint64_t{0}) {
    address_ = line;
    filled_ = 0;
  }
  std::size_t position = address & 63;
  for (const std::byte byte : from) {
    bytes_[position] = byte;
    filled_ |= std::uint64_t{1} << position;
    ++position;
  }
  return filled_ == ~std::uint64_t{0};
}

}  // namespace headrace::emu
