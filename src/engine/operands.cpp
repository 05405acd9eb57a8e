// SPDX-License-Identifier: Apache-2.0
#include "operands.hpp"

#include <algorithm>
#include <array>

#include "dsa_descriptor.hpp"
#include "headrace/platform/line_flush.hpp"
#include "headrace/platform/memory.hpp"

namespace headrace::engine::detail {
namespace {

/// Brought in at once: as much as a queue usually transfers with one descriptor.
constexpr std::size_t kTouchBytesMax = 2U << 20U;

/// As untouchable(), of one operand.
std::optional<std::uintptr_t> first_untouchable(const Operand& operand) noexcept {
  const auto first = reinterpret_cast<std::uintptr_t>(operand.bytes.data());
  const std::size_t page = platform::page_bytes();
  std::size_t at = 0;
  std::size_t step = operand.bytes.size();
  while (at < operand.bytes.size()) {
    step = std::min(step, operand.bytes.size() - at);
    const std::size_t there = platform::touch_pages(first + at, step, operand.write);
    at += there;
    if (there == step) {
      step *= 2;
    } else if (step > page) {
      // All in front of the bad page was brought in once more: halves, so that it is not so often.
      step = std::max(step / 2, page);
    } else if (there == 0) {
      return first + at;
    }
  }
  return std::nullopt;
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
  for (const Operand& operand : operands(operation)) {
    if (const auto bad = first_untouchable(operand)) return bad;
  }
  return std::nullopt;
}

void make_durable(const Operation& operation) noexcept {
  // A device says that it has ended by a word in memory, and the flush of a line is not ordered
  // behind the load that read it: it could bring the line to memory as it was before.
  platform::full_fence();
  for (const Operand& operand : operands(operation)) {
    if (operand.write) platform::write_back_lines(operand.bytes);
  }
}

std::uint32_t hints(const Operation& operation, const dsa::QueueInfo& queue,
                    FaultPolicy page_faults) noexcept {
  std::uint32_t flags = 0;
  const OperationKind kind = operation.kind();
  if (page_faults == FaultPolicy::block && can_block(queue) && kind != OperationKind::no_op &&
      kind != OperationKind::drain) {
    flags |= dsa::flag::block_on_fault;
  }
  if (operation.is_into_cache() && writes(kind)) {
    flags |= cache_flag(queue, kind == OperationKind::cache_flush);
  }
  return flags;
}

bool can_block(const dsa::QueueInfo& queue) noexcept {
  const std::uint64_t can = queue.capabilities.value_or(dsa::capability::block_on_fault);
  return queue.block_on_fault && (can & dsa::capability::block_on_fault) != 0;
}

std::uint32_t cache_flag(const dsa::QueueInfo& queue, bool flush) noexcept {
  // Who is not asked has it for what writes, as all of the 4th generation and later.
  const std::uint64_t can = queue.capabilities.value_or(dsa::capability::cache_control_of_writes);
  const std::uint64_t wanted =
      flush ? dsa::capability::cache_control_of_flushes : dsa::capability::cache_control_of_writes;
  return (can & wanted) != 0 ? dsa::flag::cache_control : 0;
}

}  // namespace headrace::engine::detail
