// SPDX-License-Identifier: Apache-2.0
#include "memory_access.hpp"

#include <algorithm>
#include <array>

#include "headrace/platform/line_flush.hpp"
#include "headrace/platform/memory.hpp"

namespace headrace::engine::detail {
namespace {

/// Faulted in at a time: the usual maximum transfer of one descriptor.
constexpr std::size_t kTouchBytesMax = 2U << 20U;

/// The first unmapped page of `bytes`, which has one.
std::uintptr_t first_unmapped(std::span<const std::byte> bytes) noexcept {
  const auto first = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::size_t page = platform::page_bytes();
  // Invariant: all of [0, there) is mapped, [0, beyond) is not.
  std::size_t there = 0;
  std::size_t beyond = bytes.size();
  while (beyond - there > page) {
    const std::size_t middle = there + (beyond - there) / 2;
    (platform::is_mapped(bytes.subspan(there, middle - there)) ? there : beyond) = middle;
  }
  // The page boundary between them, unless the first page is unmapped.
  const std::uintptr_t last_page = (first + beyond - 1) / page * page;
  return platform::is_mapped(bytes.subspan(there, 1)) ? last_page : first + there;
}

}  // namespace

std::array<Operand, 3> operands(const Operation& operation) noexcept {
  return {{{operation.source(), false},
           {operation.target(), operation.kind() != OperationKind::cache_flush},
           {operation.second_source(), operation.kind() == OperationKind::dualcast}}};
}

Touched touch(const Operation& operation, std::uintptr_t fault, bool write) noexcept {
  const std::size_t page = platform::page_bytes();
  const std::uintptr_t place = fault / page * page;
  std::size_t behind = 0;
  for (const Operand& operand : operands(operation)) {
    const auto first = reinterpret_cast<std::uintptr_t>(operand.bytes.data());
    const std::uintptr_t end = first + operand.bytes.size();
    if (place + page > first && place < end && operand.write == write) behind = end - place;
  }
  if (behind == 0) return Touched::foreign;
  return platform::touch_pages(place, std::min(behind, kTouchBytesMax), write) > 0
             ? Touched::present
             : Touched::absent;
}

std::optional<std::uintptr_t> untouchable(const Operation& operation) noexcept {
  const std::size_t page = platform::page_bytes();
  for (const Operand& operand : operands(operation)) {
    const auto first = reinterpret_cast<std::uintptr_t>(operand.bytes.data());
    std::size_t at = 0;
    std::size_t step = operand.bytes.size();
    while (at < operand.bytes.size()) {
      step = std::min(step, operand.bytes.size() - at);
      const std::size_t there = platform::touch_pages(first + at, step, operand.write);
      at += there;
      if (there == step) {
        step *= 2;
      } else if (step > page) {
        // Halves the step, to fault in the pages before the bad one as rarely as possible.
        step = std::max(step / 2, page);
      } else if (there == 0) {
        return first + at;
      }
    }
  }
  return std::nullopt;
}

void make_durable(const Operation& operation) noexcept {
  // A flush is not ordered after the load that read the completion record: without the fence it
  // could write back the line's old contents.
  platform::full_fence();
  for (const Operand& operand : operands(operation)) {
    if (operand.write) platform::write_back_lines(operand.bytes);
  }
}

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
