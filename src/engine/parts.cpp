// SPDX-License-Identifier: Apache-2.0
#include "parts.hpp"

#include <algorithm>
#include <cstdint>

namespace headrace::engine {

PartPool::PartPool(std::size_t block_count) : blocks_(std::make_unique<PartBlock[]>(block_count)) {
  for (std::size_t i = 0; i < block_count; ++i) give_back(blocks_[i]);
}

PartBlock* PartPool::take() noexcept {
  const Lock lock(mutex_);
  PartBlock* const block = first_;
  if (block != nullptr) first_ = block->next;
  return block;
}

void PartPool::give_back(PartBlock& block) noexcept {
  const Lock lock(mutex_);
  block.next = first_;
  first_ = &block;
}

namespace detail {

std::size_t part_count(std::size_t byte_count, std::size_t mover_count) {
  const std::size_t worthwhile = std::max<std::size_t>(1, byte_count / kPartBytesMin);
  return std::min({worthwhile, mover_count, MoverChoice::kMoverMax});
}

std::size_t part_end(const Operation& operation, std::size_t index, std::size_t count) {
  const std::size_t total = operation.byte_count();
  if (index + 1 == count) return total;
  const std::size_t cut = operation.cut_bytes();
  const std::byte* const first =
      operation.target().empty() ? operation.source().data() : operation.target().data();
  // Parts begin at multiples of the pattern, so the address counts only as far as it is one.
  const auto base = reinterpret_cast<std::uintptr_t>(first) / cut * cut;
  // Each part has kPartBytesMin or more before this moves its end by less than a page, so none
  // becomes empty and none ends before it begins.
  const std::size_t even = total / count * (index + 1) / cut * cut;
  return even - (base + even) % kPartAlignment;
}

}  // namespace detail
}  // namespace headrace::engine
