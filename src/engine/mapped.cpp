// SPDX-License-Identifier: Apache-2.0
#include "mapped.hpp"

#include <span>

#include "headrace/platform/memory.hpp"
#include "operands.hpp"

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

std::optional<std::uintptr_t> inaccessible(const Operation& operation, bool all) noexcept {
  if (all) return untouchable(operation);
  if (operation.byte_count() < kAskedBytesMin) return std::nullopt;
  for (const Operand& operand : operands(operation)) {
    if (operand.bytes.empty()) continue;
    if (!platform::is_mapped(operand.bytes)) return first_unmapped(operand.bytes);
    if (!operand.write) continue;
    const auto first = reinterpret_cast<std::uintptr_t>(operand.bytes.data());
    for (const std::uintptr_t place : {first, first + operand.bytes.size() - 1}) {
      if (platform::touch_pages(place, 1, true) == 0) return place;
    }
  }
  return std::nullopt;
}

}  // namespace headrace::engine::detail
