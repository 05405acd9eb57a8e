// SPDX-License-Identifier: Apache-2.0
#include "mapped.hpp"

#include <array>
#include <span>

#include "headrace/platform/memory.hpp"

namespace headrace::engine::detail {
namespace {

/// The first page of `bytes` that is not mapped, of which there is one.
std::uintptr_t first_unmapped(std::span<const std::byte> bytes) noexcept {
  const auto first = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::size_t page = platform::page_bytes();
  // Up to `there` all is mapped, and not all of it up to `beyond`.
  std::size_t there = 0;
  std::size_t beyond = bytes.size();
  while (beyond - there > page) {
    const std::size_t middle = there + (beyond - there) / 2;
    (platform::is_mapped(bytes.subspan(there, middle - there)) ? there : beyond) = middle;
  }
  // The page boundary between them, unless it is the very first page.
  const std::uintptr_t last_page = (first + beyond - 1) / page * page;
  return platform::is_mapped(bytes.subspan(there, 1)) ? last_page : first + there;
}

}  // namespace

std::optional<std::uintptr_t> unmapped(const Operation& operation) noexcept {
  if (operation.byte_count() < kAskedBytesMin) return std::nullopt;
  const std::array<std::span<const std::byte>, 3> operands{operation.source(), operation.target(),
                                                           operation.second_source()};
  for (const std::span<const std::byte> bytes : operands) {
    if (!bytes.empty() && !platform::is_mapped(bytes)) return first_unmapped(bytes);
  }
  return std::nullopt;
}

}  // namespace headrace::engine::detail
